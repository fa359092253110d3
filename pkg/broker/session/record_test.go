package session

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// records are what a session may have to tell, from nothing to all.
var records = []struct {
	name string
	r    Record
	hex  string // of version 1, which has to be readable for ever
}{
	{"nothing", Record{}, "01 00 00 00 00 00 00 00"},
	{"who and when", Record{
		ClientID: "c", Identity: "id", Expiry: 300,
		Connected: time.UnixMilli(1000).UTC(), Disconnected: time.UnixMilli(2000).UTC(),
	}, "01 06 01 63 02 6964 ac02 e807 d00f 00 00 00"},
	{"subscriptions", Record{
		Cursors: []uint64{1, 300},
		Subscriptions: []Subscription{
			{Filter: "a", QoS: 2, NoLocal: true, RetainAsPublished: true, RetainHandling: 2, ID: maxSubscriptionID},
			{Filter: "b", since: []uint64{7, 301}},
		},
	}, "01 00 00 00 00 02 01 ac02 02 01 61 2e ffffff7f 01 62 40 00 02 07 ad02 00"},
	{"unacknowledged", Record{
		Cursors: []uint64{9},
		Unacknowledged: []Unacknowledged{
			{Ref: Ref{0, 5}, PacketID: 65535, QoS: 2, Released: true},
			{Ref: Ref{3, math.MaxUint64}, PacketID: 1, QoS: 1, Retain: true, Shared: true, SubscriptionIDs: []uint32{1, 1, 300}},
			{Topic: "r", PacketID: 2, QoS: 2, Retain: true},
			{Topic: "s", QoS: 1, Retain: true},
		},
	}, "01 00 00 00 00 01 09 00 04 12 ffff03 00 05 00 0d 01 03 ffffffffffffffffff01 03 01 01 ac02 46 02 01 72 00 65 01 73 00"},
	{"shares", Record{
		Unacknowledged: []Unacknowledged{
			{Ref: Ref{0, 5}, PacketID: 1, QoS: 2, Shared: true, Share: "$share/b/x"},
			{Ref: Ref{0, 6}, PacketID: 2, QoS: 1, Shared: true},
		},
		Done: []Shared{{"$share/a/x", Ref{0, 3}}, {"$share/b/x", Ref{1, 2}}},
	}, "01 08 00 00 00 00 00 02 0a 01 00 05 00 09 02 00 06 00 02 0a 24 73 68 61 72 65 2f 61 2f 78 0a 24 73 68 61 72 65 2f 62 2f 78 02 00 02 01 00 03 02 01 02"},
	{"will", Record{
		Will: &Will{Topic: "w", Payload: []byte("p"), QoS: 1, Retain: true, Properties: mqtt.Properties{1, 1}, Delay: 5, Lifetime: 6, HasLifetime: true},
	}, "01 01 00 00 00 00 00 00 0d 01 77 01 70 02 0101 05 06"},
}

func unhex(tb testing.TB, s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestRecordsOfVersion1(t *testing.T) {
	for _, tt := range records {
		t.Run(tt.name, func(t *testing.T) {
			want := unhex(t, tt.hex)
			if got := tt.r.Append([]byte("before")); string(got) != "before"+string(want) {
				t.Errorf("got  %x\nwant %x", got[6:], want)
			}
			r, err := ParseRecord(want)
			if err != nil {
				t.Fatal(err)
			}
			clear(want) // nothing of it is kept
			if !reflect.DeepEqual(r, tt.r) {
				t.Errorf("got  %+v\nwant %+v", r, tt.r)
			}
		})
	}
}

func TestRecordsThatAreDamaged(t *testing.T) {
	for _, tt := range []struct{ name, hex, says string }{
		{"empty", "", "version"},
		{"unknown flag", "01 10 00 00 00 00 00 00", "flags"},
		{"bytes behind it", "01 00 00 00 00 00 00 00 00", "end"},
		{"text past the end", "01 00 05 61", "client id"},
		{"number too long", "01 00 00 00 8000 00 00 00", "expiry"},
		{"number too large", "01 00 00 00 ffffffffff01 00 00 00", "expiry"},
		{"time past what nanoseconds can tell", "01 02 00 00 00 ffffffffffff7f 00 00 00", "connected"},
		{"more cursors than bytes", "01 00 00 00 00 7f 00 00", "cursors"},
		{"subscriptions out of order", "01 00 00 00 00 00 02 01 62 00 00 01 61 00 00 00", "order"},
		{"a subscription twice", "01 00 00 00 00 00 02 01 61 00 00 01 61 00 00 00", "order"},
		{"QoS 3 subscription", "01 00 00 00 00 00 01 01 61 03 00 00", "options"},
		{"Retain Handling 3", "01 00 00 00 00 00 01 01 61 30 00 00", "options"},
		{"start without cursors", "01 00 00 00 00 00 01 01 61 40 00 01 05 00", "start"},
		{"QoS 0 unacknowledged", "01 00 00 00 00 00 00 01 00 01 00 05 00", "QoS"},
		{"QoS 1 released", "01 00 00 00 00 00 00 01 11 01 00 05 00", "state"},
		{"released and not sent", "01 00 00 00 00 00 00 01 72 01 72 00", "state"},
		{"in the log and not sent", "01 00 00 00 00 00 00 01 21 00 05 00", "state"},
		{"packet identifier 0", "01 00 00 00 00 00 00 01 01 00 00 05 00", "packet identifier"},
		{"packet identifier twice", "01 00 00 00 00 00 00 02 01 01 00 05 00 01 01 00 06 00", "packet identifier"},
		{"sent behind not sent", "01 00 00 00 00 00 00 02 61 01 72 00 01 01 00 05 00", "packet identifier"},
		{"shard past what an item holds", "01 00 00 00 00 00 00 01 01 01 808004 05 00", "message"},
		{"sequence number 0", "01 00 00 00 00 00 00 01 01 01 00 00 00", "place"},
		{"subscription identifier 0", "01 00 00 00 00 00 00 01 01 01 00 05 01 00", "identifier"},
		{"will with QoS 3", "01 01 00 00 00 00 00 00 03 01 77 00 00 00", "will"},
		{"will with an unknown flag", "01 01 00 00 00 00 00 00 10 01 77 00 00 00", "will"},
	} {
		_, err := ParseRecord(unhex(t, tt.hex))
		if err == nil || !strings.Contains(err.Error(), "damaged record") || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.says)
		}
	}
	for _, tt := range records {
		b := unhex(t, tt.hex)
		for n := range b {
			if _, err := ParseRecord(b[:n]); err == nil {
				t.Errorf("%s, cut to %d bytes: no error", tt.name, n)
			}
		}
	}
	if _, err := ParseRecord([]byte{2}); !errors.Is(err, ErrRecordVersion) {
		t.Error(err)
	}
}

