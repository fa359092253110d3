package cluster

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"
)

func itoa(i int) string { return strconv.Itoa(i) }

func TestPackRoundTrip(t *testing.T) {
	taken := time.Unix(1_700_000_000, 5)
	ms := []*Message{
		{Topic: "a", QoS: 1},
		{},
		{Topic: "t", Payload: bytes.Repeat([]byte("p"), 70_000), QoS: 2, Retain: true, Properties: []byte{1, 1}, Publisher: "c", Expires: time.UnixMilli(1_800_000_000_123), DedupID: "d"},
		{Topic: "t", Expires: time.UnixMilli(1)},
	}
	b := appendPackHeader(nil, len(ms))
	size := len(b)
	for _, m := range ms {
		b = appendMessage(b, m)
		size += encodedSize(m)
	}
	if len(b) > size {
		t.Errorf("%d bytes, expected were at most %d", len(b), size)
	}
	got, err := parsePack(b, taken)
	if err != nil || len(got) != len(ms) {
		t.Fatalf("%d messages, %v", len(got), err)
	}
	for i := range got {
		sameMessage(t, &got[i], ms[i])
		if !got[i].Time.Equal(taken) {
			t.Errorf("taken at %v", got[i].Time)
		}
	}
	for n := range b {
		if _, err := parsePack(b[:n], taken); err == nil {
			t.Errorf("the first %d bytes pass for a pack", n)
		}
	}
	if _, err := parsePack(append(b, 0), taken); err == nil {
		t.Error("a pack with a byte behind it")
	}
	if _, err := parsePack([]byte{9, 0}, taken); err == nil {
		t.Error("a pack of another version")
	}
}

func TestSequenceNumbersOfAPack(t *testing.T) {
	for _, tc := range []struct {
		engine uint64
		index  int
	}{{1, 0}, {1, maxPack - 1}, {2, 0}, {math.MaxUint64 >> indexBits, maxPack - 1}} {
		if seq := seqOf(tc.engine, tc.index); engineSeq(seq) != tc.engine || seq-seqOf(tc.engine, 0) != uint64(tc.index) {
			t.Errorf("%v: %d", tc, seq)
		}
	}
	if seqOf(1, maxPack-1)+1 != seqOf(2, 0) {
		t.Error("packs are not next to each other")
	}
}

// What passes for a pack is one: written again, it reads the same.
func FuzzPack(f *testing.F) {
	f.Add(appendMessage(appendPackHeader(nil, 1), &Message{Topic: "a", Payload: []byte("p"), Publisher: "c", Properties: []byte{1, 1}, Expires: time.UnixMilli(1e12), DedupID: "d"}))
	f.Add([]byte{1, 0})
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		ms, err := parsePack(b, time.Time{})
		if err != nil {
			return
		}
		again := appendPackHeader(nil, len(ms))
		for i := range ms {
			if ms[i].Expires.Before(time.UnixMilli(0)) {
				t.Skip("beyond what a time can hold")
			}
			again = appendMessage(again, &ms[i])
		}
		ms2, err := parsePack(again, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range ms {
			ms[i].Properties, ms2[i].Properties = nonNil(ms[i].Properties), nonNil(ms2[i].Properties)
		}
		if !reflect.DeepEqual(ms, ms2) {
			t.Errorf("%+v, then %+v", ms, ms2)
		}
	})
}

func nonNil(b []byte) []byte { return append([]byte{}, b...) }

