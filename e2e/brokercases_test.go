package e2e

import (
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// replies is what came from the broker up to a moment.
type replies struct {
	types   []mqtt.PacketType
	connack mqtt.Connack
	ended   bool
}

// take reads until the connection ends or PINGRESP comes.
func take(d *device, v mqtt.Version) (r replies, err error) {
	for {
		p, err := d.packet()
		if isOver(err) {
			r.ended = true
			return r, nil
		}
		if err != nil {
			return r, err
		}
		kind := mqtt.PacketType(p[0] >> 4)
		r.types = append(r.types, kind)
		switch kind {
		case mqtt.TypeConnack:
			if r.connack, _, err = mqtt.ParseConnack(p, v); err != nil {
				return r, err
			}
		case mqtt.TypePingresp:
			return r, nil
		}
	}
}

func (r replies) String() string {
	s := fmt.Sprint(r.types)
	if len(r.types) > 0 && r.types[0] == mqtt.TypeConnack {
		s = fmt.Sprintf("%s, code %02x, assigned %q", s, r.connack.Code, r.connack.AssignedClientID)
	}
	if r.ended {
		s += ", close"
	}
	return s
}

// is says whether a result that a case's file names has come.
func (r replies) is(result string) bool {
	answered := len(r.types) > 0 && r.types[0] == mqtt.TypeConnack
	accepted := answered && r.connack.Code == 0 && !r.ended
	refused := answered && len(r.types) == 1 && r.connack.Code != 0 && r.ended
	switch result {
	case "accept":
		return accepted
	case "accept+assigned-id":
		return accepted && len(r.connack.AssignedClientID) > 0
	case "close":
		return len(r.types) == 0 && r.ended
	case "accept-or-auth-result", "auth-result": // this broker lets everyone in
		return accepted
	}
	code, ok := strings.CutPrefix(strings.TrimSuffix(result, ",close"), "connack=")
	return ok && refused && fmt.Sprintf("%02x", r.connack.Code) == code
}

// version is what a CONNECT speaks, the answer's form with it.
func (s stream) version() mqtt.Version {
	c, _, err := mqtt.ParseConnect(s.bytes, 1<<20)
	if err != nil { // the name is followed by the level
		return mqtt.Version(s.bytes[2+2+int(s.bytes[3])] & 0x7f)
	}
	return c.Version
}

// C001 to C004 and C025: what the broker answers to a first packet.
func TestEachFirstPacketOfTheFieldCasesIsAnsweredAsItShouldBe(t *testing.T) {
	b := startBroker(t, rig.BrokerOptions{})
	for _, name := range []string{"C001", "C002", "C003", "C004", "C025"} {
		for _, s := range fieldCase(t, name) {
			t.Run(name+", "+s.label, func(t *testing.T) {
				d := must(way{addr: b.Addr()}.dial(t))(t)
				// PINGREQ proves that one who is let in stays in.
				if _, err := d.Write(mqtt.AppendPingreq(slices.Clone(s.bytes))); err != nil {
					t.Fatal(err)
				}
				r, err := take(d, s.version())
				if err != nil || !slices.ContainsFunc(strings.Split(s.want, "|"), r.is) {
					t.Errorf("%v, %v; want %s", r, err, s.want)
				}
			})
		}
	}
}

// C005: a CONNECT cut in two at every byte, and into single bytes.
func TestACONNECTMayBeCutAnywhere(t *testing.T) {
	certs := newPKI(t)
	own := certs.server(t, "broker", rig.ECDSA)
	b := startBroker(t, rig.BrokerOptions{Listeners: []rig.BrokerListener{
		{Name: "plain"}, {Name: "tls", TLS: &rig.MosquittoTLS{Cert: own.Cert, Key: own.Key}},
	}})
	for listener, settings := range map[string]*tls.Config{"plain": nil, "tls": certs.trust()} {
		for _, s := range fieldCase(t, "C005") {
			t.Run(listener+", "+s.label, func(t *testing.T) {
				w := way{addr: b.Listener(listener), tls: settings}
				cut := make([]*device, len(s.bytes))
				for k := range cut {
					cut[k] = must(w.dial(t))(t)
					if _, err := cut[k].Write(s.bytes[:k]); err != nil {
						t.Fatal(err)
					}
				}
				<-time.After(20 * time.Millisecond) // the pause that is the point of it
				for k, d := range cut {
					if _, err := d.Write(s.bytes[k:]); err != nil {
						t.Fatal(err)
					}
					if p, err := d.packet(); err != nil || mqtt.PacketType(p[0]>>4) != mqtt.TypeConnack || p[3] != 0 {
						t.Fatalf("cut at %d: % x, %v", k, p, err)
					}
				}
				d := must(w.dial(t))(t)
				for i := range s.bytes {
					if _, err := d.Write(s.bytes[i : i+1]); err != nil {
						t.Fatal(err)
					}
				}
				if p, err := d.packet(); err != nil || mqtt.PacketType(p[0]>>4) != mqtt.TypeConnack || p[3] != 0 {
					t.Fatalf("byte by byte: % x, %v", p, err)
				}
			})
		}
	}
}

// C006: packets right behind CONNECT, in one write.
func TestPacketsRightBehindCONNECTCountAfterItOnly(t *testing.T) {
	b := startBroker(t, rig.BrokerOptions{})
	cases := map[string]stream{}
	for _, s := range fieldCase(t, "C006") {
		cases[s.label] = s
	}
	watcher := way{addr: b.Addr()}.guest(t, "watcher")
	watcher.wants(t, 0, "#")

	d := must(way{addr: b.Addr()}.dial(t))(t)
	if _, err := d.Write(cases["rejected-connect-then-publish"].bytes); err != nil {
		t.Fatal(err)
	}
	if r, err := take(d, mqtt.V311); err != nil || !r.is("connack=02,close") {
		t.Errorf("a refused CONNECT: %v, %v", r, err)
	}

	d = must(way{addr: b.Addr()}.dial(t))(t)
	if _, err := d.Write(cases["connect-subscribe-publish-ping"].bytes); err != nil {
		t.Fatal(err)
	}
	var got []mqtt.PacketType
	for range 4 {
		p := must(d.packet())(t)
		got = append(got, mqtt.PacketType(p[0]>>4))
	}
	slices.Sort(got[2:]) // a message and an answer, which owe each other no order
	if want := []mqtt.PacketType{mqtt.TypeConnack, mqtt.TypeSuback, mqtt.TypePublish, mqtt.TypePingresp}; !slices.Equal(got, want) {
		t.Errorf("received %v, want %v", got, want)
	}
	if m := watcher.hears(t); m.Topic != "t/a" {
		t.Errorf("%q was published behind a refused CONNECT", m.Topic)
	}
}

func TestAWillAtATakeoverIsPublishedWhenTheSpecificationSaysSo(t *testing.T) {
	b := startBroker(t, rig.BrokerOptions{})
	w := way{addr: b.Addr()}
	willsAtTakeovers(t, w, w, w)
}

// willsAtTakeovers is C022: what becomes of a will when its session is taken over,
// here by a client that comes another way.
func willsAtTakeovers(t *testing.T, holders, takers, watchers way) {
	cases := map[string]stream{}
	for _, s := range fieldCase(t, "C022") {
		cases[s.label] = s
	}
	watcher := &speaker{device: must(watchers.dial(t))(t), v: mqtt.V311}
	watcher.send(t, cases["watcher"].bytes)
	watcher.next(t, mqtt.TypeConnack)
	watcher.next(t, mqtt.TypeSuback)
	markers := watchers.guest(t, "markers")

	for _, c := range []struct {
		holder, takeover string
		will, present    bool
	}{
		{"holder-v311", "takeover-v311", true, true},
		{"holder-v5-exp60-delay0", "takeover-v5-cleanstart0", true, true},
		{"holder-v5-exp60-delay0", "takeover-v5-cleanstart1", true, false},
		{"holder-v5-exp0-delay5", "takeover-v5-cleanstart0", true, false},
		{"holder-v5-exp0-delay5", "takeover-v5-cleanstart1", true, false},
		{"holder-v5-exp60-delay5", "takeover-v5-cleanstart1", true, false},
		{"holder-v5-exp60-delay5", "takeover-v5-cleanstart0", false, true},
	} {
		t.Run(c.holder+", "+c.takeover, func(t *testing.T) {
			holders.guest(t, "w").leave() // no session is left of what was before
			open := func(w way, label string) (*speaker, mqtt.Connack) {
				s := &speaker{device: must(w.dial(t))(t), v: cases[label].version()}
				s.send(t, cases[label].bytes)
				ack, _, err := mqtt.ParseConnack(s.next(t, mqtt.TypeConnack), s.v)
				if err != nil || !ack.Accepted() {
					t.Fatalf("%s: 0x%02x, %v", label, ack.Code, err)
				}
				return s, ack
			}
			holder, _ := open(holders, c.holder)
			_, ack := open(takers, c.takeover)
			if ack.SessionPresent != c.present {
				t.Errorf("session present is %t, want %t", ack.SessionPresent, c.present)
			}
			if holder.v == mqtt.V5 {
				d, _, err := mqtt.ParseDisconnect(holder.next(t, mqtt.TypeDisconnect), holder.v, mqtt.FromServer)
				if err != nil || d.Reason != mqtt.SessionTakenOver {
					t.Errorf("the holder reads %v, %v", d.Reason, err)
				}
			}
			if err := holder.end(); err != nil && !isOver(err) {
				t.Errorf("the holder is still connected: %v", err)
			}
			if !c.will {
				<-time.After(6 * time.Second) // past its delay
				markers.says(t, rig.Message{Topic: "lwt/w", Payload: "marker", QoS: 1})
			}
			want := map[bool]string{true: "old", false: "marker"}[c.will]
			if m := watcher.hears(t); m.Payload != want {
				t.Errorf("%q came, want %q", m.Payload, want)
			}
		})
	}
	markers.says(t, rig.Message{Topic: "lwt/w", Payload: "end", QoS: 1})
	if m := watcher.hears(t); m.Payload != "end" {
		t.Errorf("%q came, too: a will was published twice", m.Payload)
	}
}

// C023 on one node, the restart in the middle.
func TestRetainedMessagesAreTheNewestBeforeAndAfterACrash(t *testing.T) {
	const topics = 100
	b := startBroker(t, rig.BrokerOptions{})
	w := way{addr: b.Addr()}
	topic := func(n int) string { return fmt.Sprintf("kept/%d", n) }

	publisher := w.guest(t, "publisher")
	for n := range topics {
		for _, payload := range []string{"old", "new"} {
			publisher.says(t, rig.Message{Topic: topic(n), Payload: payload, QoS: 1, Retained: true})
		}
		late := w.guest(t, fmt.Sprint("late-", n)) // as soon as PUBACK is there
		late.wants(t, 1, topic(n))
		if m := late.hears(t); m.Payload != "new" || !m.Retained {
			t.Fatalf("%+v right after its acknowledgement", m)
		}
		late.leave()
		if n%10 == 0 {
			publisher.says(t, rig.Message{Topic: topic(n), QoS: 1 + n/10%2, Retained: true}) // deletes it
		}
	}
	for lives := range 3 {
		if lives > 0 {
			crash(t, b)
			restart(t, b)
		}
		s := w.guest(t, "after")
		s.wants(t, 1, "kept/+")
		got := map[string]string{}
		for range topics - topics/10 {
			m := s.hears(t)
			if !m.Retained || m.Payload != "new" || got[m.Topic] != "" {
				t.Fatalf("after %d crashes: %+v", lives, m)
			}
			got[m.Topic] = m.Payload
		}
		for n := 0; n < topics; n += 10 {
			if got[topic(n)] != "" {
				t.Errorf("after %d crashes: %s is back", lives, topic(n))
			}
		}
		w.guest(t, "marker").says(t, rig.Message{Topic: "kept/marker", QoS: 1})
		if more := s.hearsUntil(t, "kept/marker"); len(more) > 0 {
			t.Errorf("after %d crashes %d more came: %+v", lives, len(more), more[0])
		}
	}

	overwriteWhileOthersSubscribe(t, true, w, w)
}

// overwriteWhileOthersSubscribe is the part of C023 where none may end up with an
// older one. On one node none sees an older one at all; a node of several may be
// behind with what is not retained.
func overwriteWhileOthersSubscribe(t *testing.T, oneNode bool, publishers way, subscribers ...way) {
	publisher := publishers.guest(t, "publisher")
	const rounds = 200
	written := make(chan struct{})
	go func() {
		defer close(written)
		for n := range rounds {
			publisher.says(t, rig.Message{Topic: "hot", Payload: fmt.Sprintf("%04d", n), QoS: 1, Retained: true})
		}
	}()
	var readers []*speaker
	for n := range 50 {
		s := subscribers[n%len(subscribers)].guest(t, fmt.Sprint("reader-", n))
		m := mqtt.Subscribe{PacketID: 1}
		m.Subscriptions = m.Subscriptions.Append(mqtt.Subscription{Filter: []byte("hot")})
		s.send(t, mqtt.AppendSubscribe(nil, s.v, m))
		readers = append(readers, s)
	}
	<-written
	publisher.says(t, rig.Message{Topic: "hot", Payload: "last", QoS: 1, Retained: true})
	for _, s := range readers {
		var all []string
		for len(all) == 0 || all[len(all)-1] != "last" {
			p, err := s.packet()
			if err != nil {
				t.Fatalf("%s: %v after %q", s.id, err, all)
			}
			if mqtt.PacketType(p[0]>>4) == mqtt.TypePublish {
				m, _, err := mqtt.ParsePublish(p, s.v)
				if err != nil {
					t.Fatal(err)
				}
				if oneNode || !m.Retain {
					all = append(all, string(m.Payload))
				} else if string(m.Payload) == "last" {
					break
				}
			}
		}
		if !slices.IsSorted(all) {
			t.Errorf("%s saw an older one behind a newer: %q", s.id, all)
		}
	}
}

func TestWildcardsAndDollarTopicsFollowTheSpecification(t *testing.T) {
	b := startBroker(t, rig.BrokerOptions{})
	w := way{addr: b.Addr()}
	wildcards(t, w, w)
}

// wildcards is C024: which filters match which names, for messages as they come
// and for retained ones.
func wildcards(t *testing.T, publishers way, subscribers ...way) {
	names := []string{"$SYS/broker/x", "$internal/x", "sport", "sport/", "/sport", "a//b", "x/broker/y", "g/x"}
	matches := map[string][]string{
		"#":                   {"sport", "sport/", "/sport", "a//b", "x/broker/y", "g/x"},
		"+/#":                 {"sport", "sport/", "/sport", "a//b", "x/broker/y", "g/x"},
		"+/broker/#":          {"x/broker/y"},
		"$share/group/#":      {"sport", "sport/", "/sport", "a//b", "x/broker/y", "g/x"},
		"$share/group/+/x":    {"g/x"},
		"$share/group/$SYS/#": {"$SYS/broker/x"},
		"$SYS/#":              {"$SYS/broker/x"},
		"$internal/+":         {"$internal/x"},
		"sport/#":             {"sport", "sport/"},
		"+/+":                 {"sport/", "/sport", "g/x"},
		"/+":                  {"/sport"},
		"a/+/b":               {"a//b"},
		"+":                   {"sport"},
	}
	filters := slices.Sorted(maps.Keys(matches))
	publisher := publishers.guest(t, "publisher")
	// collect gives what came until the session's end marker.
	collect := func(s *speaker, end string) (got []string) {
		publisher.says(t, rig.Message{Topic: end, QoS: 1})
		for _, m := range s.hearsUntil(t, end) {
			if !strings.HasPrefix(m.Topic, "end/") {
				got = append(got, m.Topic)
			}
		}
		slices.Sort(got)
		return got
	}
	subscribe := func(kind string, i int) (s *speaker, end string) {
		end = fmt.Sprintf("end/%s/%d", kind, i)
		s = subscribers[i%len(subscribers)].guest(t, end)
		s.wants(t, 1, end)
		s.wants(t, 1, filters[i])
		return s, end
	}

	live, ends := make([]*speaker, len(filters)), make([]string, len(filters))
	for i := range filters {
		live[i], ends[i] = subscribe("live", i)
	}
	for _, name := range names {
		if r := publisher.says(t, rig.Message{Topic: name, Payload: "kept", QoS: 1, Retained: true}); r >= 0x80 {
			t.Errorf("publish to %s: %v", name, r)
		}
	}
	for i, f := range filters {
		want := slices.Sorted(slices.Values(matches[f]))
		if got := collect(live[i], ends[i]); !slices.Equal(got, want) {
			t.Errorf("%s received %q, want %q", f, got, want)
		}
		if strings.HasPrefix(f, "$share/") {
			want = nil // retained ones are not for shared subscriptions (5 §4.8.2)
		}
		if got := collect(subscribe("late", i)); !slices.Equal(got, want) {
			t.Errorf("%s received the retained %q, want %q", f, got, want)
		}
	}
}
