package session

import (
	"fmt"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

func wants(all []Want) []string {
	var words []string
	for _, w := range all {
		words = append(words, fmt.Sprintf("%d/%d%s", w.Ref.Shard, w.Ref.Seq, w.Topic))
	}
	return words
}

func TestAnUnloadedQueueFetchesItsMessagesInOrder(t *testing.T) {
	s, c := online(Limits{}, v5(60))
	give(t, s, 1, 1, 2)
	sentBy(c, t0)
	c.Lost(t0)
	give(t, s, 2, 3, 5)
	_, bytes := s.Queued()
	s.Unload()
	if n, b := s.Queued(); n != 3 || b != bytes {
		t.Errorf("%d messages of %d bytes", n, b)
	}
	same(t, "missing", wants(s.Missing(100)), []string{"0/1", "0/2", "0/3", "0/4", "0/5"})
	same(t, "missing, a few", wants(s.Missing(3)), []string{"0/1", "0/2", "0/3"})

	c = s.Connect(v5(60), t0)
	s.Queue(Delivery{Message: msg(99)}, t0)
	same(t, "QoS 0 does not wait", sentBy(c, t0), []string{"PUBLISH 0 #99 qos0", "fetch"})
	for _, seq := range []int{2, 5, 3, 1} {
		s.Attach(Want{Ref: Ref{0, uint64(seq)}}, msg(seq))
	}
	same(t, "as far as they are there", sentBy(c, t0), append(publishes(1, 1, 2, "dup"), "PUBLISH 3 #3 qos2", "fetch"))
	s.Attach(Want{Ref: Ref{0, 4}}, msg(4))
	same(t, "the rest", sentBy(c, t0), publishes(2, 4, 5, ""))
	same(t, "nothing is missing", wants(s.Missing(100)), nil)
	if s.absent != 0 {
		t.Error(s.absent, "absent")
	}
}

func TestADeliveryMayBeQueuedByItsPlaceAlone(t *testing.T) {
	s, c := online(Limits{}, v5(60))
	c.Lost(t0)
	for seq := uint64(1); seq <= 3; seq++ {
		s.Queue(Delivery{Ref: Ref{0, seq}, QoS: 1, Shared: seq == 2}, t0)
	}
	same(t, "missing", wants(s.Missing(9)), []string{"0/1", "0/2", "0/3"})
	if d := s.TakeShared(false); len(d) != 1 || d[0].Message != nil || d[0].Ref != (Ref{0, 2}) {
		t.Errorf("%+v", d)
	}
	if v := s.Queue(Delivery{Ref: Ref{0, 3}, QoS: 1}, t0); v != Known {
		t.Errorf("verdict %d", v)
	}
	s.Attach(Want{Ref: Ref{0, 1}}, msg(1))
	s.Attach(Want{Ref: Ref{0, 3}}, msg(3))
	if n, b := s.Queued(); n != 2 || b != int64(2*msg(1).size()) {
		t.Errorf("%d messages of %d bytes", n, b)
	}
	same(t, "sent", sentBy(s.Connect(v5(60), t0), t0), []string{"PUBLISH 1 #1 qos1", "PUBLISH 2 #3 qos1"})
}

// What was sent on this connection is not sent again on it, so it is not asked
// for, and its end is the client's to say.
func TestWhatIsInFlightNeedsNoMessageWhileConnected(t *testing.T) {
	s, c := online(Limits{}, v5(60))
	give(t, s, 2, 1, 1)
	sentBy(c, t0)
	s.Unload()
	same(t, "missing", wants(s.Missing(9)), nil)
	s.Attach(Want{Ref: Ref{0, 1}}, nil)
	if reason, send, err := c.Pubrec(1, mqtt.Success); reason != 0 || !send || err != nil {
		t.Fatal(reason, send, err)
	}
	if s.absent != 0 {
		t.Error(s.absent, "absent")
	}
	give(t, s, 1, 2, 2)
	sentBy(c, t0)
	s.Unload()
	c.Puback(2, mqtt.Success)
	if s.absent != 0 {
		t.Error(s.absent, "absent")
	}
}

func TestWhatIsGoneFromTheStore(t *testing.T) {
	s, c := online(Limits{}, v5(60))
	give(t, s, 1, 1, 1)
	give(t, s, 2, 2, 3)
	sentBy(c, t0)
	c.Pubrec(3, mqtt.Success) // needs no message any more
	c.Lost(t0)
	give(t, s, 1, 4, 6)
	s.Unload()
	s.Snapshot(nil)
	same(t, "missing", wants(s.Missing(100)), []string{"0/1", "0/2", "0/4", "0/5", "0/6"})
	for _, seq := range []uint64{1, 2, 4} {
		s.Attach(Want{Ref: Ref{0, seq}}, nil)
	}
	s.Attach(Want{Ref: Ref{0, 5}}, msg(5))
	s.Attach(Want{Ref: Ref{0, 6}}, nil)
	if d := s.TakeDrops(); d != (Drops{Lost: 4}) {
		t.Errorf("drops %+v", d)
	}
	if s.Checkpoint() != First {
		t.Error("a PUBREL that has to be in the record first")
	}
	if r := s.Snapshot([]uint64{9}); r.Cursors[0] != 4 {
		t.Errorf("cursor %d", r.Cursors[0])
	}
	// The client may hold identifier 2, so that is brought to an end.
	same(t, "sent", sentBy(s.Connect(v5(60), t0), t0), []string{"PUBREL 3", "PUBREL 2", "PUBLISH 4 #5 qos1"})
	if n, b := s.Queued(); n != 0 || b != 0 || s.absent != 0 {
		t.Errorf("%d messages of %d bytes, %d absent", n, b, s.absent)
	}
}

func TestWhatIsInFlightIsSuppliedByTheLogReadAgain(t *testing.T) {
	s, c := online(Limits{}, v5(60))
	give(t, s, 2, 1, 2)
	s.Queue(Delivery{Ref: Ref{0, 2}, Message: msg(2), QoS: 1, Shared: true}, t0)
	sentBy(c, t0)
	s = throughRecord(t, s, nil, t0)
	same(t, "before", wants(s.Missing(9)), []string{"0/1", "0/2", "0/2"})
	for seq := 1; seq <= 2; seq++ {
		if v := s.Queue(Delivery{Ref: Ref{0, uint64(seq)}, Message: msg(seq), QoS: 2}, t0); v != Known {
			t.Errorf("message %d: verdict %d", seq, v)
		}
	}
	same(t, "the shared one is another", wants(s.Missing(9)), []string{"0/2"})
	if v := s.Queue(Delivery{Ref: Ref{0, 2}, Message: msg(2), QoS: 1, Shared: true}, t0); v != Known {
		t.Errorf("verdict %d", v)
	}
	same(t, "sent", sentBy(s.Connect(v5(60), t0), t0), append(publishes(2, 1, 2, "dup"), "PUBLISH 3 #2 qos1 dup"))
}

func TestRetainedMessagesAreKeptByTheRecordAlone(t *testing.T) {
	s, c := online(Limits{}, v5(60, receiveMaximum(2)))
	queue := func(n int, qos byte) {
		m := &Message{Topic: fmt.Sprint("r", n), Payload: fmt.Appendf(nil, "%d", n), QoS: 2, Retain: true}
		d, _ := s.Retained(m, &Subscription{QoS: qos})
		s.Queue(d, t0)
	}
	s.Snapshot(nil)
	for n := 1; n <= 4; n++ {
		queue(n, 1+byte(n%2))
	}
	if s.Checkpoint() != Soon {
		t.Error("no log has them")
	}
	give(t, s, 1, 5, 5)
	same(t, "sent", sentBy(c, t0), []string{"PUBLISH 1 #1 qos2 retain", "PUBLISH 2 #2 qos1 retain"})

	s = throughRecord(t, s, nil, t0)
	give(t, s, 1, 5, 5)
	same(t, "missing", wants(s.Missing(100)), []string{"0/0r1", "0/0r2", "0/0r3", "0/0r4"})
	for n := 1; n <= 3; n++ {
		s.Attach(Want{Topic: fmt.Sprint("r", n)}, msg(n))
	}
	s.Attach(Want{Topic: "r4"}, nil) // deleted meanwhile
	if got := len(s.Snapshot(nil).Unacknowledged); got != 3 {
		t.Errorf("%d in the record", got)
	}
	same(t, "sent after a restart", sentBy(s.Connect(v5(60), t0), t0), []string{
		"PUBLISH 1 #1 qos2 dup retain", "PUBLISH 2 #2 qos1 dup retain", "PUBLISH 3 #3 qos2 retain", "PUBLISH 4 #5 qos1",
	})
}
