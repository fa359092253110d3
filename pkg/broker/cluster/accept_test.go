package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestMemoryStore(t *testing.T) {
	testStore(t, func(t *testing.T) Store { return NewMemory(MemoryOptions{Shards: 2}) })
}

func TestJetStreamStore(t *testing.T) {
	for _, d := range []Durability{Always, EachSecond} {
		t.Run(string(d), func(t *testing.T) {
			testStore(t, func(t *testing.T) Store {
				return openJetStream(t, Options{Dir: t.TempDir(), Durability: d, Shards: 2})
			})
		})
	}
}

// testStore is what every Store has to pass. open gives an empty one of two
// shards; the test closes it.
func testStore(t *testing.T, open func(t *testing.T) Store) {
	for _, tc := range []struct {
		name string
		test func(*testing.T, Store)
	}{
		{"appends of a goroutine to a topic keep their order", testOrder},
		{"a topic stays in its shard", testShard},
		{"a message comes back as it was", testRoundTrip},
		{"the same DedupID is stored once", testDedup},
		{"DedupIDs among other messages keep the order", testDedupOrder},
		{"tail leaves nothing out while appends go on", testTailConcurrent},
		{"tail begins anywhere", testTailFrom},
		{"tail says when it has caught up", testTailReady},
		{"expired messages are not there", testExpired},
		{"trimmed messages are not there", testTrim},
		{"bounds enclose what is there", testBounds},
		{"get of what never was", testGetNothing},
		{"a record's life", testRecord},
		{"buckets are apart", testBuckets},
		{"any key and value", testKeys},
		{"of competing writes one wins", testConflicts},
		{"a counter counted by many loses nothing", testCounter},
		{"list has one level of keys", testList},
		{"watch has all, then ready, then changes", testWatch},
		{"watch has no gap while writes go on", testWatchConcurrent},
		{"watch of an empty bucket is ready", testWatchEmpty},
		{"retained messages are set, replaced and removed", testRetained},
		{"any topic", testRetainedTopics},
		{"a retained message expires", testRetainedExpires},
		{"a retained message set anew lives longer", testRetainedRenewed},
		{"a retained message set anew when it expires stays", testRetainedRace},
		{"after a sync all who read retained messages have them", testSyncRetained},
		{"what ends with ctx tells its error", testContext},
		{"close while busy calls every done once", testCloseBusy},
		{"after close everything is refused", testClosed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			tc.test(t, s)
		})
	}
}

// patience is how long a test waits for what comes at once.
const patience = 20 * time.Second

func wait[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s within %v", what, patience)
		panic("unreachable")
	}
}

type appended struct {
	pos Pos
	err error
}

func appendOne(t *testing.T, s Store, m *Message) Pos {
	t.Helper()
	done := make(chan appended, 1)
	s.Append(m, func(p Pos, err error) { done <- appended{p, err} })
	a := wait(t, done, "done of Append")
	if a.err != nil {
		t.Fatal(a.err)
	}
	if a.pos.Seq == 0 {
		t.Fatal("a message got number 0")
	}
	return a.pos
}

// appendMany appends without waiting in between, and gives the positions in the
// order of the calls of done.
func appendMany(t *testing.T, s Store, ms ...*Message) []Pos {
	t.Helper()
	done := make(chan appended, len(ms))
	for _, m := range ms {
		s.Append(m, func(p Pos, err error) { done <- appended{p, err} })
	}
	var ps []Pos
	for range ms {
		a := wait(t, done, "done of Append")
		if a.err != nil {
			t.Fatal(a.err)
		}
		ps = append(ps, a.pos)
	}
	return ps
}

func putRecord(t *testing.T, r Records, key, value string, expected Revision) (Revision, error) {
	t.Helper()
	type result struct {
		rev Revision
		err error
	}
	done := make(chan result, 1)
	r.Put(key, []byte(value), expected, func(rev Revision, err error) { done <- result{rev, err} })
	got := wait(t, done, "done of Put")
	return got.rev, got.err
}

func mustPut(t *testing.T, r Records, key, value string, expected Revision) Revision {
	t.Helper()
	rev, err := putRecord(t, r, key, value, expected)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func deleteRecord(t *testing.T, r Records, key string, expected Revision) error {
	t.Helper()
	done := make(chan error, 1)
	r.Delete(key, expected, func(err error) { done <- err })
	return wait(t, done, "done of Delete")
}

func setRetained(t *testing.T, s Store, m *Message) Revision {
	t.Helper()
	done := make(chan error, 1)
	var revision Revision
	s.SetRetained(m, func(r Revision, err error) { revision = r; done <- err })
	if err := wait(t, done, "done of SetRetained"); err != nil {
		t.Fatal(err)
	}
	return revision
}

type tailed struct {
	pos Pos
	m   *Message
}

// tail runs a Tail until the test ends.
func tail(t *testing.T, s Store, shard int, seq uint64) (got <-chan tailed, ready <-chan struct{}) {
	t.Helper()
	c, r := make(chan tailed, 100_000), make(chan struct{})
	run(t, func(ctx context.Context) error {
		return s.Tail(ctx, shard, seq, func(p Pos, m *Message) { c <- tailed{p, m} }, func() { close(r) })
	})
	return c, r
}

// run runs a reader until the test ends; it must end with ctx's error.
func run(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := wait(t, ended, "end of a reader"); !errors.Is(err, context.Canceled) && !errors.Is(err, ErrClosed) {
			t.Errorf("a reader ended with %v", err)
		}
	})
}

