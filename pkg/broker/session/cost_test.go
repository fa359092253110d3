package session

import (
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// turn takes a message through a session, as the broker does it all day.
func turn(s *Session, c *Connection, d Delivery) {
	if d.QoS > 0 {
		d.Ref.Seq = s.shard(0).dealt + 1
	}
	s.Queue(d, t0)
	p, step := c.Next(t0)
	if step != Send {
		panic("not sent")
	}
	switch p.QoS {
	case 1:
		c.Puback(p.PacketID, mqtt.Success)
	case 2:
		c.Pubrec(p.PacketID, mqtt.Success)
		c.Pubcomp(p.PacketID, mqtt.Success)
	}
	s.Checkpoint()
}

var turns = []struct {
	name string
	c    *mqtt.Connect
}{
	{"3.1.1", v311(false)},
	{"5.0", v5(60, maxPacket(1<<20), aliases(10))},
}

func TestAMessageOnItsWayAllocatesNothing(t *testing.T) {
	for _, tt := range turns {
		for qos := byte(0); qos <= 2; qos++ {
			s, c := online(Limits{Queued: 1000, QueuedBytes: 1 << 20, TopicAliases: 10, Inflight: 100}, tt.c)
			b := s.Subscribe(Subscription{Filter: "#", QoS: qos, ID: 5}, nil).Now
			m := &Message{Topic: "some/topic", Payload: make([]byte, 100), QoS: 2, Publisher: "you"}
			give(t, s, 1, 1, 30) // others are in flight
			sentBy(c, t0)
			n := testing.AllocsPerRun(10000, func() {
				d, _ := s.Merge(m, Ref{}, b)
				turn(s, c, d)
			})
			if n != 0 {
				t.Errorf("%s, QoS %d: %v allocations", tt.name, qos, n)
			}
		}
	}
}

func TestAPublicationFromTheClientAllocatesNothing(t *testing.T) {
	s, c := online(Limits{TopicAliasMaximum: 3}, v5(60))
	publish(t, c, 2, 1, Fresh)
	name := []byte("some/topic")
	n := testing.AllocsPerRun(10000, func() {
		c.Topic(name, 1)
		c.Publish(1, 2)
		c.Acked()
		c.Publish(2, 3)
		s.Stored(3, mqtt.Success)
		c.Pubrel(3)
		s.Forgotten(3)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// heap is what it takes to hold what make makes n times, in bytes for each.
func heap(n int, make func(i int) any) int {
	all := append([]any(nil), nil)
	for range n - 1 {
		all = append(all, nil)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range all {
		all[i] = make(i)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(all)
	return int(after.HeapAlloc-before.HeapAlloc) / n
}

func TestMemoryOfAnIdleSession(t *testing.T) {
	l := &Limits{TopicAliases: 10}
	idle := func(i int) *Session {
		s := New(Options{ClientID: fmt.Sprintf("device-%08d", i), Identity: "device", Limits: l, Tail: []uint64{7}})
		s.Connect(v5(60), t0)
		s.Subscribe(Subscription{Filter: fmt.Sprintf("devices/%08d/commands", i), QoS: 1}, []uint64{7})
		return s
	}
	for _, tt := range []struct {
		name  string
		bytes int
		make  func(i int) any
	}{
		{"connected", 1024, func(i int) any { return idle(i) }},
		{"connected, has sent and received", 1152, func(i int) any {
			s := idle(i)
			for range 10 {
				turn(s, s.Connection(), Delivery{Message: msg(1), QoS: 1})
			}
			return s
		}},
		{"offline", 768, func(i int) any {
			s := idle(i)
			turn(s, s.Connection(), Delivery{Message: msg(1)})
			turn(s, s.Connection(), Delivery{Message: msg(1), QoS: 1})
			s.Connection().Lost(t0)
			return s
		}},
	} {
		got := heap(2000, tt.make)
		t.Logf("%s: %d bytes", tt.name, got)
		if got > tt.bytes {
			t.Errorf("%s: %d bytes, more than %d", tt.name, got, tt.bytes)
		}
	}
	if size := unsafe.Sizeof(item{}); size != 64 {
		t.Errorf("an item has %d bytes", size)
	}
}

func BenchmarkTurn(b *testing.B) {
	for _, tt := range turns {
		for qos := byte(0); qos <= 2; qos++ {
			b.Run(fmt.Sprintf("%s/QoS%d", tt.name, qos), func(b *testing.B) {
				s, c := online(Limits{Queued: 1000, QueuedBytes: 1 << 20, TopicAliases: 10}, tt.c)
				d := Delivery{Message: &Message{Topic: "some/topic", Payload: make([]byte, 100), QoS: 2}, QoS: qos}
				b.ReportAllocs()
				for b.Loop() {
					turn(s, c, d)
				}
			})
		}
	}
}
