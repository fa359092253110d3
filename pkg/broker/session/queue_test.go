package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// waitingIn gives the payloads of the session's queue, as a client gets them.
func waitingIn(s *Session) []string {
	var all []string
	c := s.Connection()
	if c == nil {
		c = s.Connect(v5(60), t0)
	}
	c.window = 65535
	for p, step := c.Next(t0); step == Send; p, step = c.Next(t0) {
		all = append(all, fmt.Sprintf("%s/%d", p.Message.Payload, p.QoS))
	}
	return all
}

func TestOverflow(t *testing.T) {
	// Messages in the order of queueing, as seq/qos. 10 bytes each.
	for _, tt := range []struct {
		name   string
		limits Limits
		in     []string
		want   []string
		drops  Drops
		full   bool
	}{
		{"no bounds", Limits{}, []string{"1/1", "2/0", "3/2"}, []string{"1/1", "2/0", "3/2"}, Drops{}, false},
		{"newest goes", Limits{Queued: 2}, []string{"1/1", "2/1", "3/1", "4/2"}, []string{"1/1", "2/1"}, Drops{Full: 2}, false},
		{"oldest goes", Limits{Queued: 2, Overflow: DropOldest}, []string{"1/1", "2/1", "3/1", "4/2"}, []string{"3/1", "4/2"}, Drops{Full: 2}, false},
		{"by bytes, newest", Limits{QueuedBytes: 25}, []string{"1/1", "2/1", "3/1"}, []string{"1/1", "2/1"}, Drops{Full: 1}, false},
		{"by bytes, oldest", Limits{QueuedBytes: 25, Overflow: DropOldest}, []string{"1/1", "2/1", "3/1"}, []string{"2/1", "3/1"}, Drops{Full: 1}, false},
		{"one alone is never too much", Limits{QueuedBytes: 5}, []string{"1/1"}, []string{"1/1"}, Drops{}, false},
		{"QoS 0 gives way first, oldest first", Limits{Queued: 3}, []string{"1/0", "2/1", "3/0", "4/1"}, []string{"2/1", "3/0", "4/1"}, Drops{Full: 1}, false},
		{"QoS 0 pushes nothing out", Limits{Queued: 2}, []string{"1/1", "2/1", "3/0"}, []string{"1/1", "2/1"}, Drops{Full: 1}, false},
		{"QoS 0 pushes nothing out, oldest goes", Limits{Queued: 2, Overflow: DropOldest}, []string{"1/1", "2/1", "3/0"}, []string{"1/1", "2/1"}, Drops{Full: 1}, false},
		{"QoS 0 pushes out QoS 0, oldest goes", Limits{Queued: 2, Overflow: DropOldest}, []string{"1/1", "2/0", "3/0"}, []string{"1/1", "3/0"}, Drops{Full: 1}, false},
		{"the publisher is asked to wait", Limits{Queued: 2, Overflow: Refuse}, []string{"1/1", "2/1"}, []string{"1/1", "2/1"}, Drops{}, true},
		{"what was stored meanwhile is taken, to twice the bounds", Limits{Queued: 2, Overflow: Refuse},
			[]string{"1/1", "2/1", "3/1", "4/1", "5/1"}, []string{"1/1", "2/1", "3/1", "4/1"}, Drops{Full: 1}, true},
		{"the publisher is asked to wait, by bytes", Limits{QueuedBytes: 20, Overflow: Refuse}, []string{"1/1", "2/1"}, []string{"1/1", "2/1"}, Drops{}, true},
		{"not for QoS 0", Limits{Queued: 2, Overflow: Refuse}, []string{"1/0", "2/0", "3/0"}, []string{"1/0", "2/0"}, Drops{Full: 1}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, c := online(tt.limits, v5(60))
			c.window = 0 // the client takes nothing yet
			for _, in := range tt.in {
				var seq, qos int
				fmt.Sscanf(in, "%d/%d", &seq, &qos)
				m := &Message{Topic: "123456789", Payload: fmt.Appendf(nil, "%d", seq), QoS: 2}
				s.Queue(Delivery{Ref: Ref{0, uint64(seq)}, Message: m, QoS: byte(qos)}, t0)
			}
			if got := !s.hasRoom(10); got != tt.full && tt.limits.Overflow == Refuse {
				t.Errorf("full is %v", got)
			}
			if d := s.TakeDrops(); d != tt.drops {
				t.Errorf("drops %+v, want %+v", d, tt.drops)
			}
			if n, b := s.Queued(); n != len(tt.want) || b != int64(10*n) {
				t.Errorf("queued: %d messages of %d bytes", n, b)
			}
			same(t, "left", waitingIn(s), tt.want)
			if n, b := s.Queued(); n != 0 || b != 0 {
				t.Errorf("at the end: %d messages of %d bytes", n, b)
			}
		})
	}
}

