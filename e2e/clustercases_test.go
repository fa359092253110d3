package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// What holds on one node holds over three, whichever a client comes to.
func TestThreeNodesAreOneBroker(t *testing.T) {
	c := startCluster(t, rig.ClusterOptions{Extra: "durability: 1s\n"})
	must(rig.BuildBroker())(t) // for its commands; not when time counts
	at := [3]way{nodeWay(c.Nodes[0]), nodeWay(c.Nodes[1]), nodeWay(c.Nodes[2])}
	for _, part := range []struct {
		name string
		tell func(t *testing.T, at [3]way)
	}{
		{"C024, wildcards", func(t *testing.T, at [3]way) { wildcards(t, at[0], at[1], at[2]) }}, // before others keep messages
		{"C021, one client id on two nodes", oneClientOnTwoNodes},
		{"C022, wills at takeovers", func(t *testing.T, at [3]way) { willsAtTakeovers(t, at[0], at[1], at[2]) }},
		{"C023, retained messages", retainedOnAllNodes},
		{"the same packet identifier both ways, and a reconnect", samePacketIdentifier},
		{"Receive Maximum of 10, 500 messages in order", receiveMaximumOf10},
		{"20,000 messages for a client that is away", manyForOneAway},
		{"4,000 messages over 66 takeovers", manyOverTakeovers},
		{"a node is drained", func(t *testing.T, _ [3]way) { aNodeIsDrained(t, c) }},
		{"nodes die, come back and are replaced", func(t *testing.T, at [3]way) { nodesAreReplaced(t, c, at) }},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.tell(t, at) }) {
			break // the next would stand on ruins
		}
	}
}

// comesTo connects the client of C021: level 3.1.1 or 5.0 with a session that is
// kept.
func comesTo(w way, t testing.TB, id string, v mqtt.Version) (*speaker, error) {
	o := mqtt.ConnectOptions{Version: v, ClientID: id}
	if v == mqtt.V5 {
		o.Properties = kept
	}
	d, ack, err := w.connect(t, o)
	if err == nil && !ack.Accepted() {
		err = fmt.Errorf("refused with 0x%02x", ack.Code)
	}
	return &speaker{device: d, v: v}, err
}

func oneClientOnTwoNodes(t *testing.T, at [3]way) {
	publisher := at[2].guest(t, "publisher")
	for _, v := range []mqtt.Version{mqtt.V311, mqtt.V5} {
		id := "twice-" + strconv.Itoa(int(v))
		now := must(comesTo(at[0], t, id, v))(t)
		now.wants(t, 2, id)
		n := 0
		delivered := func() {
			t.Helper()
			want := strconv.Itoa(n)
			publisher.says(t, rig.Message{Topic: id, Payload: want, QoS: 1 + n%2})
			if m := now.hears(t); m.Payload != want {
				t.Fatalf("%+v, want %s once", m, want)
			}
			n++
		}
		for i := range 20 {
			old := now
			now = must(comesTo(at[1-i%2], t, id, v))(t)
			letGo := time.Now()
			if v == mqtt.V5 {
				d, _, err := mqtt.ParseDisconnect(old.next(t, mqtt.TypeDisconnect), v, mqtt.FromServer)
				if err != nil || d.Reason != mqtt.SessionTakenOver {
					t.Errorf("the old connection reads %v, %v", d.Reason, err)
				}
			}
			if err := old.end(); err != nil && !isOver(err) {
				t.Errorf("the old connection: %v", err)
			}
			if took := time.Since(letGo); took > time.Second {
				t.Errorf("the old connection is closed %v after the new one's CONNACK", took)
			}
			delivered()
			<-time.After(50 * time.Millisecond) // the case's own pause
		}

		// Both at the same instant: one stays.
		worst := time.Duration(0)
		for range 50 { // with each version
			begun := time.Now()
			var both [2]*speaker
			var errs [2]error
			var wg sync.WaitGroup
			for i := range both {
				wg.Go(func() { both[i], errs[i] = comesTo(at[i], t, id, v) })
			}
			wg.Wait()
			var stay []*speaker
			await(t, "one of two to stay", func() bool {
				stay = stay[:0]
				for i, s := range both {
					if errs[i] == nil {
						if errs[i] = s.ping(); errs[i] == nil {
							stay = append(stay, s)
						}
					}
				}
				return len(stay) < 2
			})
			if len(stay) == 0 {
				t.Fatalf("none of two stays: %v", errs)
			}
			now = stay[0]
			worst = max(worst, time.Since(begun))
		}
		t.Logf("%s: one of two that come at once stays, after %v at most", v, worst.Round(time.Millisecond))
		delivered()
		delivered()
		now.leave()
	}
}

