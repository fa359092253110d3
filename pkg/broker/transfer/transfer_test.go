package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mqttlb/mqttlb/pkg/broker"
	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const queued = 50

// live lets clients leave behind, on a broker of one node, all that a store may
// hold of them.
func live(t *testing.T, s cluster.Store) {
	b := run(t, broker.Options{Store: s, Node: "old", Checkpoint: 10 * time.Millisecond})
	p, _ := b.connect("publisher", mqtt.ConnectOptions{})

	// A subscriber with one message at PUBREL, one unacknowledged, and more that
	// come while it is away.
	a, _ := b.connect("subscriber", mqtt.ConnectOptions{})
	a.subscribe(2, "a/#")
	p.publish(mqtt.Publish{QoS: 2, PacketID: 1, Topic: []byte("a/released"), Payload: []byte("x")})
	p.ack(mqtt.TypePubrel, 1)
	p.acked(mqtt.TypePubcomp)
	m := a.publication()
	a.ack(mqtt.TypePubrec, m.PacketID)
	a.acked(mqtt.TypePubrel)
	p.publish(mqtt.Publish{QoS: 1, PacketID: 2, Topic: []byte("a/unacknowledged"), Payload: []byte("x")})
	a.publication()
	a.Close()
	b.alone(1)
	for i := range queued {
		p.publish(mqtt.Publish{QoS: 1, PacketID: 3, Topic: []byte("a/queued"), Payload: fmt.Append(nil, i)})
		p.publish(mqtt.Publish{QoS: 1, PacketID: 3, Topic: []byte("nobody/wants"), Payload: []byte("x")})
	}

	// Retained messages, of which one was removed.
	p.publish(mqtt.Publish{QoS: 1, PacketID: 4, Retain: true, Topic: []byte("r/kept"), Payload: []byte("kept")})
	p.publish(mqtt.Publish{QoS: 1, PacketID: 4, Retain: true, Topic: []byte("r/gone"), Payload: []byte("gone")})
	p.publish(mqtt.Publish{QoS: 1, PacketID: 4, Retain: true, Topic: []byte("r/gone")})

	// A publication with QoS 2 that its client will send again.
	p.publish(mqtt.Publish{QoS: 2, PacketID: 7, Topic: []byte("a/twice"), Payload: []byte("x")})

	// A client that is there at the end, with a will.
	b.connect("mortal", mqtt.ConnectOptions{Will: &mqtt.Will{QoS: 1, Topic: "a/will", Payload: []byte("dead")}})
	b.stop()
}

// resume is what the clients find on the broker, or on the brokers of a cluster,
// that has the store now.
func resume(t *testing.T, nodes ...*running) {
	first, last := nodes[0], nodes[len(nodes)-1]
	p, present := first.connect("publisher", mqtt.ConnectOptions{})
	if !present {
		t.Error("the publisher's session is gone")
	}
	p.publish(mqtt.Publish{Dup: true, QoS: 2, PacketID: 7, Topic: []byte("a/twice"), Payload: []byte("x")})
	p.ack(mqtt.TypePubrel, 7)
	p.acked(mqtt.TypePubcomp)

	a, present := last.connect("subscriber", mqtt.ConnectOptions{})
	if !present {
		t.Fatal("the subscriber's session is gone")
	}
	id := a.acked(mqtt.TypePubrel)
	a.ack(mqtt.TypePubcomp, id)
	m := a.publication()
	if string(m.Topic) != "a/unacknowledged" || !m.Dup || m.PacketID == id {
		t.Errorf("resent: %s, DUP %t, %d", m.Topic, m.Dup, m.PacketID)
	}
	a.ack(mqtt.TypePuback, m.PacketID)
	got := map[string]int{}
	for next := 0; got["a/queued"] < queued || got["a/twice"] == 0 || got["a/will"] == 0; {
		m := a.publication()
		topic := string(m.Topic)
		got[topic]++
		switch m.QoS {
		case 1:
			a.ack(mqtt.TypePuback, m.PacketID)
		case 2:
			a.ack(mqtt.TypePubrec, m.PacketID)
		}
		if topic == "a/queued" {
			if string(m.Payload) != fmt.Sprint(next) || m.Dup {
				t.Errorf("message %s in place of %d, DUP %t", m.Payload, next, m.Dup)
			}
			next++
		}
	}
	a.quiet()
	if got["a/twice"] != 1 || got["a/will"] != 1 || got["a/queued"] != queued || len(got) != 3 {
		t.Errorf("got %v", got)
	}

	r, _ := first.connect("reader", mqtt.ConnectOptions{CleanStart: true})
	r.subscribe(1, "r/#")
	if m := r.publication(); string(m.Topic) != "r/kept" || string(m.Payload) != "kept" || !m.Retain {
		t.Errorf("retained: %s %s", m.Topic, m.Payload)
	} else {
		r.ack(mqtt.TypePuback, m.PacketID)
	}
	r.quiet()
}

