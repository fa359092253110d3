package session

import (
	"fmt"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

func TestRetainedMessagesAtSubscribe(t *testing.T) { // [MQTT-3.3.1-9], [MQTT-3.3.1-10], [MQTT-3.3.1-11], 5 §4.8.2
	for _, tt := range []struct {
		filter     string
		handling   mqtt.RetainHandling
		first, now bool
	}{
		{"a", mqtt.SendRetained, true, true},
		{"a", mqtt.SendRetainedIfNew, true, false},
		{"a", mqtt.DontSendRetained, false, false},
		{"$share/g/a", mqtt.SendRetained, false, false},
		{"$share/g/a", mqtt.SendRetainedIfNew, false, false},
		{"$shared/a", mqtt.SendRetained, true, true},
	} {
		s, _ := online(Limits{}, v5(60))
		b := Subscription{Filter: tt.filter, RetainHandling: tt.handling}
		if r := s.Subscribe(b, nil); r.Retained != tt.first || r.Was != nil {
			t.Errorf("%s, %d, new: %+v", tt.filter, tt.handling, r)
		}
		if r := s.Subscribe(b, nil); r.Retained != tt.now || r.Was == nil {
			t.Errorf("%s, %d, again: %+v", tt.filter, tt.handling, r)
		}
		s.Unsubscribe(tt.filter)
		if r := s.Subscribe(b, nil); r.Retained != tt.first {
			t.Errorf("%s, %d, after UNSUBSCRIBE: %+v", tt.filter, tt.handling, r)
		}
	}
}

func TestSubscribingAnewReplaces(t *testing.T) { // [MQTT-3.8.4-3], [MQTT-3.10.4-1]
	s, _ := online(Limits{}, v5(60))
	s.Snapshot(nil)
	first := s.Subscribe(Subscription{Filter: "b", QoS: 1, ID: 5}, nil).Now
	s.Subscribe(Subscription{Filter: "a"}, nil)
	s.Subscribe(Subscription{Filter: "a/#"}, nil)
	r := s.Subscribe(Subscription{Filter: "b", QoS: 2}, nil)
	if r.Was != first || r.Now == first || first.QoS != 1 || r.Now.QoS != 2 || r.Now.ID != 0 {
		t.Errorf("%+v", r)
	}
	var filters []string
	for _, b := range s.Subscriptions() {
		filters = append(filters, fmt.Sprint(b.Filter, b.QoS))
	}
	same(t, "all", filters, []string{"a0", "a/#0", "b2"})
	if s.Checkpoint() != First {
		t.Error("SUBACK may go out before the record is durable")
	}
	s.Snapshot(nil)
	if s.Unsubscribe("a/") != nil || s.Checkpoint() != Saved {
		t.Error("a filter that nobody subscribed")
	}
	if s.Unsubscribe("b") != r.Now || s.Unsubscribe("b") != nil || len(s.Subscriptions()) != 2 || s.Checkpoint() != First {
		t.Error("unsubscribe")
	}
}

func TestOverlappingSubscriptionsMakeOneDelivery(t *testing.T) {
	s, _ := online(Limits{}, v5(60))
	sub := func(b Subscription) *Subscription {
		b.Filter = fmt.Sprint("f", len(s.Subscriptions()))
		return s.Subscribe(b, nil).Now
	}
	plain := func(qos byte) *Subscription { return sub(Subscription{QoS: qos}) }
	with := func(id uint32) *Subscription { return sub(Subscription{QoS: 1, ID: id}) }
	published := sub(Subscription{RetainAsPublished: true})
	others := sub(Subscription{QoS: 2, NoLocal: true, ID: 9})
	own := &Message{Topic: "t", QoS: 2, Publisher: "me"}
	foreign := &Message{Topic: "t", QoS: 1, Publisher: "you", Retain: true}
	server := &Message{Topic: "t", QoS: 2}
	for _, tt := range []struct {
		name string
		m    *Message
		subs []*Subscription
		want string
	}{
		{"none", server, nil, "none"},
		{"as published", server, []*Subscription{plain(2)}, "qos2 retain false []"},
		{"at most what was subscribed", server, []*Subscription{plain(1)}, "qos1 retain false []"},
		{"at most what was published", foreign, []*Subscription{plain(2)}, "qos1 retain false []"},
		{"the highest of all [MQTT-3.3.4-2]", server, []*Subscription{plain(0), plain(2), plain(1)}, "qos2 retain false []"},
		{"RETAIN as published if one wants that [MQTT-3.3.1-13]", foreign, []*Subscription{plain(0), published}, "qos0 retain true []"},
		{"and it was set", server, []*Subscription{published}, "qos0 retain false []"},
		{"RETAIN 0 if none wants it [MQTT-3.3.1-12]", foreign, []*Subscription{plain(1)}, "qos1 retain false []"},
		{"one identifier", server, []*Subscription{plain(2), with(3)}, "qos2 retain false [3]"},
		{"all identifiers, repeated ones too [MQTT-3.3.4-4]", server, []*Subscription{with(3), plain(1), with(1), with(3)}, "qos1 retain false [3 1 3]"},
		{"No Local, own [MQTT-3.8.3-3]", own, []*Subscription{others}, "none"},
		{"No Local, own, another subscription matches", own, []*Subscription{others, with(3)}, "qos1 retain false [3]"},
		{"No Local, of another client", foreign, []*Subscription{others}, "qos1 retain false [9]"},
		{"No Local, of the server", server, []*Subscription{others}, "qos2 retain false [9]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 2 { // what subscriptions share does not grow
				d, ok := s.Merge(tt.m, Ref{0, 1}, tt.subs...)
				got := fmt.Sprintf("qos%d retain %v %v", d.QoS, d.Retain, d.SubscriptionIDs)
				if !ok {
					got = "none"
				} else if d.Message != tt.m || d.Ref != (Ref{0, 1}) || d.Shared {
					t.Errorf("%+v", d)
				}
				if got != tt.want {
					t.Errorf("got %s, want %s", got, tt.want)
				}
			}
		})
	}
}

