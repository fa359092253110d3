package session

import (
	"fmt"
	"strings"
	"testing"
)

const smallRecord = 4 << 10

// All that a record has grows until the session is told to stop.
func TestARecordStaysWithinItsBound(t *testing.T) {
	s, c := online(Limits{Record: smallRecord}, v5(60))
	tail := []uint64{0, 1 << 60}
	s.shard(1)
	made := 0
	for ; s.RoomFor(filterOf(made)); made++ {
		s.Subscribe(Subscription{Filter: filterOf(made), ID: 1<<28 - 1, QoS: 2}, tail)
	}
	if made < 20 || made > 60 {
		t.Errorf("%d subscriptions of 50 bytes in half of %d bytes", made, smallRecord)
	}
	if !s.RoomFor(filterOf(0)) {
		t.Error("no room to replace a subscription")
	}
	all := s.Subscriptions()
	for seq := range uint64(200) {
		d, _ := s.Merge(msg(int(seq)), Ref{1, 1<<60 + seq + 1}, all[:10]...)
		d.QoS = 2
		s.Queue(d, t0)
		retained := &Message{Topic: fmt.Sprintf("retained/%d", seq), QoS: 1}
		s.Queue(Delivery{Message: retained, QoS: 1, Retain: true}, t0)
	}
	sent := 0
	for {
		p, step := c.Next(t0)
		if step != Send {
			break
		}
		sent++
		if sent%2 == 0 && p.QoS == 2 {
			c.Pubrec(p.PacketID, 0)
		}
	}
	if sent < 10 || sent >= 400 {
		t.Errorf("%d in flight in a quarter of %d bytes", sent, smallRecord)
	}
	r := s.Snapshot(tail)
	encoded := r.Append(nil)
	if len(encoded) > smallRecord+100 {
		t.Errorf("the record has %d bytes with a bound of %d", len(encoded), smallRecord)
	}
	if _, err := ParseRecord(encoded); err != nil {
		t.Error(err)
	}

	// Whatever comes to its end makes room again.
	for _, id := range s.flight.sorted() {
		s.finish(id)
	}
	if s.flightBytes != 0 {
		t.Errorf("%d bytes in flight with nothing in flight", s.flightBytes)
	}
	if _, step := c.Next(t0); step != Send {
		t.Error("nothing more is sent after all was acknowledged")
	}
	s.Unsubscribe(filterOf(0))
	if !s.RoomFor(filterOf(made)) {
		t.Error("no room after a subscription has ended")
	}
}

// What a record holds counts again when it is restored.
func TestARestoredSessionHasTheRoomThatItHad(t *testing.T) {
	l := Limits{Record: smallRecord}
	s, c := online(l, v5(60))
	made := 0
	for ; s.RoomFor(filterOf(made)); made++ {
		s.Subscribe(Subscription{Filter: filterOf(made), QoS: 2}, nil)
	}
	give(t, s, 2, 1, 3)
	for range 3 {
		if p, step := c.Next(t0); step != Send || p.PacketID == 1 {
			c.Pubrec(1, 0)
		}
	}
	parsed, err := ParseRecord(func() []byte { r := s.Snapshot([]uint64{3}); return r.Append(nil) }())
	if err != nil {
		t.Fatal(err)
	}
	again := Restore(parsed, &l, t0)
	if again.RoomFor(filterOf(made)) || again.filterBytes != s.filterBytes || again.flightBytes != s.flightBytes {
		t.Errorf("%d bytes of filters, %d in flight; want %d, %d", again.filterBytes, again.flightBytes, s.filterBytes, s.flightBytes)
	}
}

func TestNoBoundOfTheRecord(t *testing.T) {
	s, _ := online(Limits{}, v5(60))
	for i := range 1000 {
		if !s.RoomFor(filterOf(i)) {
			t.Fatalf("no room for subscription %d", i)
		}
		s.Subscribe(Subscription{Filter: filterOf(i)}, nil)
	}
	for i := range 1000 {
		s.Queue(Delivery{Message: &Message{Topic: filterOf(i), QoS: 1}, QoS: 1, Retain: true}, t0)
	}
	if n := len(s.Snapshot(nil).Unacknowledged); n != 1000 {
		t.Errorf("%d of 1000 retained messages are in the record", n)
	}
}

func filterOf(i int) string { return fmt.Sprintf("%s/%04d", strings.Repeat("f", 45), i) }
