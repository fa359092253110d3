package broker

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

func publisher(n *node) *device {
	n.t.Helper()
	p, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "publisher-" + n.name, CleanStart: true})
	return p
}

// has says whether a node holds a session, and whether its client is connected
// there.
func (n *node) has(id string) (session, online bool) {
	cl := n.b.lookup(id)
	if cl == nil {
		return false, false
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.ses != nil, cl.link != nil
}

// settledIn waits until a session is all in its record.
func (n *node) settledIn(id string) {
	n.t.Helper()
	eventually(n.t, "the record is written", func() bool {
		cl := n.b.lookup(id)
		cl.mu.Lock()
		defer cl.mu.Unlock()
		return cl.ses.Checkpoint() == 0 && !cl.record.writing
	})
}

func TestASessionMovesToTheNodeThatItsClientConnectsTo(t *testing.T) {
	for _, v := range versions {
		t.Run(v.String(), func(t *testing.T) {
			n := newCluster(t, 3)
			o := mqtt.ConnectOptions{Version: v, ClientID: "c"}
			if v == mqtt.V5 {
				o.Properties = expiring(60)
			}
			old, _ := n[0].connect(o)
			old.subscribe(1, "q/#")
			p := publisher(n[1])
			p.sendPublish(1, 1, "q/1", "unacknowledged")
			p.ack(mqtt.TypePuback)
			first := old.publish()
			c, ack := n[2].connect(o)
			if !ack.SessionPresent && v != mqtt.V31 { // whose CONNACK does not tell
				t.Error("session not present")
			}
			if told := old.gone(); v == mqtt.V5 && told != mqtt.SessionTakenOver {
				t.Errorf("the old connection was told %s", told)
			}
			if session, _ := n[0].has("c"); session {
				t.Error("the old node still has the session")
			}
			again := c.publish()
			if !again.Dup || again.PacketID != first.PacketID || string(again.Payload) != "unacknowledged" {
				t.Errorf("got %+v", again)
			}
			c.sendAck(mqtt.TypePuback, again.PacketID)
			p.sendPublish(1, 2, "q/2", "new")
			p.ack(mqtt.TypePuback)
			if m := c.publish(); m.Dup || string(m.Payload) != "new" {
				t.Errorf("got %+v", m)
			}
			c.quiet()
		})
	}
}

func TestASessionThatEndsWithItsConnectionHasOneOwnerToo(t *testing.T) {
	n := newCluster(t, 3)
	o := mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "c", CleanStart: true}
	old, _ := n[0].connect(o)
	fresh, ack := n[1].connect(o)
	if ack.SessionPresent {
		t.Error("session present")
	}
	if told := old.gone(); told != mqtt.SessionTakenOver {
		t.Errorf("told %s", told)
	}
	fresh.disconnect()
	eventually(t, "nothing is left", func() bool { return n[0].records(cluster.Sessions) == 0 })
}

func TestWhatWasQueuedOnAnotherNodeComesInOrder(t *testing.T) {
	n := newCluster(t, 3)
	o := mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "c"}
	c, _ := n[0].connect(o)
	c.subscribe(1, "q")
	c.disconnect()
	p := publisher(n[1])
	const count = 500
	p.flood("q", count)
	c, _ = n[2].connect(o)
	next := 0
	read := func(to int) {
		t.Helper()
		for ; next < to; next++ {
			m := c.publish()
			if string(m.Payload) != strconv.Itoa(next) {
				t.Fatalf("message %d is %s", next, m.Payload)
			}
			c.sendAck(mqtt.TypePuback, m.PacketID)
		}
	}
	read(count / 2)
	c.Close()
	c, _ = n[0].connect(o)
	m := c.publish() // acknowledgements on their way may have been lost
	next, _ = strconv.Atoi(string(m.Payload))
	c.sendAck(mqtt.TypePuback, m.PacketID)
	next++
	read(count)
}