func TestASessionWithoutNameIsNotThePublisherOfWhatTheServerSends(t *testing.T) {
	s := New(Options{})
	b := s.Subscribe(Subscription{Filter: "a", NoLocal: true}, nil).Now
	if _, ok := s.Merge(&Message{}, Ref{}, b); !ok {
		t.Error("not delivered")
	}
}

func TestASharedSubscriptionMakesADeliveryOfItsOwn(t *testing.T) {
	s, _ := online(Limits{}, v5(60))
	b := s.Subscribe(Subscription{Filter: "$share/g/t", QoS: 1, ID: 4}, nil).Now
	d, ok := s.Merge(msg(1), Ref{0, 1}, b)
	if !ok || !d.Shared || d.QoS != 1 || len(d.SubscriptionIDs) != 1 {
		t.Errorf("%+v", d)
	}
}

func TestRetainedDeliveries(t *testing.T) { // 5 §3.3.1.3
	s, _ := online(Limits{}, v5(60))
	b := s.Subscribe(Subscription{Filter: "t", QoS: 1, ID: 4, NoLocal: true}, nil).Now
	d, ok := s.Retained(&Message{Topic: "t", QoS: 2, Retain: true}, b)
	if !ok || !d.Retain || d.QoS != 1 || d.Ref != (Ref{}) || d.SubscriptionIDs[0] != 4 {
		t.Errorf("%+v", d)
	}
	if _, ok := s.Retained(&Message{Topic: "t", Publisher: "me"}, b); ok {
		t.Error("its own, though No Local [MQTT-3.8.3-3]")
	}
}

func TestARestoredSubscriptionIsWhole(t *testing.T) {
	s, c := online(Limits{}, v5(60))
	c.window = 0
	give(t, s, 1, 1, 1)
	s.Subscribe(Subscription{Filter: "t", QoS: 1, ID: 4}, []uint64{9, 9, 9})
	s = throughRecord(t, s, nil, t0)
	b := s.Subscriptions()[0]
	if d, ok := s.Merge(msg(1), Ref{0, 10}, b); !ok || fmt.Sprint(d.SubscriptionIDs) != "[4]" {
		t.Errorf("%+v", d)
	}
	if b.follows(Ref{2, 9}) || !b.follows(Ref{2, 10}) {
		t.Errorf("starts at %v", b.since)
	}
}

// A session whose queue is long subscribes; then the server goes down. The log
// is read again from before the subscription, which must not be given what was
// published before it.
func TestASubscriptionDoesNotReachBackAfterARestart(t *testing.T) {
	s, c := online(Limits{}, v5(60))
	early := s.Subscribe(Subscription{Filter: "early"}, []uint64{5, 5}).Now
	if early.since != nil {
		t.Error("a start is kept though nothing is queued")
	}
	c.window = 0
	s.Queue(Delivery{Ref: Ref{0, 6}, Message: msg(6), QoS: 1}, t0)
	s.Subscribe(Subscription{Filter: "late"}, []uint64{10, 20})
	s.Subscribe(Subscription{Filter: "late", QoS: 1}, []uint64{12, 22}) // goes on where it was

	s = throughRecord(t, s, []uint64{12, 22}, t0)
	all := s.Subscriptions()
	for _, tt := range []struct {
		ref  Ref
		want string
	}{
		{Ref{0, 6}, "[early]"}, {Ref{0, 10}, "[early]"}, {Ref{0, 11}, "[early late]"},
		{Ref{1, 20}, "[early]"}, {Ref{1, 21}, "[early late]"}, {Ref{2, 1}, "[early late]"}, {Ref{}, "[early late]"},
	} {
		var got []string
		for _, b := range all {
			if _, ok := s.Merge(msg(1), tt.ref, b); ok {
				got = append(got, b.Filter)
			}
		}
		if fmt.Sprint(got) != tt.want {
			t.Errorf("%v: %v, want %s", tt.ref, got, tt.want)
		}
	}

	if late := s.Subscribe(Subscription{Filter: "later"}, []uint64{12, 22}).Now; late.since == nil {
		t.Error("no start though the log is still being read again")
	}
	s.Unsubscribe("later")

	t.Run("and forgets its start when the cursor is past it", func(t *testing.T) {
		s.Connect(v5(60), t0)
		give(t, s, 1, 7, 10)
		s.CaughtUp()
		sentBy(s.Connection(), t0)
		if r := s.Snapshot([]uint64{12, 22}); r.Subscriptions[1].since != nil {
			t.Errorf("%+v", r.Subscriptions[1])
		}
	})
}