func export(t *testing.T, s cluster.Store) []byte {
	t.Helper()
	var file bytes.Buffer
	n, err := Export(t.Context(), s, Head{Node: "old", Version: "test", Made: time.Now()}, &file)
	if err != nil {
		t.Fatal(err)
	}
	if n.Sessions != 3 || n.Retained != 1 || n.Inbound2 != 1 || n.Messages < 2*queued {
		t.Errorf("exported %+v", n)
	}
	return file.Bytes()
}

func bring(t *testing.T, file []byte, to Target) {
	t.Helper()
	h, n, err := Import(t.Context(), bytes.NewReader(file), to)
	if err != nil {
		t.Fatal(err)
	}
	if h.Node != "old" || n.Sessions != 3 || n.Retained != 1 || n.Inbound2 != 1 || n.Messages < 2*queued || n.Gone != 0 {
		t.Errorf("imported %+v of %+v", n, h)
	}
}

// used is a store in memory whose places begin further on than those of another.
func used(t *testing.T, s cluster.Store) {
	for range 20 {
		stored := make(chan cluster.Pos, 1)
		s.Append(&cluster.Message{Topic: "before", QoS: 1}, func(p cluster.Pos, _ error) { stored <- p })
		if err := s.Trim(t.Context(), 0, (<-stored).Seq+1); err != nil {
			t.Fatal(err)
		}
	}
}

func memory(t *testing.T) *cluster.Memory {
	m := cluster.NewMemory(cluster.MemoryOptions{})
	t.Cleanup(func() { m.Close() })
	return m
}

func jetStream(t *testing.T, node string) *cluster.JetStream {
	s, err := cluster.OpenJetStream(t.Context(), cluster.Options{Dir: t.TempDir(), Node: node, Durability: cluster.EachSecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestAllMovesFromOneNodeToAnother(t *testing.T) {
	for _, row := range []struct {
		name     string
		from, to func(t *testing.T) cluster.Store
	}{
		{"in memory", func(t *testing.T) cluster.Store { return memory(t) }, func(t *testing.T) cluster.Store {
			m := memory(t)
			used(t, m)
			return m
		}},
		{"on JetStream", func(t *testing.T) cluster.Store { return jetStream(t, "old") }, func(t *testing.T) cluster.Store { return jetStream(t, "new") }},
	} {
		t.Run(row.name, func(t *testing.T) {
			from, to := row.from(t), row.to(t)
			live(t, from)
			bring(t, export(t, from), Target{Store: to, Node: "new"})
			resume(t, run(t, broker.Options{Store: to, Node: "new"}))
		})
	}
}

func TestAllMovesFromOneNodeToThree(t *testing.T) {
	from := memory(t)
	live(t, from)
	c := cluster.NewMemoryCluster(cluster.MemoryOptions{})
	t.Cleanup(func() { c.Close() })
	used(t, c)
	bring(t, export(t, from), Target{Store: c, Node: "n1", Clustered: true})
	var nodes []*running
	for _, name := range []string{"n1", "n2", "n3"} {
		p := c.Join(name, 3)
		t.Cleanup(func() { c.Leave(p) })
		nodes = append(nodes, run(t, broker.Options{Store: c, Peers: p}))
	}
	resume(t, nodes...)
}

func TestOnlyANewStoreIsFilled(t *testing.T) {
	from := memory(t)
	live(t, from)
	file := export(t, from)
	for _, row := range []struct {
		name string
		fill func(s *cluster.Memory)
	}{
		{"messages", func(s *cluster.Memory) {
			done := make(chan error, 1)
			s.Append(&cluster.Message{Topic: "a", QoS: 1}, func(_ cluster.Pos, err error) { done <- err })
			<-done
		}},
		{"a session", func(s *cluster.Memory) {
			done := make(chan error, 1)
			s.Records(cluster.Sessions).Put("k", []byte("v"), cluster.None, func(_ cluster.Revision, err error) { done <- err })
			<-done
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := memory(t)
			row.fill(s)
			if _, _, err := Import(t.Context(), bytes.NewReader(file), Target{Store: s, Node: "new"}); !errors.Is(err, ErrNotNew) {
				t.Errorf("got %v", err)
			}
		})
	}
	s := cluster.NewMemory(cluster.MemoryOptions{Shards: 2})
	defer s.Close()
	if _, _, err := Import(t.Context(), bytes.NewReader(file), Target{Store: s, Node: "new"}); err == nil {
		t.Error("a log in one shard went into two")
	}
}

func TestAFailedWriteFailsTheImport(t *testing.T) {
	from := memory(t)
	live(t, from)
	file := export(t, from)
	for _, op := range []cluster.Op{cluster.Appends, cluster.RetainedWrites, cluster.RecordWrites} {
		s := memory(t)
		s.Fail(op, cluster.ErrFull)
		if _, _, err := Import(t.Context(), bytes.NewReader(file), Target{Store: s, Node: "new"}); !errors.Is(err, cluster.ErrFull) {
			t.Errorf("%v: got %v", op, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Export(ctx, from, Head{}, new(bytes.Buffer)); err == nil {
		t.Error("an export that was cut off succeeds")
	}
}
