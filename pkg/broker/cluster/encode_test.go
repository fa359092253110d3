package cluster

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
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
		{Topic: "t", Payload: bytes.Repeat([]byte("p"), 70_000), QoS: 2, Retain: true, Properties: []byte{1, 1}, Publisher: "c", Expires: time.UnixMilli(1_800_000_000_123)},
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
	f.Add(appendMessage(appendPackHeader(nil, 1), &Message{Topic: "a", Payload: []byte("p"), Publisher: "c", Properties: []byte{1, 1}, Expires: time.UnixMilli(1e12)}))
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
		var w wave
		for _, m := range tc.messages {
			if !w.add(&job{began: now, bytes: encodedSize(m), message: m}, time.Time{}, false) {
				t.Fatal("no room")
			}
		}
		w.frames[0].encode("s", "id", now)
		if got := w.frames[0].msg.Header.Get("Nats-TTL"); len(w.frames) != 1 || got != tc.want {
			t.Errorf("%v: %d frames, time to live %q, want %q", tc.messages, len(w.frames), got, tc.want)
		}
	}
}

func TestWaves(t *testing.T) {
	entry := func(bytes int) *job { return &job{bytes: bytes, message: &Message{}} }
	named := func(bytes int) *job { return &job{bytes: bytes, message: &Message{DedupID: "d"}} }
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
		{"a named one stays alone", []*job{named(1), named(1), entry(1)}, 1, []int{1}},
		{"a named one ends a pack", []*job{entry(1), entry(1), named(1), entry(1)}, 2, []int{2}},
		{"a pack has a size", []*job{entry(60_000), entry(5_000), entry(5_000)}, 2, []int{2}},
		{"a large one goes alone", []*job{entry(5_000_000), entry(1)}, 1, []int{1}},
		{"a large one waits for the next wave", []*job{entry(1), entry(5_000_000)}, 1, []int{1}},
		{"a pack has a number", repeat(maxPack+1, func(int) *job { return entry(1) }), maxPack, []int{maxPack}},
		{"records go one by one", []*job{record(1), record(2), record(3)}, 3, []int{1, 1, 1}},
		{"the same record waits for the next wave", []*job{record(1), record(2), record(1), record(3)}, 2, []int{1, 1}},
		{"a wave has a size", repeat(30, func(i int) *job { return &job{bytes: 200_000, put: &put{subject: fmt.Sprint(i)}} }), 2, []int{1, 1}},
		{"a wave has a number", repeat(waveFrames+1, record), waveFrames, slicesRepeat(1, waveFrames)},
	} {
		var w wave
		n := 0
		for n < len(tc.jobs) && w.add(tc.jobs[n], time.Time{}, false) {
			n++
		}
		var frames []int
		for _, f := range w.frames {
			frames = append(frames, len(f.jobs))
		}
		if n != tc.taken || !reflect.DeepEqual(frames, tc.frames) {
			t.Errorf("%s: took %d into %v, want %d into %v", tc.name, n, frames, tc.taken, tc.frames)
		}
	}
}

func slicesRepeat(v, n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = v
	}
	return s
}