// drain gives all that a shard has.
func drain(t *testing.T, s Store, shard int, seq uint64) []tailed {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var all []tailed
	err := s.Tail(ctx, shard, seq, func(p Pos, m *Message) { all = append(all, tailed{p, m}) }, cancel)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("Tail ended with %v", err)
	}
	return all
}

func message(topic string, n int) *Message {
	return &Message{Topic: topic, Payload: fmt.Append(nil, n), QoS: 1}
}

func testOrder(t *testing.T, s Store) {
	const writers, each = 8, 500
	var group sync.WaitGroup
	var failed atomic.Int64
	for w := range writers {
		group.Go(func() {
			for i := range each {
				group.Add(1)
				s.Append(message(fmt.Sprint("order/", w), i), func(_ Pos, err error) {
					if err != nil {
						failed.Add(1)
					}
					group.Done()
				})
			}
		})
	}
	group.Wait()
	if n := failed.Load(); n > 0 {
		t.Fatalf("%d appends failed", n)
	}
	next := map[string]int{}
	for shard := range s.Shards() {
		last := uint64(0)
		for _, got := range drain(t, s, shard, 0) {
			if got.pos.Seq <= last || got.pos.Shard != shard {
				t.Fatalf("position %v after number %d in shard %d", got.pos, last, shard)
			}
			last = got.pos.Seq
			if want := fmt.Sprint(next[got.m.Topic]); string(got.m.Payload) != want {
				t.Fatalf("%s: message %s where %s was due", got.m.Topic, got.m.Payload, want)
			}
			next[got.m.Topic]++
		}
	}
	for w := range writers {
		if n := next[fmt.Sprint("order/", w)]; n != each {
			t.Errorf("writer %d: %d messages, want %d", w, n, each)
		}
	}
}

func testShard(t *testing.T, s Store) {
	used := map[int]bool{}
	for i := range 40 {
		topic := fmt.Sprintf("site/%d/temperature", i)
		a, b := appendOne(t, s, message(topic, 1)), appendOne(t, s, message(topic, 2))
		if a.Shard != b.Shard || a.Seq >= b.Seq {
			t.Fatalf("%s: %v, then %v", topic, a, b)
		}
		used[a.Shard] = true
	}
	if len(used) != s.Shards() {
		t.Errorf("40 topics use %d shards of %d", len(used), s.Shards())
	}
}

func testRoundTrip(t *testing.T, s Store) {
	ends := time.Now().Add(time.Hour)
	for _, m := range []*Message{
		{Topic: "a", QoS: 1},
		{Topic: "a/b", QoS: 2, Retain: true, Payload: []byte("x"), Publisher: "p", Properties: []byte{1, 1}, Expires: ends},
		{Topic: "/", QoS: 1, Payload: make([]byte, 300_000), Publisher: "\x00\xff"},
		{Topic: "wild * > . $ é", QoS: 1, Payload: []byte{0}, DedupID: "d"},
	} {
		before := time.Now()
		p := appendOne(t, s, m)
		got, err := s.Get(context.Background(), p)
		if err != nil {
			t.Fatalf("%q: %v", m.Topic, err)
		}
		if got.Time.Before(before.Add(-time.Second)) || got.Time.After(time.Now().Add(time.Second)) {
			t.Errorf("%q: taken at %v, appended at %v", m.Topic, got.Time, before)
		}
		sameMessage(t, got, m)
		all := drain(t, s, p.Shard, p.Seq)
		if len(all) != 1 || all[0].pos != p {
			t.Fatalf("tail from %v gives %v", p, all)
		}
		sameMessage(t, all[0].m, m)
	}
}

func sameMessage(t *testing.T, got, want *Message) {
	t.Helper()
	if got.Topic != want.Topic || string(got.Payload) != string(want.Payload) || got.QoS != want.QoS ||
		got.Retain != want.Retain || string(got.Properties) != string(want.Properties) || got.Publisher != want.Publisher {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got.Expires.IsZero() != want.Expires.IsZero() || got.Expires.UnixMilli() != want.Expires.UnixMilli() {
		t.Errorf("it expires at %v, want %v", got.Expires, want.Expires)
	}
	if got.DedupID != want.DedupID {
		t.Errorf("DedupID %q, want %q", got.DedupID, want.DedupID)
	}
}

func testDedup(t *testing.T, s Store) {
	m := &Message{Topic: "d", Payload: []byte("1"), QoS: 2, DedupID: "once"}
	ps := appendMany(t, s, m, m, message("d", 2), m)
	ps = append(ps, appendOne(t, s, m))
	other := appendOne(t, s, &Message{Topic: "d", Payload: []byte("3"), QoS: 2, DedupID: "another"})
	if ps[1] != ps[0] || ps[3] != ps[0] || ps[4] != ps[0] || ps[2] == ps[0] || other == ps[0] {
		t.Errorf("positions %v, another's %v", ps, other)
	}
	var got []string
	for _, m := range drain(t, s, ps[0].Shard, 0) {
		got = append(got, string(m.m.Payload))
	}
	if !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("stored %v", got)
	}
}