// What a snapshot says, a session restored from it says again.
func TestASnapshotIsStable(t *testing.T) {
	s, c := online(Limits{}, v5(60, withWill(5)))
	s.Subscribe(Subscription{Filter: "b", QoS: 2, RetainAsPublished: true, ID: 5}, nil)
	s.Subscribe(Subscription{Filter: "a", NoLocal: true, RetainHandling: 1}, nil)
	give(t, s, 2, 1, 3)
	give(t, s, 1, 4, 5)
	c.window = 4
	sentBy(c, t0)
	c.Pubrec(2, mqtt.Success)
	c.Lost(after(time.Second))
	first := s.Snapshot([]uint64{7})
	if s.Checkpoint() != Saved {
		t.Error("not saved by a snapshot")
	}
	restored := Restore(first, s.limits, after(time.Minute))
	if restored.Checkpoint() != Saved {
		t.Error("a restored session has something to save")
	}
	again := restored.Snapshot([]uint64{7})
	if !bytes.Equal(first.Append(nil), again.Append(nil)) {
		t.Errorf("got  %+v\nwant %+v", again, first)
	}
	if first.Cursors[0] != 4 || len(first.Unacknowledged) != 4 || !first.Unacknowledged[0].Released || first.Unacknowledged[0].PacketID != 2 {
		t.Errorf("%+v", first)
	}
}

func TestWhatOfTheLogARecordNeeds(t *testing.T) {
	r := Record{
		Cursors: []uint64{9, 9, 9, 0},
		Unacknowledged: []Unacknowledged{
			{Ref: Ref{0, 5}, PacketID: 1, QoS: 1},
			{Ref: Ref{0, 4}, PacketID: 2, QoS: 2},
			{Ref: Ref{0, 3}, PacketID: 3, QoS: 2, Released: true},
			{Ref: Ref{1, 9}, PacketID: 4, QoS: 1, Shared: true},
			{Topic: "r", PacketID: 5, QoS: 1},
			{Ref: Ref{7, 1}, PacketID: 6, QoS: 1, Shared: true}, // a shard that no cursor is in
		},
	}
	if got := fmt.Sprint(r.Needs()); got != "[4 9 10 1]" {
		t.Error(got)
	}
}

// A restored session whose part of the log has not been read again yet must not
// be written down as having dealt with it.
func TestTheCursorWaitsUntilTheSessionHasCaughtUp(t *testing.T) {
	s, c := online(Limits{}, v5(60))
	c.Lost(t0)
	give(t, s, 1, 1, 3)
	s = throughRecord(t, s, []uint64{3}, t0)
	for _, tt := range []struct {
		do     func()
		cursor uint64
	}{
		{func() {}, 0},
		{func() { give(t, s, 1, 1, 2) }, 0},
		{func() { sentBy(s.Connect(v5(60), t0), t0) }, 2},
		{s.CaughtUp, 9},
	} {
		tt.do()
		if got := s.Snapshot([]uint64{9}).Cursors[0]; got != tt.cursor {
			t.Errorf("cursor %d, want %d", got, tt.cursor)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	for _, tt := range records {
		f.Add(unhex(f, tt.hex))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseRecord(b)
		if err != nil {
			return
		}
		if again := r.Append(nil); !bytes.Equal(again, b) {
			t.Fatalf("read %x\nwrote %x", b, again)
		}
		s := Restore(r, nil, t0)
		s.Missing(10)
		c := s.Connect(v5(60), t0)
		for _, u := range r.Unacknowledged {
			s.Attach(Want{Ref: u.Ref, Topic: u.Topic}, msg(1))
		}
		for p, step := c.Next(t0); step == Send; p, step = c.Next(t0) {
			c.Puback(p.PacketID, mqtt.Success)
		}
		snapshot := s.Snapshot(r.Cursors)
		if _, err := ParseRecord(snapshot.Append(nil)); err != nil {
			t.Fatalf("%+v: %v", snapshot, err)
		}
	})
}