func TestSomeoneElsesSessionIsNotTakenOver(t *testing.T) {
	n := newCluster(t, 3, func(o *Options) {
		o.Authenticate = func(c Credentials) (string, mqtt.Reason) { return string(c.Username), mqtt.Success }
	})
	o := mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "c", Properties: expiring(60), Username: []byte("alice")}
	alice, _ := n[0].connect(o)
	o.Username = []byte("mallory")
	if _, ack := n[1].connect(o); ack.Reason() != mqtt.NotAuthorized {
		t.Errorf("answer %s", ack.Reason())
	}
	alice.quiet()
	n[0].crash()
	n[1].sees(2)
	if _, ack := n[1].connect(o); ack.Reason() != mqtt.NotAuthorized {
		t.Errorf("answer %s when its node is lost", ack.Reason())
	}
	o.Username = []byte("alice")
	if _, ack := n[2].connect(o); ack.Reason() != mqtt.Success || !ack.SessionPresent {
		t.Errorf("answer %+v", ack)
	}
}

func TestQoS2IsNotStoredTwiceWhenItsPublisherMoves(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprintf("crash %v", crash), func(t *testing.T) {
			n := newCluster(t, 3)
			s, _ := n[2].connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "s"})
			s.subscribe(2, "q")
			o := mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "p"}
			p, _ := n[0].connect(o)
			p.sendPublish(2, 7, "q", "once")
			p.ack(mqtt.TypePubrec)
			if crash {
				n[0].crash()
			}
			p, _ = n[1].connect(o)
			p.send(mqtt.AppendPublish(nil, p.v, mqtt.Publish{Dup: true, QoS: 2, PacketID: 7, Topic: []byte("q"), Payload: []byte("once")}))
			p.ack(mqtt.TypePubrec)
			p.sendAck(mqtt.TypePubrel, 7)
			p.ack(mqtt.TypePubcomp)
			p.sendPublish(2, 7, "q", "another")
			p.ack(mqtt.TypePubrec)
			for _, want := range []string{"once", "another"} {
				if m := s.publish(); string(m.Payload) != want {
					t.Errorf("got %s, want %s", m.Payload, want)
				}
			}
			s.quiet()
			if got := n[1].records(cluster.Inbound2); got != 1 {
				t.Errorf("%d records of QoS 2 publications", got)
			}
		})
	}
}

func TestALostNodesSessionsAreTakenIn(t *testing.T) {
	n := newCluster(t, 3)
	watcher, _ := n[1].connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "watcher", CleanStart: true})
	watcher.subscribe(1, "lwt/#")
	const clients = 20
	for i := range clients {
		w := will(0)
		w.Topic, w.QoS = fmt.Sprint("lwt/", i), 1
		o := mqtt.ConnectOptions{Version: mqtt.V5, ClientID: fmt.Sprint("c", i), Will: w}
		if i%2 == 0 {
			o.Properties = expiring(1)
		}
		n[0].connect(o)
	}
	n[0].crash()
	seen := make(map[string]int)
	for range clients {
		m := watcher.publish()
		watcher.sendAck(mqtt.TypePuback, m.PacketID)
		seen[string(m.Topic)]++
	}
	for topic, times := range seen {
		if times != 1 {
			t.Errorf("%s came %d times", topic, times)
		}
	}
	eventually(t, "all sessions but the watcher's have ended", func() bool { return n[1].records(cluster.Sessions) == 1 })
	watcher.quiet()
}

func TestANodeThatIsBackHasItsSessionsAgain(t *testing.T) {
	n := newCluster(t, 3)
	o := mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "c"}
	c, _ := n[0].connect(o)
	c.subscribe(1, "q")
	c.disconnect()
	n[0].settledIn("c")
	n[0].crash()
	eventually(t, "one of the others looks after the session", func() bool {
		b, _ := n[1].has("c")
		c, _ := n[2].has("c")
		return b || c
	})
	p := publisher(n[1])
	p.sendPublish(1, 1, "q", "kept")
	p.ack(mqtt.TypePuback)
	n[0].join(3)
	eventually(t, "the session is where it was, and only there", func() bool {
		a, _ := n[0].has("c")
		b, _ := n[1].has("c")
		c, _ := n[2].has("c")
		return a && !b && !c
	})
	n[0].sees(3)
	c, _ = n[0].connect(o)
	if m := c.publish(); string(m.Payload) != "kept" {
		t.Errorf("got %s", m.Payload)
	}
}