func testDedupOrder(t *testing.T, s Store) {
	const n = 400
	var ms []*Message
	for i := range n {
		m := message("mixed", i)
		if i%3 > 0 {
			m.DedupID = fmt.Sprint("id-", i)
		}
		ms = append(ms, m)
		if i%50 == 49 {
			ms = append(ms, ms[len(ms)-3]) // again, or anew
		}
	}
	ps := appendMany(t, s, ms...)
	next := 0
	for _, got := range drain(t, s, ps[0].Shard, 0) {
		if string(got.m.Payload) == fmt.Sprint(next) {
			next++
		} else if i := ms[slices.IndexFunc(ms, func(m *Message) bool { return string(m.Payload) == string(got.m.Payload) })]; i.DedupID != "" {
			t.Fatalf("message %s where %d was due", got.m.Payload, next)
		}
	}
	if next != n {
		t.Errorf("%d messages of %d in order", next, n)
	}
}

func testTailConcurrent(t *testing.T, s Store) {
	const n = 3000
	shard := shardOf("busy", s.Shards())
	early, _ := tail(t, s, shard, 0)
	var group sync.WaitGroup
	group.Go(func() {
		for i := range n {
			group.Add(1)
			s.Append(message("busy", i), func(_ Pos, err error) {
				if err != nil {
					t.Error(err)
				}
				group.Done()
			})
		}
	})
	// One more begins in the middle, at a place that the first one has seen.
	var at Pos
	for range n / 3 {
		at = wait(t, early, "message").pos
	}
	late, _ := tail(t, s, shard, at.Seq+1)
	group.Wait()
	for name, c := range map[string]<-chan tailed{"from the beginning": early, "from the middle": late} {
		last := at.Seq
		for i := n / 3; i < n; i++ {
			got := wait(t, c, "message")
			if got.pos.Seq <= last || string(got.m.Payload) != fmt.Sprint(i) {
				t.Fatalf("%s: %s at %v where %d was due", name, got.m.Payload, got.pos, i)
			}
			last = got.pos.Seq
		}
	}
}

func testTailFrom(t *testing.T, s Store) {
	var ms []*Message
	for i := range 300 {
		ms = append(ms, message("from", i))
	}
	ps := appendMany(t, s, ms...)
	for _, i := range []int{0, 1, 57, 255, 299} {
		all := drain(t, s, ps[0].Shard, ps[i].Seq)
		if len(all) != 300-i || all[0].pos != ps[i] || string(all[0].m.Payload) != fmt.Sprint(i) {
			t.Errorf("from message %d: %d messages, the first at %v, want %v", i, len(all), all[0].pos, ps[i])
		}
		if all := drain(t, s, ps[0].Shard, ps[i].Seq+1); len(all) != 300-i-1 {
			t.Errorf("from behind message %d: %d messages", i, len(all))
		}
	}
}

func testTailReady(t *testing.T, s Store) {
	for i := range 50 {
		appendOne(t, s, message("r", i))
	}
	shard := shardOf("r", s.Shards())
	got, ready := tail(t, s, shard, 0)
	wait(t, ready, "ready")
	if len(got) != 50 {
		t.Errorf("ready with %d messages of 50", len(got))
	}
	_, last, err := s.Bounds(context.Background(), shard)
	if err != nil {
		t.Fatal(err)
	}
	// At the end, and where there is nothing at all.
	got, ready = tail(t, s, shard, last+1)
	wait(t, ready, "ready")
	_, ready = tail(t, s, 1-shard, 0)
	wait(t, ready, "ready of an empty shard")
	p := appendOne(t, s, message("r", 50))
	if next := wait(t, got, "message"); next.pos != p || next.pos.Seq <= last {
		t.Errorf("got %v, appended at %v, behind %d", next.pos, p, last)
	}
}

func testExpired(t *testing.T, s Store) {
	ends := time.Now().Add(800 * time.Millisecond)
	mortal := func(i int) *Message {
		m := message("e", i)
		m.Expires = ends
		return m
	}
	ps := appendMany(t, s, message("e", 0), mortal(1), message("e", 2), mortal(3))
	last := appendOne(t, s, mortal(4))
	if !t.Run("there at first", func(t *testing.T) {
		if got, err := s.Get(context.Background(), last); err != nil || string(got.Payload) != "4" {
			t.Errorf("got %v, %v", got, err)
		}
	}) {
		return
	}
	time.Sleep(time.Until(ends))
	for _, p := range []Pos{ps[1], ps[3], last} {
		if m, err := s.Get(context.Background(), p); !errors.Is(err, ErrNotFound) {
			t.Errorf("expired: %v, %v", m, err)
		}
	}
	var got []string
	for _, m := range drain(t, s, last.Shard, 0) {
		if m.m == nil {
			got = append(got, "")
		} else {
			got = append(got, string(m.m.Payload))
		}
	}
	// A place with nothing to deliver is told where the engine still has it.
	if got := slices.DeleteFunc(slices.Clone(got), func(s string) bool { return s == "" }); !slices.Equal(got, []string{"0", "2"}) {
		t.Errorf("tail gives %v", got)
	}
	if len(got) < 3 || got[0] != "0" || got[1] != "" || got[2] != "2" {
		t.Errorf("tail gives %q: the place of an expired one is not told", got)
	}
	if m, err := s.Get(context.Background(), ps[2]); err != nil || string(m.Payload) != "2" {
		t.Errorf("beside expired ones: %v, %v", m, err)
	}
}

