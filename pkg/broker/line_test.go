package broker

import (
	"strconv"
	"sync"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// slow is a store that keeps back what is to become a record of a QoS 2
// publication, or a retained message, while it is told to.
type slow struct {
	cluster.Store
	mu   sync.Mutex
	is   bool
	held []func()
}

func (s *slow) hold(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.is {
		s.held = append(s.held, f)
		return
	}
	f()
}

func (s *slow) stall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.is = true
}

func (s *slow) goOn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.is = false
	for _, f := range s.held {
		f()
	}
	s.held = nil
}

func (s *slow) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held)
}

func (s *slow) SetRetained(m *cluster.Message, done func(cluster.Revision, error)) {
	s.hold(func() { s.Store.SetRetained(m, done) })
}

func (s *slow) Records(b cluster.Bucket) cluster.Records {
	if b != cluster.Inbound2 {
		return s.Store.Records(b)
	}
	return slowRecords{s.Store.Records(b), s}
}

type slowRecords struct {
	cluster.Records
	s *slow
}

func (r slowRecords) Put(key string, value []byte, expected cluster.Revision, done func(cluster.Revision, error)) {
	r.s.hold(func() { r.Records.Put(key, value, expected, done) })
}

func (r slowRecords) Delete(key string, expected cluster.Revision, done func(error)) {
	r.s.hold(func() { r.Records.Delete(key, expected, done) })
}

// slowed makes the store of the node with this name slow, once it is told to.
func slowed(s *slow, name string) func(*Options) {
	return func(o *Options) {
		if o.Peers == nil || o.Peers.Node() != name {
			return
		}
		s.Store, o.Store = o.Store, s
	}
}

// A client that comes back on the same node while what it has sent waits for the
// store must not overtake itself.
func TestAClientDoesNotOvertakeItselfByAnotherConnection(t *testing.T) {
	s := &slow{}
	n := newCluster(t, 3, slowed(s, "a"))
	sub, _ := n[1].connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "s"})
	sub.subscribe(1, "q")
	o := mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "p"}
	p, _ := n[0].connect(o)
	s.stall()
	p.sendPublish(2, 1, "q", "first")
	eventually(t, "its record is on the way", func() bool { return s.waiting() == 1 })
	p.Close()
	eventually(t, "the client is gone", func() bool { _, online := n[0].has("p"); return !online })
	p, _ = n[0].connect(o)
	p.sendPublish(1, 2, "q", "second")
	p.quiet()
	s.goOn()
	for _, want := range []string{"first", "second"} {
		m := sub.publish()
		if string(m.Payload) != want {
			t.Errorf("got %s, want %s", m.Payload, want)
		}
		if m.QoS == 1 {
			sub.sendAck(mqtt.TypePuback, m.PacketID)
		}
	}
}

// What a node has begun for a client must be over before another node has its
// session: a record that lands behind that one's back is taken for the record of
// what the client sends next under the same identifier.
func TestASessionIsNotLetGoOfWhileItsRecordsAreOnTheirWay(t *testing.T) {
	s := &slow{}
	n := newCluster(t, 3, slowed(s, "a"))
	sub, _ := n[2].connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "s"})
	sub.subscribe(1, "q")
	o := mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "p", Properties: expiring(60)}
	p, _ := n[0].connect(o)
	s.stall()
	for id := range uint16(5) {
		p.sendPublish(2, id+1, "q", strconv.Itoa(int(id)))
	}
	eventually(t, "their records are on the way", func() bool { return s.waiting() == 5 })
	if got := n[1].b.ask("a", take{ClientID: "p"}); got.Outcome != busy {
		t.Errorf("answer %+v while they are", got)
	}
	if told := p.gone(); told != mqtt.SessionTakenOver {
		t.Errorf("the client was told %s", told)
	}
	s.goOn()
	p, ack := n[1].connect(o)
	if !ack.SessionPresent {
		t.Error("session not present")
	}
	for round, payload := range []string{"", "another "} {
		for id := range uint16(5) {
			p.send(mqtt.AppendPublish(nil, p.v, mqtt.Publish{Dup: round == 0, QoS: 2, PacketID: id + 1, Topic: []byte("q"), Payload: []byte(payload + strconv.Itoa(int(id)))}))
			p.ack(mqtt.TypePubrec)
			p.sendAck(mqtt.TypePubrel, id+1)
			p.ack(mqtt.TypePubcomp)
		}
	}
	for _, payload := range []string{"", "another "} {
		for id := range 5 {
			m := sub.publish()
			if want := payload + strconv.Itoa(id); string(m.Payload) != want {
				t.Errorf("got %s, want %s", m.Payload, want)
			}
			sub.sendAck(mqtt.TypePuback, m.PacketID)
		}
	}
	sub.quiet()
	if got := n[1].records(cluster.Inbound2); got != 0 {
		t.Errorf("%d records of QoS 2 publications are left", got)
	}
}

// A record that has outlasted its publication must not make the next one with
// its identifier vanish.
func TestAStaleRecordOfAQoS2PublicationLosesNothing(t *testing.T) {
	n := newCluster(t, 3)
	sub, _ := n[2].connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "s"})
	sub.subscribe(1, "q")
	o := mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "p"}
	p, _ := n[0].connect(o)
	p.sendPublish(2, 7, "q", "old")
	p.ack(mqtt.TypePubrec)
	var stale []byte
	err := n[0].store.Records(cluster.Inbound2).List(t.Context(), recordKey("p"), func(r cluster.Record) { stale = r.Value })
	if err != nil || stale == nil {
		t.Fatalf("record %q, %v", stale, err)
	}
	p.sendAck(mqtt.TypePubrel, 7)
	p.ack(mqtt.TypePubcomp)
	written := make(chan error, 1)
	n[0].store.Records(cluster.Inbound2).Put(inboundKey(recordKey("p"), 7), stale, cluster.Any, func(_ cluster.Revision, err error) { written <- err })
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	n[0].crash()
	p, _ = n[1].connect(o)
	p.sendPublish(2, 7, "q", "new")
	p.ack(mqtt.TypePubrec)
	for _, want := range []string{"old", "new"} {
		if m := sub.publish(); string(m.Payload) != want {
			t.Errorf("got %s, want %s", m.Payload, want)
		}
	}
}

// Two nodes that can't reach each other are both at work: the way is by a third.
func TestASessionIsTakenOverByWayOfAThirdNode(t *testing.T) {
	n := newCluster(t, 3)
	o := mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "c", Properties: expiring(60)}
	old, _ := n[0].connect(o)
	old.subscribe(1, "q")
	n[0].cluster.Cut("a", "b", true)
	n[1].sees(2)
	c, ack := n[1].connect(o)
	if !ack.SessionPresent {
		t.Error("session not present")
	}
	if told := old.gone(); told != mqtt.SessionTakenOver {
		t.Errorf("the old connection was told %s", told)
	}
	p := publisher(n[2])
	p.sendPublish(1, 1, "q", "x")
	p.ack(mqtt.TypePuback)
	if m := c.publish(); string(m.Payload) != "x" {
		t.Errorf("got %s", m.Payload)
	}
}