func retainedOnAllNodes(t *testing.T, at [3]way) {
	const topics, rounds, pairs = 100, 20, 4
	var wg sync.WaitGroup
	for pair := range pairs {
		publisher, late := at[0].guest(t, fmt.Sprint("publisher-", pair)), at[1].guest(t, fmt.Sprint("late-", pair))
		wg.Go(func() {
			for round := range rounds {
				for n := pair; n < topics; n += pairs {
					topic, want := fmt.Sprintf("kept/%d", n), strconv.Itoa(round)
					publisher.says(t, rig.Message{Topic: topic, Payload: want, QoS: 1, Retained: true})
					if err := late.looksAt(topic, want); err != nil {
						t.Errorf("as soon as PUBACK is there: %v", err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	overwriteWhileOthersSubscribe(t, false, at[0], at[1], at[2])
	deleter := at[1].guest(t, "deleter")
	for n := range topics / 2 {
		deleter.says(t, rig.Message{Topic: fmt.Sprintf("kept/%d", n), QoS: 1, Retained: true})
	}
	for _, w := range at {
		keptIn(t, w, topics/2, topics, strconv.Itoa(rounds-1))
	}
}

// keptIn looks whether a node has the retained messages from kept/FROM to kept/TO,
// and no others.
func keptIn(t *testing.T, w way, from, to int, payload string) {
	t.Helper()
	s, _ := w.insistent(t, mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "looker", CleanStart: true})
	s.wants(t, 1, "kept/+")
	var got, want []string
	for n := from; n < to; n++ {
		want = append(want, fmt.Sprintf("kept/%d %s", n, payload))
	}
	take := func(m rig.Message) {
		if m.Retained {
			got = append(got, m.Topic+" "+m.Payload)
		}
	}
	for len(got) < len(want) {
		take(s.hears(t))
	}
	w.guest(t, "marker").says(t, rig.Message{Topic: "kept/marker", QoS: 1})
	for _, m := range s.hearsUntil(t, "kept/marker") {
		take(m)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("retained: %q, want %q", got, want)
	}
	s.leave()
}

// The probes that other engines fail, with publisher, subscriber and takeover on
// different nodes.

func samePacketIdentifier(t *testing.T, at [3]way) {
	for _, v := range []mqtt.Version{mqtt.V311, mqtt.V5} {
		for qos := range 2 {
			id := fmt.Sprintf("both-%d-%d", v, qos)
			c := must(comesTo(at[0], t, id, v))(t)
			c.wants(t, byte(1+qos), id)
			at[1].guest(t, "publisher").says(t, rig.Message{Topic: id, Payload: "kept", QoS: 1})
			m, _, err := mqtt.ParsePublish(c.next(t, mqtt.TypePublish), v) // and not acknowledged
			if err != nil {
				t.Fatal(err)
			}
			c.lastID = m.PacketID - 1
			c.says(t, rig.Message{Topic: "out", Payload: "x", QoS: 1 + qos})
			c.reset()
			c = must(comesTo(at[2], t, id, v))(t)
			again, _, err := mqtt.ParsePublish(c.next(t, mqtt.TypePublish), v)
			if err != nil || !again.Dup || again.PacketID != m.PacketID || string(again.Payload) != "kept" {
				t.Errorf("%+v, %v after the reconnect on another node", again, err)
			}
			c.leave()
		}
	}
}

func receiveMaximumOf10(t *testing.T, at [3]way) {
	const window, count = 10, 500
	c, _ := at[0].speak(t, mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "narrow", CleanStart: true,
		Properties: mqtt.Properties(nil).AppendUint(mqtt.PropReceiveMaximum, window)})
	c.wants(t, 1, "narrow")
	at[1].guest(t, "publisher").flood(t, "narrow", count)
	var open []uint16
	for n := range count {
		m, _, err := mqtt.ParsePublish(c.next(t, mqtt.TypePublish), c.v)
		if err != nil || string(m.Payload) != strconv.Itoa(n) {
			t.Fatalf("message %d is %s, %v", n, m.Payload, err)
		}
		if open = append(open, m.PacketID); len(open) == window {
			if err := c.ping(); err != nil {
				t.Fatalf("the window is closed: %v", err)
			}
			for _, id := range open {
				c.send(t, mqtt.AppendAck(nil, c.v, mqtt.Ack{Type: mqtt.TypePuback, PacketID: id}))
			}
			open = nil
		}
	}
}

// flood publishes messages 0 to count-1 with QoS 1, a window of them at a time.
func (s *speaker) flood(t testing.TB, topic string, count int) {
	t.Helper()
	const window = 250
	for n := 0; n < count; {
		var b []byte
		first := n
		for ; n < min(first+window, count); n++ {
			b = mqtt.AppendPublish(b, s.v, mqtt.Publish{QoS: 1, PacketID: uint16(n%65535 + 1), Topic: []byte(topic), Payload: strconv.AppendInt(nil, int64(n), 10)})
		}
		s.send(t, b)
		for range n - first {
			s.next(t, mqtt.TypePuback)
		}
	}
}

func manyForOneAway(t *testing.T, at [3]way) {
	const count = 20_000
	c := must(comesTo(at[0], t, "away", mqtt.V311))(t)
	c.wants(t, 1, "away")
	c.leave()
	at[1].guest(t, "publisher").flood(t, "away", count)
	c = must(comesTo(at[2], t, "away", mqtt.V311))(t)
	for n := range count {
		if m := c.hears(t); m.Payload != strconv.Itoa(n) {
			t.Fatalf("message %d is %s", n, m.Payload)
		}
	}
	c.leave()
}

func manyOverTakeovers(t *testing.T, at [3]way) {
	const count, takeovers = 4000, 66
	c := must(comesTo(at[0], t, "moving", mqtt.V311))(t)
	c.wants(t, 1, "moving")
	publisher := at[1].guest(t, "publisher")
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { publisher.flood(t, "moving", count) })
	next, moved := 0, 0
	for next < count {
		if moved < takeovers && next >= (moved+1)*count/(takeovers+1) {
			moved++
			c = must(comesTo(at[moved%3], t, "moving", mqtt.V311))(t)
		}
		m := c.hears(t)
		n, err := strconv.Atoi(m.Payload)
		if err != nil || n > next {
			t.Fatalf("message %s comes in place of %d, after %d takeovers", m.Payload, next, moved)
		}
		next = max(next, n+1)
	}
	c.leave()
}

// looksAt subscribes, waits for the retained message, and unsubscribes. Another
// value is an error. What was published may come once more as it is, from a log
// that this node is behind with.
func (s *speaker) looksAt(topic, want string) error {
	sub, unsub := mqtt.Subscribe{PacketID: s.nextID()}, mqtt.Unsubscribe{PacketID: s.nextID()}
	sub.Subscriptions = sub.Subscriptions.Append(mqtt.Subscription{Filter: []byte(topic)})
	unsub.Filters = unsub.Filters.Append([]byte(topic))
	if _, err := s.Write(mqtt.AppendSubscribe(nil, s.v, sub)); err != nil {
		return err
	}
	subscribed, retained := false, false
	for {
		p, err := s.packet()
		if err != nil {
			return err
		}
		switch mqtt.PacketType(p[0] >> 4) {
		case mqtt.TypeSuback:
			subscribed = true
		case mqtt.TypePublish:
			m, _, err := mqtt.ParsePublish(p, s.v)
			if err != nil || (m.Retain || string(m.Topic) == topic) && string(m.Topic)+string(m.Payload) != topic+want {
				return fmt.Errorf("%s %s, %v; want %s %s", m.Topic, m.Payload, err, topic, want)
			}
			retained = retained || m.Retain
		case mqtt.TypeUnsuback:
			return nil
		}
		if subscribed && retained {
			subscribed = false // unsubscribe once
			if _, err := s.Write(mqtt.AppendUnsubscribe(nil, s.v, unsub)); err != nil {
				return err
			}
		}
	}
}

func aNodeIsDrained(t *testing.T, c *rig.Cluster) {
	l, addr := before(t, c, "tcp")
	l.run(t)
	awaitAll(t, l, c)
	var clients []*speaker
	for _, id := range ids(30) {
		s, _ := way{addr: addr}.keeper(t, id)
		clients = append(clients, s)
	}
	n := c.Nodes[0]
	awaitStatus(t, n, 0, "HEALTHY")
	out, code := brokerCommand(t, "drain", "--rate", "1000/s", "--admin", n.Admin())
	if code != 0 {
		t.Errorf("broker drain: exit code %d: %s", code, out)
	}
	await(t, "the health-check port to close", func() bool { return refusesConnections(t, n.HealthCheck()) })
	l.awaitState(t, "brokers", n.Options.Name, "down")
	awaitStatus(t, n, 1, "refuses: draining")
	moved := 0
	for _, s := range clients {
		if s.ping() == nil {
			continue
		}
		moved++
		if _, ack := (way{addr: addr}).keeper(t, s.id); !ack.SessionPresent {
			t.Errorf("%s: its session did not move", s.id)
		}
	}
	if moved == 0 {
		t.Error("nobody was on the node that was drained")
	}
	t.Logf("%d of %d clients moved", moved, len(clients))
	if out, code := brokerCommand(t, "drain", "--cancel", "--admin", n.Admin()); code != 0 {
		t.Errorf("broker drain --cancel: exit code %d: %s", code, out)
	}
	l.awaitState(t, "brokers", n.Options.Name, "up")
	awaitStatus(t, n, 0, "HEALTHY")
}

// C023, too: a node that was restarted, and a new one, have what is retained.
func nodesAreReplaced(t *testing.T, c *rig.Cluster, at [3]way) {
	const first, last, payload = 50, 100, "19" // of retainedOnAllNodes
	one, two, three := c.Nodes[0], c.Nodes[1], c.Nodes[2]
	keeper, _ := at[2].keeper(t, "stays")
	keeper.wants(t, 1, "stays")
	crash(t, three)
	awaitStatus(t, one, 1, three.Options.Name+"  LOST")
	crash(t, two)
	awaitStatus(t, one, 3, "NO QUORUM")
	awaitStatus(t, two, 4, "no broker answers")
	await(t, "the health-check port to close", func() bool { return refusesConnections(t, one.HealthCheck()) })
	restart(t, two)
	at[0].insistent(t, mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "publisher", CleanStart: true})
	keptIn(t, at[1], first, last, payload)

	if err := c.Replace(2, "broker-4"); err != nil {
		t.Fatal(err)
	}
	if out, code := brokerCommand(t, "cluster", "remove", three.Options.Name, "--admin", one.Admin()); code != 0 {
		t.Fatalf("broker cluster remove: exit code %d: %s", code, out)
	}
	if err := c.Nodes[2].Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	healthy(t, c)
	awaitStatus(t, c.Nodes[2], 0, "HEALTHY")
	keptIn(t, at[2], first, last, payload)
	if _, ack := at[2].keeper(t, "stays"); !ack.SessionPresent {
		t.Error("a session of the lost node is not on the one in its place")
	}
}