func testTrim(t *testing.T, s Store) {
	ctx := context.Background()
	var ps []Pos
	for i := range 40 {
		ps = append(ps, appendOne(t, s, message("t", i)))
	}
	shard := ps[0].Shard
	if _, err := s.Get(ctx, ps[3]); err != nil {
		t.Fatal(err)
	}
	if err := s.Trim(ctx, shard, ps[20].Seq); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(ctx, ps[3]); !errors.Is(err, ErrNotFound) {
		t.Errorf("get of a trimmed message: %v", err)
	}
	all := drain(t, s, shard, ps[5].Seq)
	if len(all) != 20 || all[0].pos != ps[20] {
		t.Errorf("tail gives %d messages", len(all))
	}
	first, last, err := s.Bounds(ctx, shard)
	if err != nil || first > ps[20].Seq || first <= ps[19].Seq || last < ps[39].Seq {
		t.Errorf("bounds %d and %d, %v", first, last, err)
	}
	// Everything, and beyond what there is.
	for _, seq := range []uint64{last + 1, last + 1_000_000, 0, 1} {
		if err := s.Trim(ctx, shard, seq); err != nil {
			t.Fatal(err)
		}
		if f, l, err := s.Bounds(ctx, shard); err != nil || f != l+1 || l != last {
			t.Errorf("after trimming all: bounds %d and %d, %v", f, l, err)
		}
	}
	if p := appendOne(t, s, message("t", 40)); p.Seq <= last {
		t.Errorf("%v after %d", p, last)
	}
}

func testBounds(t *testing.T, s Store) {
	ctx := context.Background()
	for shard := range s.Shards() {
		first, last, err := s.Bounds(ctx, shard)
		if err != nil || first != last+1 {
			t.Errorf("empty shard: bounds %d and %d, %v", first, last, err)
		}
	}
	a := appendOne(t, s, message("b", 1))
	first, last, err := s.Bounds(ctx, a.Shard)
	if err != nil || first > a.Seq || last < a.Seq {
		t.Errorf("message at %v: bounds %d and %d, %v", a, first, last, err)
	}
	if b := appendOne(t, s, message("b", 2)); b.Seq <= last {
		t.Errorf("the next one at %v is within the bounds, which end at %d", b, last)
	}
	for _, shard := range []int{-1, s.Shards()} {
		if _, _, err := s.Bounds(ctx, shard); !errors.Is(err, ErrNotFound) {
			t.Errorf("shard %d: %v", shard, err)
		}
	}
}

func testGetNothing(t *testing.T, s Store) {
	p := appendOne(t, s, message("g", 1))
	for _, at := range []Pos{{p.Shard, 0}, {p.Shard, p.Seq - 1}, {p.Shard, p.Seq + 1}, {p.Shard, p.Seq + 1e6}, {1 - p.Shard, p.Seq}, {7, p.Seq}, {-1, p.Seq}} {
		if m, err := s.Get(context.Background(), at); !errors.Is(err, ErrNotFound) {
			t.Errorf("get at %v: %v, %v", at, m, err)
		}
	}
}

