package broker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/session"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

func property(id mqtt.PropertyID, v uint32) mqtt.Properties {
	return mqtt.Properties(nil).AppendUint(id, v)
}

// find gives an integer property.
func find(p mqtt.Properties, id mqtt.PropertyID) (v uint32, ok bool) {
	for q := range p.All() {
		if q.ID == id {
			return q.Uint, true
		}
	}
	return 0, false
}

func (d *device) subscribeWith(p mqtt.Properties, subs ...mqtt.Subscription) mqtt.Suback {
	d.t.Helper()
	s := mqtt.Subscribe{PacketID: 3, Properties: p}
	for _, sub := range subs {
		s.Subscriptions = s.Subscriptions.Append(sub)
	}
	d.send(mqtt.AppendSubscribe(nil, d.v, s))
	a, _, err := mqtt.ParseSuback(d.next(mqtt.TypeSuback), d.v)
	if err != nil {
		d.t.Fatal(err)
	}
	return a
}

func TestBrokenProtocolIsAnsweredWithItsReason(t *testing.T) {
	publish := func(m mqtt.Publish) []byte { return mqtt.AppendPublish(nil, mqtt.V5, m) }
	long := []byte(strings.Repeat("t", 65_535))
	tests := []struct {
		name  string
		bytes []byte
		want  mqtt.Reason
	}{
		{"malformed PUBLISH", []byte{0x30, 0}, mqtt.MalformedPacket},
		{"packet type 0", []byte{0x00, 0}, mqtt.MalformedPacket},
		{"flags of SUBSCRIBE", []byte{0x80, 0}, mqtt.MalformedPacket},
		{"CONNACK from a client", []byte{0x20, 2, 0, 0}, mqtt.ProtocolError},
		{"second CONNECT", mqtt.AppendConnect(nil, mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "d"}), mqtt.ProtocolError},
		{"AUTH without a method", []byte{0xf0, 0}, mqtt.ProtocolError},
		{"256 MB announced", []byte{0x30, 0xff, 0xff, 0xff, 0x7f}, mqtt.PacketTooLarge},
		{"wildcard in a topic", publish(mqtt.Publish{Topic: []byte("a/#")}), mqtt.ProtocolError},
		{"topic of 65,535 bytes, QoS 0", publish(mqtt.Publish{Topic: long}), mqtt.TopicNameInvalid},
		{"topic alias 0", publish(mqtt.Publish{Topic: []byte("a"), Properties: property(mqtt.PropTopicAlias, 0)}), mqtt.TopicAliasInvalid},
		{"topic alias above the maximum", publish(mqtt.Publish{Topic: []byte("a"), Properties: property(mqtt.PropTopicAlias, 33)}), mqtt.TopicAliasInvalid},
		{"topic alias never set", publish(mqtt.Publish{Properties: property(mqtt.PropTopicAlias, 3)}), mqtt.ProtocolError},
		{"subscription identifier from a client", publish(mqtt.Publish{Topic: []byte("a"), Properties: property(mqtt.PropSubscriptionIdentifier, 3)}), mqtt.ProtocolError},
		{"payload that is not the UTF-8 it says", publish(mqtt.Publish{Topic: []byte("a"), Payload: []byte{0xff}, Properties: property(mqtt.PropPayloadFormatIndicator, 1)}), mqtt.PayloadFormatInvalid},
		{"session expiry at DISCONNECT after none", mqtt.AppendDisconnectPacket(nil, mqtt.V5, mqtt.Disconnect{Properties: expiring(3)}), mqtt.ProtocolError},
		{"PUBREL before PUBREC", slices.Concat(publish(mqtt.Publish{QoS: 2, PacketID: 1, Topic: []byte("a")}), mqtt.AppendAck(nil, mqtt.V5, mqtt.Ack{Type: mqtt.TypePubrel, PacketID: 1})), mqtt.ProtocolError},
	}
	n := newNode(t)
	bystander, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "bystander", CleanStart: true})
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.name == "PUBREL before PUBREC" {
				release := n.store.Hold(0)
				defer release()
			}
			d, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "d", CleanStart: true})
			d.t = t
			d.send(test.bytes)
			if told := d.gone(); told != test.want {
				t.Errorf("told %s, want %s", told, test.want)
			}
			bystander.quiet()
		})
	}
	for _, v := range []mqtt.Version{mqtt.V31, mqtt.V311} {
		d, _ := n.connect(mqtt.ConnectOptions{Version: v, ClientID: "d", CleanStart: true})
		d.send([]byte{0x30, 0})
		if typ, p := d.any(); typ != 0 {
			t.Errorf("%s: %s % x after a malformed packet", v, typ, p)
		}
	}
}