func TestANodeThatWasSilentLosesWhatOthersHaveTaken(t *testing.T) {
	n := newCluster(t, 3)
	o := mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "c", Properties: expiring(60)}
	old, _ := n[0].connect(o)
	old.subscribe(1, "q")
	n[0].settledIn("c")
	cut := func(is bool) {
		n[0].cluster.Cut("a", "b", is)
		n[0].cluster.Cut("a", "c", is)
	}
	cut(true)
	n[0].sees(1)
	n[1].sees(2)
	if ready, why := n[0].b.Ready(); n[0].b.view.Load().Quorum || ready {
		t.Errorf("ready alone: %v", why)
	}
	if _, ack := n[0].connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "x"}); ack.Reason() != mqtt.ServerUnavailable {
		t.Errorf("alone it answers %s", ack.Reason())
	}
	if _, ack := n[0].connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "x"}); ack.Reason() != mqtt.ServerUnavailable {
		t.Errorf("alone it answers %s", ack.Reason())
	}
	c, ack := n[1].connect(o)
	if !ack.SessionPresent {
		t.Error("session not present")
	}
	cut(false)
	if told := old.gone(); told != mqtt.SessionTakenOver {
		t.Errorf("told %s", told)
	}
	p := publisher(n[2])
	p.sendPublish(1, 1, "q", "x")
	p.ack(mqtt.TypePuback)
	if m := c.publish(); string(m.Payload) != "x" {
		t.Errorf("got %s", m.Payload)
	}
}

func TestClientsOfANodeThatIsCutOffAreLetGo(t *testing.T) {
	n := newCluster(t, 3)
	c, _ := n[0].connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "c", Properties: expiring(60)})
	n[0].cluster.Cut("a", "b", true)
	n[0].cluster.Cut("a", "c", true)
	if told := c.gone(); told != mqtt.UseAnotherServer {
		t.Errorf("told %s", told)
	}
}

func TestQoS0ReachesTheClientsOfAllNodesOnce(t *testing.T) {
	n := newCluster(t, 3)
	var subscribers []*device
	for _, n := range n {
		s, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "s-" + n.name, CleanStart: true})
		s.subscribe(0, "q/+")
		subscribers = append(subscribers, s)
	}
	p := publisher(n[0])
	const count = 200
	for i := range count {
		p.sendPublish(0, 0, "q/x", strconv.Itoa(i))
	}
	for _, s := range subscribers {
		for i := range count {
			if m := s.publish(); string(m.Payload) != strconv.Itoa(i) {
				t.Fatalf("message %d is %s", i, m.Payload)
			}
		}
		s.quiet()
	}
}

// C023: whoever subscribes after a PUBACK gets what it acknowledged, on any node.
func TestRetainedMessagesAreTheSameOnAllNodes_C023(t *testing.T) {
	n := newCluster(t, 3)
	p, _ := n[0].connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "p", CleanStart: true})
	for i := range 50 {
		value := strconv.Itoa(i)
		p.send(mqtt.AppendPublish(nil, p.v, mqtt.Publish{QoS: 1, Retain: true, PacketID: uint16(i + 1), Topic: []byte("r"), Payload: []byte(value)}))
		p.ack(mqtt.TypePuback)
		for _, n := range n {
			s, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "s", CleanStart: true})
			s.subscribe(0, "r")
			if m := s.publish(); !m.Retain || string(m.Payload) != value {
				t.Fatalf("on node %s: retained %v, %s instead of %s", n.name, m.Retain, m.Payload, value)
			}
			s.Close()
		}
	}
}

// An answer to a question for a session may be lost, or whoever asked.
func TestASessionThatNobodyCameForIsTakenBack(t *testing.T) {
	n := newCluster(t, 3)
	o := mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "c"}
	c, _ := n[0].connect(o)
	c.subscribe(1, "q")
	n[0].settledIn("c")
	got := n[1].b.ask("a", take{ClientID: "c"})
	if got.Outcome != handedOver || len(got.Record) == 0 {
		t.Fatalf("answer %+v", got)
	}
	c.gone()
	if again := n[2].b.ask("a", take{ClientID: "c"}); again.Outcome != handedOver || again.Revision != got.Revision {
		t.Errorf("asked again, it answers %+v", again)
	}
	p := publisher(n[1])
	p.sendPublish(1, 1, "q", "meanwhile")
	p.ack(mqtt.TypePuback)
	eventually(t, "the session is back", func() bool { is, _ := n[0].has("c"); return is })
	c, ack := n[2].connect(o)
	if m := c.publish(); !ack.SessionPresent || string(m.Payload) != "meanwhile" {
		t.Errorf("session present %v, got %s", ack.SessionPresent, m.Payload)
	}
}