// What is promised is as good as queued, until it is redeemed; QoS 0 gives way
// to it, and expired messages do.
func TestPromisesAreBoundedLikeTheQueue(t *testing.T) {
	for _, row := range []struct {
		name   string
		limits Limits
		queued []byte // QoS of messages of 10 bytes
		sizes  []int
		want   []bool
	}{
		{"no bounds", Limits{}, []byte{1, 1}, []int{100, 100}, []bool{true, true}},
		{"by number", Limits{Queued: 3}, []byte{1}, []int{1, 1, 1}, []bool{true, true, false}},
		{"by bytes", Limits{QueuedBytes: 40}, []byte{1}, []int{20, 11, 10, 1}, []bool{true, false, true, false}},
		{"one alone is never too much", Limits{QueuedBytes: 5}, nil, []int{10, 10}, []bool{true, false}},
		{"QoS 0 gives way", Limits{Queued: 2, QueuedBytes: 20}, []byte{0, 0}, []int{10, 10, 1}, []bool{true, true, false}},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.limits.Overflow = Refuse
			s, c := online(row.limits, v5(60))
			c.window = 0
			for i, qos := range row.queued {
				s.Queue(Delivery{Ref: Ref{0, uint64(i + 1)}, Message: &Message{Topic: "123456789", Payload: []byte("x"), QoS: 2}, QoS: qos}, t0)
			}
			var kept []int
			for i, size := range row.sizes {
				if got := s.Promise(size, t0); got != row.want[i] {
					t.Errorf("promise %d is %t", i, got)
				}
				if row.want[i] {
					kept = append(kept, size)
				}
			}
			for _, size := range kept {
				s.Redeem(size)
			}
			if s.promised != 0 || s.promisedBytes != 0 {
				t.Errorf("%d promises of %d bytes are left", s.promised, s.promisedBytes)
			}
		})
	}
	t.Run("what has expired makes room", func(t *testing.T) {
		s, c := online(Limits{Queued: 1, Overflow: Refuse}, v5(60))
		c.window = 0
		old := msg(1)
		old.Expires = after(time.Second)
		s.Queue(Delivery{Ref: Ref{0, 1}, Message: old, QoS: 1}, t0)
		if s.Promise(1, t0) {
			t.Error("a promise before it has expired")
		}
		if !s.Promise(1, after(time.Minute)) {
			t.Error("no promise after it has expired")
		}
	})
	t.Run("what was in flight before a restart is taken again", func(t *testing.T) {
		l := Limits{Queued: 1, Overflow: Refuse}
		s := Restore(Record{ClientID: "a", Expiry: 60, Cursors: []uint64{0}}, &l, t0)
		give(t, s, 1, 1, 5)
		s.CaughtUp()
		if n, _ := s.Queued(); n != 5 || s.TakeDrops() != (Drops{}) {
			t.Errorf("%d of 5 messages are queued", n)
		}
	})
}