func TestAppendMessageDoesNotAllocate(t *testing.T) {
	m := &Message{Topic: "site/1/temperature", Payload: make([]byte, 100), QoS: 1, Publisher: "p", Expires: time.UnixMilli(1e12)}
	buf := make([]byte, 0, encodedSize(m))
	if n := testing.AllocsPerRun(100, func() { buf = appendMessage(buf[:0], m) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// A message that expires later than all of a pack decides how long the engine
// keeps the pack; one that never does keeps it for good.
func TestAPackLivesAsLongAsItsLastMessage(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	in := func(d time.Duration) *Message { return &Message{Topic: "t", Expires: now.Add(d)} }
	for _, tc := range []struct {
		messages []*Message
		want     string // seconds
	}{
		{[]*Message{{Topic: "t"}}, ""},
		{[]*Message{in(10 * time.Second)}, "10"},
		{[]*Message{in(1500 * time.Millisecond), in(time.Second)}, "2"},
		{[]*Message{in(time.Second), in(time.Minute), in(time.Second)}, "60"},
		{[]*Message{in(time.Second), {Topic: "t"}, in(time.Minute)}, ""},
		{[]*Message{{Topic: "t"}, in(time.Second)}, ""},
		{[]*Message{in(-time.Second)}, "1"},
	} {
		var f frame
		for _, m := range tc.messages {
			f.jobs = append(f.jobs, &job{message: m})
		}
		f.encodePack("s", "id", now)
		if got := f.msg.Header.Get("Nats-TTL"); got != tc.want {
			t.Errorf("%v: time to live %q, want %q", tc.messages, got, tc.want)
		}
	}
}

func TestWaves(t *testing.T) {
	entry := func(bytes int) *job { return &job{bytes: bytes, message: &Message{}} }
	named := func(id string) *job { return &job{bytes: 1, message: &Message{DedupID: id}} }
	record := func(key int) *job { return &job{bytes: 10, put: &put{subject: fmt.Sprint(key)}} }
	repeat := func(n int, j func(int) *job) (js []*job) {
		for i := range n {
			js = append(js, j(i))
		}
		return js
	}
	for _, tc := range []struct {
		name   string
		jobs   []*job
		taken  int
		frames []int // jobs of each
	}{
		{"messages share a pack", []*job{entry(1), entry(1), entry(1)}, 3, []int{3}},
		{"with a name, too", []*job{named("a"), entry(1), named("b")}, 3, []int{3}},
		{"a pack has a size", []*job{entry(60_000), entry(5_000), entry(5_000)}, 2, []int{2}},
		{"a large one goes alone", []*job{entry(5_000_000), entry(1)}, 1, []int{1}},
		{"a large one waits for the next wave", []*job{entry(1), entry(5_000_000)}, 1, []int{1}},
		{"a pack has a number", repeat(maxPack+1, func(int) *job { return entry(1) }), maxPack, []int{maxPack}},
		{"records go one by one", []*job{record(1), record(2), record(3)}, 3, []int{1, 1, 1}},
		{"the same record waits for the next wave", []*job{record(1), record(2), record(1), record(3)}, 2, []int{1, 1}},
		{"a wave has a size", repeat(30, func(i int) *job { return &job{bytes: 200_000, put: &put{subject: fmt.Sprint(i)}} }), 2, []int{1, 1}},
		{"a wave has a number", repeat(waveFrames+1, record), waveFrames, slices.Repeat([]int{1}, waveFrames)},
	} {
		var wr writer = &logWriter{log: &shardLog{known: newDedup()}, ids: make(map[string]*job)}
		if tc.jobs[0].put != nil {
			wr = newRecordWriter(nil)
		}
		l := lane{s: &JetStream{disk: &disk{minFree: -1}}, writer: wr}
		var w wave
		n := 0
		for n < len(tc.jobs) && l.add(&w, tc.jobs[n], false) {
			n++
		}
		var frames []int
		for _, f := range w.frames {
			frames = append(frames, len(f.jobs))
		}
		if n != tc.taken || !slices.Equal(frames, tc.frames) {
			t.Errorf("%s: took %d into %v, want %d into %v", tc.name, n, frames, tc.taken, tc.frames)
		}
	}
}

// In a pack is what is not in the log, and what is there twice is there once.
func TestAPackHasEachDedupIDOnce(t *testing.T) {
	known := newDedup()
	known.add("old", seqOf(7, 5), time.Now())
	lw := &logWriter{log: &shardLog{known: known}, ids: make(map[string]*job)}
	var w wave
	var places []uint64
	for _, id := range []string{"old", "a", "", "a", "b", "old", ""} {
		j := &job{message: &Message{DedupID: id}, appended: func(p Pos, _ error) { places = append(places, p.Seq) }}
		if !lw.add(&w, j) {
			t.Fatal("no room")
		}
	}
	f := w.frames[0]
	if !f.encodePack("s", "id", time.Now()) {
		t.Fatal("nothing to write")
	}
	var ids []string
	pack, err := parsePack(f.msg.Data, time.Now())
	for i := range pack {
		ids = append(ids, pack[i].DedupID)
	}
	if err != nil || !slices.Equal(ids, []string{"a", "", "b", ""}) {
		t.Errorf("a pack of %q, %v", ids, err)
	}
	for _, j := range f.jobs {
		j.done(9, nil)
	}
	want := []uint64{seqOf(7, 5), seqOf(9, 0), seqOf(9, 1), seqOf(9, 0), seqOf(9, 2), seqOf(7, 5), seqOf(9, 3)}
	if !slices.Equal(places, want) {
		t.Errorf("places %d, want %d", places, want)
	}
	w = wave{}
	lw.add(&w, &job{message: &Message{DedupID: "old"}})
	if w.frames[0].encodePack("s", "id", time.Now()) {
		t.Error("what is known is written again")
	}
}

func TestDedupIDsCountForMoreThanTwoMinutes(t *testing.T) {
	d := newDedup()
	start := time.Unix(1_700_000_000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	d.add("", 1, at(0))
	d.add("a", 2, at(0))
	d.add("b", 3, at(60))
	d.add("a", 4, at(60)) // the first one counts
	for _, tc := range []struct {
		now    int
		id     string
		seq    uint64
		oldest uint64
	}{
		{60, "a", 2, 2}, {149, "a", 2, 2}, {150, "a", 0, 3}, {150, "b", 3, 3}, {209, "b", 3, 3}, {210, "b", 0, 0}, {210, "", 0, 0},
	} {
		if seq, ok := d.get(tc.id, at(tc.now)); seq != tc.seq || ok != (seq > 0) {
			t.Errorf("after %d s: %q is at %d, want %d", tc.now, tc.id, seq, tc.seq)
		}
		if seq, _ := d.oldest(at(tc.now)); seq != tc.oldest {
			t.Errorf("after %d s: the oldest is %d, want %d", tc.now, seq, tc.oldest)
		}
	}
	if len(d.byID) != 0 || len(d.order) != 0 {
		t.Error("something is kept for ever")
	}
}