func testRecord(t *testing.T, s Store) {
	ctx := context.Background()
	r := s.Records(Sessions)
	if _, err := r.Get(ctx, "k"); !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
	if err := deleteRecord(t, r, "k", Any); err != nil {
		t.Errorf("delete of nothing: %v", err)
	}
	if _, err := putRecord(t, r, "k", "x", 12345); !errors.Is(err, ErrConflict) {
		t.Errorf("put at a revision that never was: %v", err)
	}
	first := mustPut(t, r, "k", "1", None)
	if _, err := putRecord(t, r, "k", "x", None); !errors.Is(err, ErrConflict) {
		t.Errorf("put of what must not exist: %v", err)
	}
	second := mustPut(t, r, "k", "2", first)
	if second <= first {
		t.Errorf("revision %d after %d", second, first)
	}
	if _, err := putRecord(t, r, "k", "x", first); !errors.Is(err, ErrConflict) {
		t.Errorf("put at an old revision: %v", err)
	}
	if err := deleteRecord(t, r, "k", first); !errors.Is(err, ErrConflict) {
		t.Errorf("delete at an old revision: %v", err)
	}
	got, err := r.Get(ctx, "k")
	if err != nil || got.Key != "k" || string(got.Value) != "2" || got.Revision != second || got.Gone {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := deleteRecord(t, r, "k", second); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Get(ctx, "k"); !errors.Is(err, ErrNotFound) {
		t.Errorf("get of a deleted record: %v", err)
	}
	if _, err := putRecord(t, r, "k", "x", second); !errors.Is(err, ErrConflict) {
		t.Errorf("put at the revision of a deleted record: %v", err)
	}
	again := mustPut(t, r, "k", "3", None)
	if again <= second {
		t.Errorf("revision %d after %d", again, second)
	}
	if got, err := r.Get(ctx, "k"); err != nil || string(got.Value) != "3" {
		t.Errorf("got %+v, %v", got, err)
	}
	mustPut(t, r, "k", "4", Any)
	if err := deleteRecord(t, r, "k", Any); err != nil {
		t.Error(err)
	}
}

func testBuckets(t *testing.T, s Store) {
	for _, b := range buckets {
		mustPut(t, s.Records(b), "k", string(b), None)
	}
	for _, b := range buckets {
		if got, err := s.Records(b).Get(context.Background(), "k"); err != nil || string(got.Value) != string(b) {
			t.Errorf("%s: %q, %v", b, got.Value, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a bucket that does not exist")
		}
	}()
	s.Records("other")
}

func testList(t *testing.T, s Store) {
	r := s.Records(Inbound2)
	all := map[string]string{}
	for _, k := range []string{"c/1", "c/2", "c/65535", "c/1/x", "c", "cc/1", "c//1", "d/1", "c/", "wild/*", "a.b/1"} {
		mustPut(t, r, k, "value of "+k, None)
	}
	mustPut(t, r, "c/2", "again", Any)
	mustPut(t, r, "c/3", "", None)
	if err := deleteRecord(t, r, "c/3", Any); err != nil {
		t.Fatal(err)
	}
	for prefix, want := range map[string]map[string]string{
		"c":    {"c/1": "value of c/1", "c/2": "again", "c/65535": "value of c/65535", "c/": "value of c/"},
		"c/1":  {"c/1/x": "value of c/1/x"},
		"a.b":  {"a.b/1": "value of a.b/1"},
		"wild": {"wild/*": "value of wild/*"},
		"none": {},
		"*":    {},
	} {
		clear(all)
		err := r.List(context.Background(), prefix, func(rec Record) {
			all[rec.Key] = string(rec.Value)
			if got, err := r.Get(context.Background(), rec.Key); err != nil || got.Revision != rec.Revision || rec.Gone {
				t.Errorf("%+v is listed, got %+v, %v", rec, got, err)
			}
		})
		if err != nil || !maps.Equal(all, want) {
			t.Errorf("below %q: %v, %v; want %v", prefix, all, err, want)
		}
	}
}

func testKeys(t *testing.T, s Store) {
	r := s.Records(Inbound2)
	want := map[string]string{}
	for _, k := range oddNames {
		want[k] = "value of " + k
	}
	want["empty value"] = ""
	for k, v := range want {
		mustPut(t, r, k, v, None)
	}
	for k, v := range want {
		if got, err := r.Get(context.Background(), k); err != nil || got.Key != k || string(got.Value) != v {
			t.Errorf("%.40q: %+v, %v", k, got, err)
		}
	}
	if got := records0(t, r); !maps.Equal(got, want) {
		t.Errorf("watch gives %d records, want %d", len(got), len(want))
	}
}

// records0 gives all records of a bucket.
func records0(t *testing.T, r Records) map[string]string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	all := map[string]string{}
	err := r.Watch(ctx, func(r Record) {
		if !r.Gone {
			all[r.Key] = string(r.Value)
		} else {
			delete(all, r.Key)
		}
	}, cancel)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("Watch ended with %v", err)
	}
	return all
}

func testConflicts(t *testing.T, s Store) {
	r := s.Records(Sessions)
	rev := None
	for round := range 20 {
		const n = 16
		type result struct {
			rev Revision
			err error
		}
		done := make(chan result, n)
		for i := range n {
			go r.Put("contended", fmt.Append(nil, round, i), rev, func(rev Revision, err error) { done <- result{rev, err} })
		}
		var won []Revision
		for range n {
			switch got := wait(t, done, "done of Put"); {
			case got.err == nil:
				won = append(won, got.rev)
			case !errors.Is(got.err, ErrConflict):
				t.Fatal(got.err)
			}
		}
		if len(won) != 1 || won[0] <= rev {
			t.Fatalf("round %d, from revision %d: winners %v", round, rev, won)
		}
		rev = won[0]
		if round%4 == 3 { // so that they compete for a record that was deleted, too
			if err := deleteRecord(t, r, "contended", rev); err != nil {
				t.Fatal(err)
			}
			rev = None
		}
	}
}