func TestATopicThatIsTooLongIsDeclined(t *testing.T) {
	n := newNode(t)
	d, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "d", CleanStart: true})
	long := strings.Repeat("t", 65_535)
	for qos, answer := range map[byte]mqtt.PacketType{1: mqtt.TypePuback, 2: mqtt.TypePubrec} {
		d.sendPublish(qos, 4, long, "")
		if a := d.ack(answer); a.Reason != mqtt.TopicNameInvalid {
			t.Errorf("QoS %d: %s", qos, a.Reason)
		}
	}
	if a := d.subscribeWith(nil, mqtt.Subscription{Filter: []byte(long)}, mqtt.Subscription{Filter: []byte("a/#/b")}, mqtt.Subscription{Filter: []byte("ok"), QoS: 1}); string(a.Codes) != "\x8f\x8f\x01" {
		t.Errorf("SUBACK % x", a.Codes)
	}
}

func TestMoreThanReceiveMaximumIsAnEnd(t *testing.T) {
	n := newNode(t, func(o *Options) { o.Limits.ReceiveMaximum = 5 })
	release := n.store.Hold(0)
	defer release()
	d, ack := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "d", CleanStart: true})
	if v, _ := find(ack.Properties, mqtt.PropReceiveMaximum); v != 5 {
		t.Errorf("announced %d", v)
	}
	for i := range 6 {
		d.sendPublish(1, uint16(i+1), "t", "")
	}
	if told := d.gone(); told != mqtt.ReceiveMaximumExceeded {
		t.Errorf("told %s", told)
	}
}

func TestConnackSaysWhatHolds(t *testing.T) {
	n := newNode(t, func(o *Options) {
		o.Node, o.AnnounceNode = "n1", true
		o.Limits.KeepAlive = 60
		o.Limits.SessionExpiry = 100
	})
	d, ack := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, KeepAlive: 600, Properties: expiring(1000)})
	if len(ack.AssignedClientID) == 0 || n.b.lookup(string(ack.AssignedClientID)) == nil {
		t.Errorf("assigned %q", ack.AssignedClientID)
	}
	if ack.ServerKeepAlive != 60 {
		t.Errorf("server keep alive %d", ack.ServerKeepAlive)
	}
	for id, want := range map[mqtt.PropertyID]uint32{
		mqtt.PropSessionExpiryInterval: 100, mqtt.PropReceiveMaximum: DefaultReceiveMaximum,
		mqtt.PropTopicAliasMaximum: DefaultTopicAliases, mqtt.PropMaximumPacketSize: DefaultMaxPacketSize,
	} {
		if v, _ := find(ack.Properties, id); v != want {
			t.Errorf("property %d is %d, want %d", id, v, want)
		}
	}
	node := ""
	for p := range ack.Properties.All() {
		if p.ID == mqtt.PropUserProperty {
			node = string(p.Key) + "=" + string(p.Value)
		}
	}
	if node != "node=n1" {
		t.Errorf("user property %q", node)
	}
	d.disconnect()
}

