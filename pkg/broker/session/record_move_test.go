package session

import (
	"reflect"
	"testing"
)

// shifted is a log whose messages are 100 further on in the other one, but for
// those that are missing there.
type shifted struct{ missing map[uint64]bool }

func (s shifted) Message(r Ref) (Ref, bool) {
	return Ref{r.Shard, r.Seq + 100}, !s.missing[r.Seq]
}

func (s shifted) UpTo(_ int, seq uint64) uint64 {
	for s.missing[seq] {
		seq--
	}
	return seq + 100
}

func TestARecordMovesWithTheMessagesItNames(t *testing.T) {
	r := Record{
		ClientID: "c", Cursors: []uint64{10, 20},
		Subscriptions: []Subscription{
			{Filter: "a"},
			{Filter: "b", since: []uint64{12, 20}},
			{Filter: "c", since: []uint64{11, 20}}, // nothing of it is left behind the cursors
		},
		Unacknowledged: []Unacknowledged{
			{Ref: Ref{0, 7}, PacketID: 1, QoS: 1, SubscriptionIDs: []uint32{5}},
			{Ref: Ref{1, 8}, PacketID: 2, QoS: 2},
			{Ref: Ref{1, 9}, PacketID: 3, QoS: 2, Released: true},
			{Topic: "retained", PacketID: 4, QoS: 1},
		},
	}
	was := r.Append(nil)
	if gone := r.Move(shifted{map[uint64]bool{8: true, 9: true, 11: true}}); gone != 1 {
		t.Errorf("%d messages in flight are gone, want 1", gone)
	}
	want := Record{
		ClientID: "c", Cursors: []uint64{110, 120},
		Subscriptions: []Subscription{{Filter: "a"}, {Filter: "b", since: []uint64{112, 120}}, {Filter: "c"}},
		Unacknowledged: []Unacknowledged{
			{Ref: Ref{0, 107}, PacketID: 1, QoS: 1, SubscriptionIDs: []uint32{5}},
			{PacketID: 2, QoS: 2},
			{PacketID: 3, QoS: 2, Released: true},
			{Topic: "retained", PacketID: 4, QoS: 1},
		},
	}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("got\n%+v\nwant\n%+v", r, want)
	}
	// It is a record like any other, and moving has not changed the first.
	back, err := ParseRecord(r.Append(nil))
	if err != nil || !reflect.DeepEqual(back, want) {
		t.Errorf("read back: %v\n%+v", err, back)
	}
	if again, err := ParseRecord(was); err != nil || again.Cursors[0] != 10 {
		t.Errorf("%v %+v", err, again)
	}
}

func TestARecordOfNothingMoves(t *testing.T) {
	for _, tt := range records {
		r, err := ParseRecord(unhex(t, tt.hex))
		if err != nil {
			t.Fatal(err)
		}
		r.Move(shifted{})
		if _, err := ParseRecord(r.Append(nil)); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