func testCounter(t *testing.T, s Store) {
	const writers, each = 6, 15
	r := s.Records(Shares)
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for range each {
				for {
					n := 0
					expected := None
					rec, err := r.Get(context.Background(), "n")
					if err == nil {
						_, _ = fmt.Sscan(string(rec.Value), &n)
						expected = rec.Revision
					} else if !errors.Is(err, ErrNotFound) {
						t.Error(err)
						return
					}
					done := make(chan error, 1)
					r.Put("n", fmt.Append(nil, n+1), expected, func(_ Revision, err error) { done <- err })
					if err := <-done; err == nil {
						break
					} else if !errors.Is(err, ErrConflict) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	group.Wait()
	if rec, err := r.Get(context.Background(), "n"); err != nil || string(rec.Value) != fmt.Sprint(writers*each) {
		t.Errorf("counted %s, %v", rec.Value, err)
	}
}

// watching runs a Watch until the test ends.
func watching(t *testing.T, r Records) (got <-chan Record, ready <-chan struct{}) {
	t.Helper()
	c, d := make(chan Record, 100_000), make(chan struct{})
	run(t, func(ctx context.Context) error {
		return r.Watch(ctx, func(r Record) { c <- r }, func() { close(d) })
	})
	return c, d
}

func testWatch(t *testing.T, s Store) {
	r := s.Records(Sessions)
	for i := range 100 {
		mustPut(t, r, fmt.Sprint("key-", i), fmt.Sprint(i), None)
	}
	if err := deleteRecord(t, r, "key-0", Any); err != nil {
		t.Fatal(err)
	}
	mustPut(t, r, "key-1", "changed", Any)
	news, ready := watching(t, r)
	wait(t, ready, "ready")
	all := map[string]string{}
	for range len(news) {
		if got := <-news; !got.Gone {
			all[got.Key] = string(got.Value)
		}
	}
	if len(all) != 99 || all["key-1"] != "changed" || all["key-99"] != "99" {
		t.Errorf("ready with %d records, key-1 is %q", len(all), all["key-1"])
	}
	rev := mustPut(t, r, "new", "1", None)
	if got := wait(t, news, "change"); got.Key != "new" || string(got.Value) != "1" || got.Revision != rev || got.Gone {
		t.Errorf("got %+v", got)
	}
	if err := deleteRecord(t, r, "new", rev); err != nil {
		t.Fatal(err)
	}
	if got := wait(t, news, "change"); got.Key != "new" || !got.Gone || got.Value != nil || got.Revision <= rev {
		t.Errorf("got %+v", got)
	}
}

func testWatchConcurrent(t *testing.T, s Store) {
	r := s.Records(Sessions)
	const keys, rounds = 50, 40
	for k := range keys {
		mustPut(t, r, fmt.Sprint(k), "0", None)
	}
	var group sync.WaitGroup
	half := make(chan struct{})
	group.Go(func() {
		for i := 1; i <= rounds; i++ {
			if i == rounds/2 {
				close(half)
			}
			for k := range keys {
				group.Add(1)
				r.Put(fmt.Sprint(k), fmt.Append(nil, i), Any, func(_ Revision, err error) {
					if err != nil {
						t.Error(err)
					}
					group.Done()
				})
			}
		}
	})
	<-half
	news, ready := watching(t, r)
	wait(t, ready, "ready")
	seen := map[string]int{}
	take := func(got Record) {
		n := 0
		_, _ = fmt.Sscan(string(got.Value), &n)
		if n < seen[got.Key] {
			t.Errorf("%s: %d after %d", got.Key, n, seen[got.Key])
		}
		seen[got.Key] = n
	}
	for range len(news) {
		take(<-news)
	}
	if len(seen) != keys {
		t.Errorf("ready with %d records of %d", len(seen), keys)
	}
	group.Wait()
	for settled := 0; settled < keys; {
		settled = 0
		for k := range keys {
			if seen[fmt.Sprint(k)] == rounds {
				settled++
			}
		}
		if settled < keys {
			take(wait(t, news, "change"))
		}
	}
}

func testWatchEmpty(t *testing.T, s Store) {
	_, ready := watching(t, s.Records(Shares))
	wait(t, ready, "ready")
	loaded := make(chan struct{})
	run(t, func(ctx context.Context) error {
		return s.Retained(ctx, func(*Message, Revision) {}, func() { close(loaded) })
	})
	wait(t, loaded, "ready of retained messages")
}

type retainedChange struct {
	m   *Message
	rev Revision
}

func retaining(t *testing.T, s Store) (got <-chan retainedChange, ready <-chan struct{}) {
	t.Helper()
	c, r := make(chan retainedChange, 100_000), make(chan struct{})
	run(t, func(ctx context.Context) error {
		return s.Retained(ctx, func(m *Message, rev Revision) { c <- retainedChange{m, rev} }, func() { close(r) })
	})
	return c, r
}

// retained0 gives all retained messages.
func retained0(t *testing.T, s Store) map[string]*Message {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	all := map[string]*Message{}
	err := s.Retained(ctx, func(m *Message, _ Revision) {
		if len(m.Payload) > 0 {
			all[m.Topic] = m
		} else {
			delete(all, m.Topic)
		}
	}, cancel)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("Retained ended with %v", err)
	}
	return all
}

func testRetained(t *testing.T, s Store) {
	full := &Message{Topic: "r/1", QoS: 2, Retain: true, Payload: []byte("x"), Publisher: "p", Properties: []byte{1, 1}, Expires: time.Now().Add(time.Hour)}
	first := setRetained(t, s, full)
	news, ready := retaining(t, s)
	wait(t, ready, "ready")
	if len(news) != 1 {
		t.Fatalf("ready with %d messages", len(news))
	}
	got := <-news
	sameMessage(t, got.m, full)
	if got.rev != first {
		t.Errorf("revision %d, set at %d", got.rev, first)
	}
	second := setRetained(t, s, &Message{Topic: "r/1", QoS: 0, Retain: true, Payload: []byte("y")})
	if got := wait(t, news, "change"); string(got.m.Payload) != "y" || got.rev != second || second <= first || !got.m.Expires.IsZero() {
		t.Errorf("got %+v at %d, set at %d after %d", got.m, got.rev, second, first)
	}
	gone := setRetained(t, s, &Message{Topic: "r/1", Retain: true})
	if got := wait(t, news, "change"); got.m.Topic != "r/1" || len(got.m.Payload) > 0 || got.rev != gone || gone <= second {
		t.Errorf("got %+v at %d, removed at %d", got.m, got.rev, gone)
	}
	setRetained(t, s, &Message{Topic: "never/was", Retain: true})
	setRetained(t, s, &Message{Topic: "late", Retain: true, Payload: []byte("z"), Expires: time.Now().Add(-time.Second)})
	setRetained(t, s, &Message{Topic: "r/2", Retain: true, Payload: []byte("z")})
	if all := retained0(t, s); len(all) != 1 || all["r/2"] == nil {
		t.Errorf("there are %v", all)
	}
}

// oddNames are topics that an engine might take for something else.
var oddNames = []string{
	"a", "a/b", "/", "//", "a//b", "/a", "a/", ".", "a.b", "a/b.c", "*", ">", "a/*", "a/>", "=", "==", "=2E", "a/=/b",
	" ", "a b", "\t", "a\r\nb", "\x7f", "\x01", "$SYS/x", "$JS.API.STREAM.INFO", "$", "é/ü", "日本/語", "\U0001F600", "mq.r.a",
	string(make([]byte, 0)) + "x", longName("a"), longName("/"), longName("."), longName("é"),
}

// longName is a name of 4 KiB.
func longName(of string) string {
	b := make([]byte, 0, 4<<10)
	for len(b)+len(of) <= 4<<10 {
		b = append(b, of...)
	}
	return string(b)
}

func testRetainedTopics(t *testing.T, s Store) {
	for i, topic := range oddNames {
		setRetained(t, s, &Message{Topic: topic, Retain: true, Payload: fmt.Append(nil, i)})
		p := appendOne(t, s, message(topic, i))
		if m, err := s.Get(context.Background(), p); err != nil || m.Topic != topic {
			t.Errorf("%.40q in the log: %v", topic, err)
		}
	}
	all := retained0(t, s)
	if len(all) != len(oddNames) {
		t.Errorf("%d messages, want %d", len(all), len(oddNames))
	}
	for i, topic := range oddNames {
		if m := all[topic]; m == nil || string(m.Payload) != fmt.Sprint(i) {
			t.Errorf("%.40q: %v", topic, m)
		}
	}
	news, ready := retaining(t, s)
	wait(t, ready, "ready")
	for range oddNames {
		<-news
	}
	for _, topic := range oddNames {
		setRetained(t, s, &Message{Topic: topic, Retain: true})
		if got := wait(t, news, "removal"); got.m.Topic != topic || len(got.m.Payload) > 0 {
			t.Errorf("removed %.40q, got %+v", topic, got.m)
		}
	}
}

func testRetainedExpires(t *testing.T, s Store) {
	setRetained(t, s, &Message{Topic: "mortal", Retain: true, Payload: []byte("x"), Expires: time.Now().Add(400 * time.Millisecond)})
	setRetained(t, s, &Message{Topic: "not", Retain: true, Payload: []byte("x"), Expires: time.Now().Add(time.Hour)})
	news, ready := retaining(t, s)
	wait(t, ready, "ready")
	for {
		if got := wait(t, news, "expiry"); len(got.m.Payload) == 0 {
			if got.m.Topic != "mortal" {
				t.Errorf("%q expired", got.m.Topic)
			}
			break
		}
	}
	if all := retained0(t, s); len(all) != 1 || all["not"] == nil {
		t.Errorf("there are %v", all)
	}
}

func testRetainedRenewed(t *testing.T, s Store) {
	const life, rest = 700 * time.Millisecond, 200 * time.Millisecond
	set := func(topic, value string, ends time.Time) {
		setRetained(t, s, &Message{Topic: topic, Retain: true, Payload: []byte(value), Expires: ends})
	}
	news, _ := retaining(t, s)
	set("kept", "0", time.Now().Add(life))
	set("kept", "1", time.Time{})
	tick := time.NewTicker(rest)
	defer tick.Stop()
	var last time.Time
	for i := range 6 {
		last = time.Now()
		set("renewed", fmt.Sprint(i), last.Add(life))
		<-tick.C
	}
	for {
		// "0" may have come to its end on a machine so busy that "1" came too late.
		if got := wait(t, news, "expiry"); len(got.m.Payload) == 0 && got.m.Topic != "kept" {
			if after := time.Since(last); got.m.Topic != "renewed" || after < life-time.Millisecond {
				t.Errorf("%v after the last one was set: %+v", after, got.m)
			}
			break
		}
	}
	if all := retained0(t, s); len(all) != 1 || string(all["kept"].Payload) != "1" {
		t.Errorf("there are %v", all)
	}
}

// An engine that ends a message while it is set anew must not take the new one
// away: nats-server's own expiry does, now and then.
func testRetainedRace(t *testing.T, s Store) {
	const n, life = 1000, 500 * time.Millisecond
	set := func(value string, life time.Duration) {
		var group sync.WaitGroup
		ends := time.Now().Add(life)
		for i := range n {
			group.Add(1)
			s.SetRetained(&Message{Topic: fmt.Sprint(i), Retain: true, Payload: []byte(value), Expires: ends}, func(_ Revision, err error) {
				if err != nil {
					t.Error(err)
				}
				group.Done()
			})
		}
		group.Wait()
	}
	news, _ := retaining(t, s)
	set("old", life)
	for len(wait(t, news, "expiry").m.Payload) > 0 {
	}
	set("new", time.Hour)
	if got := retained0(t, s); len(got) != n {
		t.Errorf("%d messages are there, %d were set", len(got), n)
	}
}

func testSyncRetained(t *testing.T, s Store) {
	ctx := context.Background()
	if err := s.SyncRetained(ctx); err != nil {
		t.Errorf("with nobody who reads: %v", err)
	}
	var told [3]atomic.Int64
	for i := range told {
		run(t, func(ctx context.Context) error {
			return s.Retained(ctx, func(m *Message, _ Revision) {
				n := int64(0)
				_, _ = fmt.Sscan(string(m.Payload), &n)
				told[i].Store(n)
			}, func() {})
		})
	}
	var group sync.WaitGroup
	for n := range 200 {
		setRetained(t, s, &Message{Topic: fmt.Sprint("t/", n%7), Retain: true, Payload: fmt.Append(nil, n)})
		if n%5 > 0 {
			continue
		}
		check := func() {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			if err := s.SyncRetained(ctx); err != nil {
				t.Error(err)
			}
			for i := range told {
				if got := told[i].Load(); got < int64(n) {
					t.Errorf("reader %d has had %d after a sync behind %d", i, got, n)
				}
			}
		}
		check()
		group.Go(check) // several at a time
	}
	group.Wait()
	gone, cancel := context.WithCancelCause(ctx)
	stuck, release := make(chan struct{}), make(chan struct{})
	run(t, func(ctx context.Context) error {
		var once sync.Once
		return s.Retained(ctx, func(*Message, Revision) { once.Do(func() { close(stuck); <-release }) }, func() {})
	})
	wait(t, stuck, "a reader that hangs")
	ended := make(chan error, 1)
	go func() { ended <- s.SyncRetained(gone) }()
	why := errors.New("enough")
	cancel(why)
	if err := wait(t, ended, "end of a sync"); !errors.Is(err, why) && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(release)
	if err := s.SyncRetained(ctx); err != nil {
		t.Error(err)
	}
}

func testContext(t *testing.T, s Store) {
	why := errors.New("enough")
	for name, f := range map[string]func(context.Context) error{
		"Tail": func(ctx context.Context) error {
			return s.Tail(ctx, 0, 0, func(Pos, *Message) {}, nil)
		},
		"Watch": func(ctx context.Context) error {
			return s.Records(Shares).Watch(ctx, func(Record) {}, func() {})
		},
		"Retained": func(ctx context.Context) error {
			return s.Retained(ctx, func(*Message, Revision) {}, func() {})
		},
	} {
		ctx, cancel := context.WithCancelCause(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- f(ctx) }()
		cancel(why)
		if err := wait(t, ended, "end"); !errors.Is(err, why) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func testCloseBusy(t *testing.T, s Store) {
	const enough = 2000
	var stored atomic.Int64
	var refused atomic.Bool
	var pending sync.WaitGroup
	busy := make(chan struct{})
	once := func() func(error) {
		pending.Add(1)
		var n atomic.Int32
		return func(err error) {
			if n.Add(1) > 1 {
				t.Error("done was called twice")
				return
			}
			if err == nil {
				if stored.Add(1) == enough {
					close(busy)
				}
			} else if refused.Store(true); !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
			pending.Done()
		}
	}
	var group sync.WaitGroup
	for w := range 6 {
		group.Go(func() {
			for i := 0; !refused.Load(); i++ {
				done := once()
				switch w % 3 {
				case 0:
					s.Append(message(fmt.Sprint("c/", w), i), func(_ Pos, err error) { done(err) })
				case 1:
					s.Records(Sessions).Put(fmt.Sprint(w, i%100), []byte("x"), Any, func(_ Revision, err error) { done(err) })
				case 2:
					s.SetRetained(message(fmt.Sprint("c/", w, i%100), i), func(_ Revision, err error) { done(err) })
				}
			}
		})
	}
	ended := make(chan error, 3)
	go func() { ended <- s.Tail(context.Background(), 0, 0, func(Pos, *Message) {}, nil) }()
	go func() { ended <- s.Records(Sessions).Watch(context.Background(), func(Record) {}, func() {}) }()
	go func() { ended <- s.Retained(context.Background(), func(*Message, Revision) {}, func() {}) }()
	wait(t, busy, "writes")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for range cap(ended) {
		if err := wait(t, ended, "end of a reader"); !errors.Is(err, ErrClosed) {
			t.Errorf("a reader ended with %v", err)
		}
	}
	group.Wait()
	all := make(chan struct{})
	go func() { pending.Wait(); close(all) }()
	wait(t, all, "done of each write")
}

func testClosed(t *testing.T, s Store) {
	ctx := context.Background()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func() error{
		"Append": func() error {
			done := make(chan error, 1)
			s.Append(message("c", 1), func(_ Pos, err error) { done <- err })
			return wait(t, done, "done")
		},
		"SetRetained": func() error {
			done := make(chan error, 1)
			s.SetRetained(message("c", 1), func(_ Revision, err error) { done <- err })
			return wait(t, done, "done")
		},
		"Put":      func() error { _, err := putRecord(t, s.Records(Sessions), "k", "v", Any); return err },
		"Delete":   func() error { return deleteRecord(t, s.Records(Sessions), "k", Any) },
		"Tail":     func() error { return s.Tail(ctx, 0, 0, func(Pos, *Message) {}, nil) },
		"Get":      func() error { _, err := s.Get(ctx, Pos{0, 1 << 20}); return err },
		"Bounds":   func() error { _, _, err := s.Bounds(ctx, 0); return err },
		"Trim":     func() error { return s.Trim(ctx, 0, 1) },
		"Retained": func() error { return s.Retained(ctx, func(*Message, Revision) {}, func() {}) },
		"a record's Get": func() error {
			_, err := s.Records(Shares).Get(ctx, "k")
			return err
		},
		"List":         func() error { return s.Records(Shares).List(ctx, "k", func(Record) {}) },
		"SyncRetained": func() error { return s.SyncRetained(ctx) },
		"Watch":        func() error { return s.Records(Shares).Watch(ctx, func(Record) {}, func() {}) },
	} {
		if err := f(); !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
}