// A limit that is zero says what session.Limits says of it, and not a default.
func TestZeroLimitsMeanWhatTheySay(t *testing.T) {
	n := newNode(t, func(o *Options) { o.Limits = session.Limits{} })
	aliases := mqtt.Properties(nil).AppendUint(mqtt.PropTopicAliasMaximum, 10)
	d, ack := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "d", CleanStart: true, KeepAlive: 600, Properties: aliases})
	for _, id := range []mqtt.PropertyID{mqtt.PropTopicAliasMaximum, mqtt.PropReceiveMaximum, mqtt.PropServerKeepAlive} {
		if v, found := find(ack.Properties, id); found {
			t.Errorf("property %d is announced with %d", id, v)
		}
	}
	if v, _ := find(ack.Properties, mqtt.PropMaximumPacketSize); v != DefaultMaxPacketSize {
		t.Errorf("Maximum Packet Size %d", v) // there has to be one
	}
	d.subscribe(1, "t")
	const many = 2 * DefaultInflight // not acknowledged: no bound on what is in flight
	p, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "p", CleanStart: true})
	p.flood("t", many)
	for range many {
		m := d.publish()
		if m.TopicAlias != 0 || string(m.Topic) != "t" {
			t.Fatalf("topic %q, alias %d", m.Topic, m.TopicAlias)
		}
	}
	d.send(mqtt.AppendPublish(nil, mqtt.V5, mqtt.Publish{
		Topic: []byte("t"), Properties: mqtt.Properties(nil).AppendUint(mqtt.PropTopicAlias, 1),
	}))
	if told := d.gone(); told != mqtt.TopicAliasInvalid {
		t.Errorf("told %s for an alias", told)
	}
}

func TestSilenceBeyondKeepAliveEndsTheConnection(t *testing.T) {
	n := newNode(t)
	d, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "d", KeepAlive: 1})
	begun := time.Now()
	if told := d.gone(); told != mqtt.KeepAliveTimeout {
		t.Errorf("told %s", told)
	}
	if took := time.Since(begun); took < 1400*time.Millisecond || took > 5*time.Second {
		t.Errorf("after %v", took)
	}
	if e := <-n.ends; e.Why != Silent || e.By != ByClient {
		t.Errorf("end %+v", e)
	}
}

func TestTopicAliasesBothWays(t *testing.T) {
	n := newNode(t)
	s, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "s", CleanStart: true, Properties: property(mqtt.PropTopicAliasMaximum, 1)})
	s.subscribe(0, "#")
	p, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "p", CleanStart: true})
	p.send(mqtt.AppendPublish(nil, mqtt.V5, mqtt.Publish{Topic: []byte("a/long/topic"), Properties: property(mqtt.PropTopicAlias, 7)}))
	p.send(mqtt.AppendPublish(nil, mqtt.V5, mqtt.Publish{Properties: property(mqtt.PropTopicAlias, 7)}))
	p.sendPublish(0, 0, "another/topic", "")
	p.sendPublish(0, 0, "a/long/topic", "")
	var got []string
	for range 4 {
		m := s.publish()
		got = append(got, fmt.Sprintf("%s:%d", m.Topic, m.TopicAlias))
	}
	if want := []string{"a/long/topic:1", ":1", "another/topic:0", ":1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWhatIsTooLargeForAClientIsNotSentToIt(t *testing.T) {
	n := newNode(t)
	s, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "s", CleanStart: true, Properties: property(mqtt.PropMaximumPacketSize, 100)})
	s.subscribe(2, "#")
	p, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "p", CleanStart: true})
	for qos := range byte(3) {
		p.sendPublish(qos, uint16(qos)+1, "t", strings.Repeat("x", 100))
		p.sendPublish(qos, uint16(qos)+4, "t", "small")
		if m := s.publish(); string(m.Payload) != "small" || m.QoS != qos {
			t.Errorf("got %d bytes with QoS %d", len(m.Payload), m.QoS)
		}
	}
	eventually(t, "they are counted", func() bool { return n.b.Stats().Dropped.TooLarge == 3 })
}