func TestExpiredMessagesMakeRoomBeforeOthersAreDropped(t *testing.T) {
	s, c := online(Limits{Queued: 2}, v5(60))
	c.window = 0
	old := msg(1)
	old.Expires = after(time.Second)
	s.Queue(Delivery{Ref: Ref{0, 1}, Message: old, QoS: 1}, t0)
	give(t, s, 1, 2, 2)
	if v := s.Queue(Delivery{Ref: Ref{0, 3}, Message: msg(3), QoS: 1}, after(time.Minute)); v != Queued {
		t.Errorf("verdict %d", v)
	}
	same(t, "left", waitingIn(s), []string{"2/1", "3/1"})
}

func TestWhatTheStoreHasLostMakesRoom(t *testing.T) {
	s, c := online(Limits{Queued: 2}, v5(60))
	c.Lost(t0)
	give(t, s, 1, 1, 2)
	s.Unload()
	s.Attach(Want{Ref: Ref{0, 1}}, nil)
	give(t, s, 1, 3, 3)
	if d := s.TakeDrops(); d != (Drops{Lost: 1}) {
		t.Errorf("drops %+v", d)
	}
	s.Attach(Want{Ref: Ref{0, 2}}, nil)
	s.Attach(Want{Ref: Ref{0, 3}}, nil)
	if cursor := s.Snapshot([]uint64{3}).Cursors[0]; cursor != 2 {
		t.Errorf("cursor %d", cursor)
	}
	same(t, "left", waitingIn(s), []string{"3/1"})
}

func TestQoS0IsNotKeptForAClientThatIsAway(t *testing.T) {
	s, c := online(Limits{}, v5(60))
	s.Queue(Delivery{Message: msg(1)}, t0)
	c.Lost(t0)
	if v := s.Queue(Delivery{Message: msg(2)}, t0); v != NotKept {
		t.Errorf("verdict %d", v)
	}
	if d := s.TakeDrops(); d != (Drops{Offline: 2}) {
		t.Errorf("drops %+v", d)
	}
	same(t, "left", waitingIn(s), nil)
}

func TestTheLogMayBeReadAgainFromAnywhere(t *testing.T) {
	s, c := online(Limits{}, v5(60))
	give(t, s, 1, 1, 6)
	c.window = 3
	same(t, "first", sentBy(c, t0), publishes(1, 1, 3, ""))
	c.Puback(2, mqtt.Success)
	c.Lost(t0)

	again := func(s *Session, want []Verdict) {
		t.Helper()
		for i, v := range want {
			d := Delivery{Ref: Ref{0, uint64(i + 1)}, Message: msg(i + 1), QoS: 1}
			if got := s.Queue(d, t0); got != v {
				t.Errorf("message %d: verdict %d, want %d", i+1, got, v)
			}
		}
	}
	again(s, []Verdict{Known, Known, Known, Known, Known, Known, Queued})
	s = throughRecord(t, s, []uint64{7}, t0)
	again(s, []Verdict{Known, Known, Known, Queued, Queued, Queued, Queued})
	same(t, "after a restart", sentBy(s.Connect(v5(60), t0), t0), []string{
		"PUBLISH 1 #1 qos1 dup", "PUBLISH 3 #3 qos1 dup",
		"PUBLISH 4 #4 qos1", "PUBLISH 5 #5 qos1", "PUBLISH 6 #6 qos1", "PUBLISH 7 #7 qos1",
	})
}

func TestANewSessionIsNotGivenWhatWasPublishedBefore(t *testing.T) {
	s := New(Options{ClientID: "me", Tail: []uint64{10, 20}})
	s.Connect(v5(60), t0)
	for _, tt := range []struct {
		ref  Ref
		want Verdict
	}{{Ref{0, 10}, Known}, {Ref{1, 20}, Known}, {Ref{1, 21}, Queued}, {Ref{0, 11}, Queued}, {Ref{2, 1}, Queued}} {
		if v := s.Queue(Delivery{Ref: tt.ref, Message: msg(1), QoS: 1}, t0); v != tt.want {
			t.Errorf("%v: verdict %d", tt.ref, v)
		}
	}
}