func TestSubscriptionOptions(t *testing.T) {
	n := newNode(t)
	d, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "d", CleanStart: true})
	p, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "p", CleanStart: true})
	id := func(v uint32) mqtt.Properties { return property(mqtt.PropSubscriptionIdentifier, v) }
	d.subscribeWith(id(1), mqtt.Subscription{Filter: []byte("a/+"), QoS: 0, NoLocal: true})
	d.subscribeWith(id(2), mqtt.Subscription{Filter: []byte("a/#"), QoS: 1, RetainAsPublished: true, NoLocal: true})

	p.send(mqtt.AppendPublish(nil, mqtt.V5, mqtt.Publish{QoS: 2, PacketID: 1, Retain: true, Topic: []byte("a/b"), Payload: []byte("x")}))
	m := d.publish()
	var ids []uint32
	for q := range m.Properties.All() {
		if q.ID == mqtt.PropSubscriptionIdentifier {
			ids = append(ids, q.Uint)
		}
	}
	slices.Sort(ids)
	if m.QoS != 1 || !m.Retain || !slices.Equal(ids, []uint32{1, 2}) {
		t.Errorf("overlapping: QoS %d, retain %v, identifiers %v", m.QoS, m.Retain, ids)
	}
	d.sendAck(mqtt.TypePuback, m.PacketID)
	d.sendPublish(0, 0, "a/own", "") // No Local
	d.quiet()

	for _, test := range []struct {
		handling mqtt.RetainHandling
		again    bool
		want     bool
	}{
		{mqtt.SendRetained, false, true}, {mqtt.SendRetained, true, true},
		{mqtt.SendRetainedIfNew, false, true}, {mqtt.SendRetainedIfNew, true, false},
		{mqtt.DontSendRetained, false, false},
	} {
		filter := fmt.Sprintf("+/b%s", strings.Repeat("/#", 0))
		if !test.again {
			d.send(mqtt.AppendUnsubscribe(nil, mqtt.V5, mqtt.Unsubscribe{PacketID: 9, Filters: mqtt.Filters(nil).Append([]byte(filter))}))
			d.next(mqtt.TypeUnsuback)
		}
		d.subscribeWith(nil, mqtt.Subscription{Filter: []byte(filter), RetainHandling: test.handling})
		if test.want {
			if m := d.publish(); !m.Retain {
				t.Errorf("%+v: without RETAIN", test)
			}
		}
		d.quiet()
	}
}

// C024, with shares and retained messages.
func TestWildcardsDoNotMatchDollarTopics(t *testing.T) {
	names := []string{"$SYS/broker/x", "$internal/x", "sport", "sport/", "/sport", "a//b"}
	matches := map[string][]string{
		"#": names[2:], "+/#": names[2:], "+/broker/#": nil, "$SYS/#": names[:1], "sport/#": names[2:4],
		"+/+": {"sport/", "/sport"}, "/+": {"/sport"}, "a/+/b": {"a//b"}, "+/x": nil,
	}
	for filter, want := range matches {
		for _, shared := range []bool{false, true} {
			n := newNode(t)
			s, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "s", CleanStart: true})
			f := filter
			if shared {
				f = "$share/g/" + filter
			}
			s.subscribe(1, f, "end")
			p, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "p", CleanStart: true})
			for i, name := range append(slices.Clone(names), "end") {
				p.send(mqtt.AppendPublish(nil, mqtt.V5, mqtt.Publish{QoS: 1, PacketID: uint16(i + 1), Retain: true, Topic: []byte(name), Payload: []byte("x")}))
			}
			var got []string
			for {
				m := s.publish()
				if string(m.Topic) == "end" {
					break
				}
				got = append(got, string(m.Topic))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s got %q, want %q", f, got, want)
			}
			if shared {
				continue
			}
			for range names {
				p.ack(mqtt.TypePuback)
			}
			r, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "r", CleanStart: true})
			r.subscribe(0, filter)
			got = nil
			for range want {
				got = append(got, string(r.publish().Topic))
			}
			slices.Sort(got)
			sorted := slices.Clone(want)
			slices.Sort(sorted)
			if filter != "#" && filter != "+/#" && !slices.Equal(got, sorted) { // those have "end", too
				t.Errorf("retained: %s got %q, want %q", filter, got, want)
			}
		}
	}
}

func TestOverloadOfOneSessionIsBounded(t *testing.T) {
	overflow := func(o session.Overflow) func(*Options) {
		return func(opts *Options) { opts.Limits.Queued, opts.Limits.Overflow = 10, o }
	}
	for _, test := range []struct {
		name        string
		policy      session.Overflow
		first, last string
		refused     int
	}{
		{"drop newest", session.DropNewest, "0", "9", 0},
		{"drop oldest", session.DropOldest, "20", "29", 0},
		{"refuse", session.Refuse, "0", "9", 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newNode(t, overflow(test.policy))
			o := mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "s", Properties: expiring(60)}
			s, _ := n.connect(o)
			s.subscribe(1, "t")
			s.disconnect()
			p, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "p", CleanStart: true})
			refused := 0
			for i := range 30 {
				p.sendPublish(1, 1, "t", fmt.Sprint(i))
				if a := p.ack(mqtt.TypePuback); a.Reason == mqtt.QuotaExceeded {
					refused++
				}
			}
			s, _ = n.connect(o)
			var got []string
			for range 10 {
				got = append(got, string(s.publish().Payload))
			}
			s.quiet()
			if got[0] != test.first || got[9] != test.last || refused != test.refused {
				t.Errorf("got %s with %d refused", got, refused)
			}
		})
	}
}

// A client that takes nothing costs no more than its queue, and then its
// connection.
func TestASlowSubscriberIsBoundedAndCut(t *testing.T) {
	n := newNode(t, func(o *Options) {
		o.Limits.QueuedBytes = 1 << 20
		o.WriteTimeout = 500 * time.Millisecond
	})
	s, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "s", CleanStart: true})
	s.subscribe(0, "t")
	p, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "p", CleanStart: true})
	payload := strings.Repeat("x", 100<<10)
	for range 300 {
		p.sendPublish(0, 0, "t", payload)
	}
	p.quiet()
	if st := n.b.Stats(); st.QueuedBytes > 1<<20 || st.Dropped.Full == 0 {
		t.Errorf("%d bytes queued, dropped %+v", st.QueuedBytes, st.Dropped)
	}
	eventually(t, "the client is cut", func() bool { return n.b.Stats().Clients == 1 })
}

// A 3.x client knows no Receive Maximum: it is not read from while its messages
// wait for the store.
func TestAPublisherIsSlowedByTheStore(t *testing.T) {
	for _, qos := range []byte{1, 2} {
		n := newNode(t, func(o *Options) { o.Limits.ReceiveMaximum = 10 })
		release := n.store.Hold(0)
		p, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "p", CleanStart: true})
		for i := range 100 {
			p.sendPublish(qos, uint16(i+1), "t", "")
		}
		eventually(t, "it is stopped", func() bool { return n.b.Stats().Received[qos] == 11 })
		p.silent()
		if got := n.b.Stats().Received[qos]; got != 11 {
			t.Errorf("%d were read", got)
		}
		release()
		for range 100 {
			p.any()
		}
	}
}

func TestAClientThatReadsNoAnswersIsNotReadFrom(t *testing.T) {
	n := newNode(t, func(o *Options) { o.WriteTimeout = 300 * time.Millisecond })
	d, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "d", CleanStart: true})
	pings := make([]byte, 0, 64<<10)
	for len(pings) < cap(pings) {
		pings = mqtt.AppendPingreq(pings)
	}
	for {
		if _, err := d.Write(pings); err != nil {
			break
		}
		l := n.b.lookup("d")
		if l == nil {
			break
		}
		l.mu.Lock()
		if l.link != nil && len(l.link.control) > 2*mostControl+(4<<10) {
			t.Fatalf("%d bytes wait", len(l.link.control))
		}
		l.mu.Unlock()
	}
}