func TestSharedMessagesGoToOthersAsFarAsTheyMay(t *testing.T) { // [MQTT-4.8.2-4], [MQTT-4.8.2-5]
	s, c := online(Limits{}, v5(60))
	queue := func(seq int, qos byte, shared bool) {
		s.Queue(Delivery{Ref: Ref{0, uint64(seq)}, Message: msg(seq), QoS: qos, Shared: shared}, t0)
	}
	queue(1, 1, true)
	queue(2, 2, true)
	queue(3, 1, false)
	sentBy(c, t0)
	c.window = 0
	queue(4, 1, true)
	queue(5, 1, false)
	queue(6, 2, true)
	queue(2, 1, true) // a group may give a message again, however old
	taken := func(ended bool) []string {
		var all []string
		for _, d := range s.TakeShared(ended) {
			all = append(all, fmt.Sprintf("%s/%d", d.Message.Payload, d.QoS))
		}
		return all
	}
	if cursor := s.Snapshot([]uint64{6}).Cursors[0]; cursor != 4 {
		t.Errorf("cursor %d: held by a shared message, or not by one of its own", cursor)
	}
	same(t, "unsent", taken(false), []string{"4/1", "6/2", "2/1"})
	same(t, "once", taken(false), nil)
	c.Lost(t0)
	same(t, "at the session's end", taken(true), []string{"1/1"})
	same(t, "what stays", sentBy(s.Connect(v5(60), t0), t0), []string{"PUBLISH 2 #2 qos2 dup", "PUBLISH 3 #3 qos1 dup", "PUBLISH 4 #5 qos1"})
}

func TestCursorsStayBehindWhatIsQueuedOfTheirShard(t *testing.T) {
	s, c := online(Limits{}, v5(60))
	c.window = 0
	queue := func(shard, seq int) {
		s.Queue(Delivery{Ref: Ref{shard, uint64(seq)}, Message: msg(seq), QoS: 1}, t0)
	}
	s.Queue(Delivery{Ref: Ref{0, 4}, Message: msg(4)}, t0) // QoS 0 holds nothing up
	want := func(tail []uint64, cursors ...uint64) {
		t.Helper()
		if got := s.Snapshot(tail).Cursors; fmt.Sprint(got) != fmt.Sprint(cursors) {
			t.Errorf("cursors %v, want %v", got, cursors)
		}
	}
	want(nil, 4)
	want([]uint64{5, 6, 7}, 5, 6, 7)
	queue(2, 10)
	queue(0, 9)
	queue(2, 20)
	want([]uint64{50, 60, 70}, 8, 60, 9)
	c.window = 1
	sentBy(c, t0)
	want([]uint64{50, 60, 70}, 8, 60, 19)
	c.window = 2
	sentBy(c, t0)
	want([]uint64{50, 60, 70}, 50, 60, 19)
	c.window = 3
	sentBy(c, t0)
	want([]uint64{50, 60, 70}, 50, 60, 70)
	want(nil, 9, 0, 20)
}

// The queue's ring and the table of those in flight, in all shapes.
func TestTheRoomOfACrowdIsGivenBack(t *testing.T) {
	s, c := online(Limits{}, v5(60))
	give(t, s, 1, 1, 1000)
	if len(sentBy(c, t0)) != 1000 || cap(s.queued.ring) != 0 {
		t.Errorf("room for %d is left in the queue", cap(s.queued.ring))
	}
	for id := uint16(1); id <= 1000; id++ {
		c.Puback(id, mqtt.Success)
	}
	if cap(s.flight.slots) != 0 {
		t.Errorf("room for %d is left in flight", cap(s.flight.slots))
	}
}
