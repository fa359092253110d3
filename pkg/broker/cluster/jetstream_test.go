package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Everything is there again after Close and reopening.
func TestReopening(t *testing.T) {
	o := Options{Dir: t.TempDir(), Shards: 2}
	s := openJetStream(t, o)
	var ms []*Message
	for i := range 500 {
		ms = append(ms, message("kept", i))
	}
	ps := appendMany(t, s, ms...)
	named := &Message{Topic: "kept", QoS: 2, Payload: []byte("named"), DedupID: "d"}
	namedAt := appendOne(t, s, named)
	appendOne(t, s, message("kept", 500))
	trimmed := appendOne(t, s, message(topicElsewhere(namedAt.Shard), 1))
	_, end, err := s.Bounds(t.Context(), trimmed.Shard)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Trim(t.Context(), trimmed.Shard, end+1); err != nil {
		t.Fatal(err)
	}
	sessions := s.Records(Sessions)
	mustPut(t, sessions, "gone", "x", None)
	if err := deleteRecord(t, sessions, "gone", Any); err != nil {
		t.Fatal(err)
	}
	mustPut(t, sessions, "stays", "1", None)
	rev := mustPut(t, sessions, "stays", "2", Any)
	setRetained(t, s, &Message{Topic: "r/ends", Retain: true, Payload: []byte("y"), Expires: time.Now().Add(50 * time.Millisecond)})
	retained := setRetained(t, s, &Message{Topic: "r/x", Retain: true, Payload: []byte("y")})
	setRetained(t, s, &Message{Topic: "r/gone", Retain: true, Payload: []byte("y")})
	setRetained(t, s, &Message{Topic: "r/gone", Retain: true})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // the life of a retained message

	s = openJetStream(t, o)
	defer s.Close()
	all := drain(t, s, ps[0].Shard, 0)
	if len(all) != len(ps)+2 {
		t.Fatalf("%d messages, want %d", len(all), len(ps)+2)
	}
	for i, p := range ps {
		if all[i].pos != p || string(all[i].m.Payload) != fmt.Sprint(i) {
			t.Fatalf("message %d: %s at %v, was at %v", i, all[i].m.Payload, all[i].pos, p)
		}
	}
	if again := appendOne(t, s, named); again != namedAt {
		t.Errorf("a DedupID of before: %v, was %v", again, namedAt)
	}
	// What counts for that is not trimmed, so that it is known after a crash.
	_, last, err := s.Bounds(t.Context(), namedAt.Shard)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Trim(t.Context(), namedAt.Shard, last+1); err != nil {
		t.Fatal(err)
	}
	if all := drain(t, s, namedAt.Shard, 0); len(all) == 0 || len(all) > 3 {
		t.Errorf("after trimming, %d messages are there", len(all))
	}
	if again := appendOne(t, s, named); again != namedAt {
		t.Errorf("a DedupID after trimming: %v, was %v", again, namedAt)
	}
	if first, last, err := s.Bounds(t.Context(), trimmed.Shard); err != nil || first != last+1 || last != end {
		t.Errorf("a trimmed shard: bounds %d and %d, ended at %d, %v", first, last, end, err)
	}
	if got, err := s.Records(Sessions).Get(t.Context(), "stays"); err != nil || string(got.Value) != "2" || got.Revision != rev {
		t.Errorf("%+v, %v", got, err)
	}
	if got := records0(t, s.Records(Sessions)); len(got) != 1 {
		t.Errorf("sessions: %v", got)
	}
	news, _ := retaining(t, s)
	for {
		if got := wait(t, news, "expiry"); got.m.Topic == "r/ends" && len(got.m.Payload) == 0 {
			break
		}
	}
	if got := retained0(t, s); len(got) != 1 || got["r/x"] == nil {
		t.Errorf("retained: %v", got)
	}
	if next := setRetained(t, s, &Message{Topic: "r/x", Retain: true, Payload: []byte("z")}); next <= retained {
		t.Errorf("revision %d after %d", next, retained)
	}
}

// topicElsewhere is a topic that belongs to the other one of two shards.
func topicElsewhere(shard int) string {
	for i := 0; ; i++ {
		if topic := fmt.Sprint("elsewhere/", i); shardOf(topic, 2) != shard {
			return topic
		}
	}
}

func TestOpeningFails(t *testing.T) {
	dir := t.TempDir()
	s := openJetStream(t, Options{Dir: dir, Shards: 2})
	_, err := OpenJetStream(t.Context(), Options{Dir: dir, Shards: 2})
	if err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a store that is open: %v", err)
	}
	appendOne(t, s, message("t", 1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "engine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]Options{
		"not a directory":    {Dir: broken},
		"maximum age":        {Dir: dir, MaxAge: time.Second},
		"made with 2 shards": {Dir: dir, Shards: 3},
		"needs a folder":     {},
		"durability":         {Dir: dir, Durability: "2s"},
		"65 shards":          {Dir: dir, Shards: 65},
		"open the store":     {Dir: "/dev/null/x"},
	} {
		if _, err := OpenJetStream(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	s = openJetStream(t, Options{Dir: dir, Shards: 2, MaxBytes: 1 << 30})
	defer s.Close()
	if n := len(drain(t, s, shardOf("t", 2), 0)); n != 1 {
		t.Errorf("%d messages are left", n)
	}
}

func TestAFullStoreRefuses(t *testing.T) {
	appendUntil := func(t *testing.T, s Store) (n int, err error) {
		for n < 10_000 && err == nil {
			done := make(chan error, 1)
			s.Append(&Message{Topic: "t", Payload: make([]byte, 10_000), QoS: 1}, func(_ Pos, e error) { done <- e })
			if err = wait(t, done, "done"); err == nil {
				n++
			}
		}
		return n, err
	}
	t.Run("log", func(t *testing.T) {
		s := openJetStream(t, Options{Dir: t.TempDir(), Durability: EachSecond, MaxBytes: 1 << 20})
		defer s.Close()
		n, err := appendUntil(t, s)
		if !errors.Is(err, ErrFull) || n < 90 || n > 105 {
			t.Errorf("after %d messages of 10 kB in 1 MiB: %v", n, err)
		}
		// Nothing of what was acknowledged is gone, and trimming makes room.
		if got := drain(t, s, 0, 0); len(got) != n {
			t.Errorf("%d messages are there, %d were acknowledged", len(got), n)
		}
		_, last, err := s.Bounds(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Trim(t.Context(), 0, last+1); err != nil {
			t.Fatal(err)
		}
		appendOne(t, s, message("t", 1))
	})
	t.Run("retained messages", func(t *testing.T) {
		s := openJetStream(t, Options{Dir: t.TempDir(), Durability: EachSecond, MaxRetainedBytes: 1 << 20})
		defer s.Close()
		var err error
		n := 0
		for ; n < 1000 && err == nil; n++ {
			done := make(chan error, 1)
			s.SetRetained(&Message{Topic: fmt.Sprint(n), Payload: make([]byte, 10_000)}, func(_ Revision, e error) { done <- e })
			err = wait(t, done, "done")
		}
		if !errors.Is(err, ErrFull) || n < 90 || n > 105 {
			t.Errorf("after %d messages of 10 kB in 1 MiB: %v", n, err)
		}
		setRetained(t, s, &Message{Topic: "5", Payload: make([]byte, 10_000)}) // in place of another
	})
	t.Run("disk", func(t *testing.T) {
		dir := t.TempDir()
		s := openJetStream(t, Options{Dir: dir})
		mustPut(t, s.Records(Sessions), "k", "v", None)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openJetStream(t, Options{Dir: dir, MinFree: 1 << 60})
		defer s.Close()
		if n, err := appendUntil(t, s); n != 0 || !errors.Is(err, ErrFull) {
			t.Errorf("after %d messages: %v", n, err)
		}
		if _, err := putRecord(t, s.Records(Sessions), "k", "w", Any); !errors.Is(err, ErrFull) {
			t.Error(err)
		}
		if err := deleteRecord(t, s.Records(Sessions), "k", Any); err != nil {
			t.Errorf("a deletion: %v", err)
		}
	})
}

func TestWhatIsTooLargeIsRefused(t *testing.T) {
	s := openJetStream(t, Options{Dir: t.TempDir(), MaxPayload: 200_000, MaxTopic: 100})
	defer s.Close()
	long := strings.Repeat(".", 100)
	largest := &Message{Topic: long, Payload: make([]byte, 150_000), Properties: make([]byte, 50_000), Publisher: strings.Repeat("p", 65535), QoS: 1}
	p := appendOne(t, s, largest)
	if got, err := s.Get(t.Context(), p); err != nil {
		t.Error(err)
	} else {
		sameMessage(t, got, largest)
	}
	if got := drain(t, s, 0, 0); len(got) != 1 {
		t.Errorf("%d messages", len(got))
	}
	setRetained(t, s, largest)
	if got := retained0(t, s); got[long] == nil {
		t.Errorf("retained: %v", got)
	}
	mustPut(t, s.Records(Sessions), long, string(make([]byte, 200_000)), None)
	for name, m := range map[string]*Message{
		"topic":   {Topic: long + "x"},
		"id":      {Topic: "t", DedupID: strings.Repeat("d", maxDedupID+1)},
		"payload": {Topic: "t", Payload: make([]byte, 150_001), Properties: make([]byte, 50_000)},
	} {
		done := make(chan error, 2)
		s.Append(m, func(_ Pos, err error) { done <- err })
		s.SetRetained(m, func(_ Revision, err error) { done <- err })
		for range cap(done) {
			if err := wait(t, done, "done"); !errors.Is(err, ErrTooLarge) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if _, err := putRecord(t, s.Records(Sessions), "k", string(make([]byte, 200_001)), None); !errors.Is(err, ErrTooLarge) {
		t.Errorf("record: %v", err)
	}
}

// The connection to the engine breaks again and again: what was not answered is
// sent again, stored once, and in order; compare-and-swap knows its own writes.
func TestALostConnectionLosesNothing(t *testing.T) {
	var log bytes.Buffer // says a lot
	s := openJetStream(t, Options{Dir: t.TempDir(), Durability: EachSecond, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))})
	defer s.Close()
	const writers, each, cuts = 4, 3000, 25
	live, _ := tail(t, s, 0, 0)
	var written, swapped atomic.Int64
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range each {
				m := message(fmt.Sprint("w/", w), i)
				if i%20 == 0 {
					m.DedupID = fmt.Sprint(w, "-", i)
				}
				group.Add(1)
				s.Append(m, func(_ Pos, err error) {
					if err != nil {
						t.Error(err)
					}
					written.Add(1)
					group.Done()
				})
			}
		})
	}
	writing := make(chan struct{})
	go func() { group.Wait(); close(writing) }()
	var swaps sync.WaitGroup
	swaps.Go(func() {
		rev := None
		for i := 0; ; i++ {
			select {
			case <-writing:
				return
			default:
			}
			done := make(chan error, 1)
			s.Records(Sessions).Put("swapped", fmt.Append(nil, i), rev, func(r Revision, err error) { rev = r; done <- err })
			if err := <-done; err != nil {
				t.Errorf("swap %d: %v", i, err)
				return
			}
			swapped.Add(1)
		}
	})
	for cut := range cuts {
		// Each in its part of the way.
		for written.Load() < int64(writers*each*cut/cuts) {
			select {
			case <-writing:
			case <-time.After(time.Millisecond):
			}
		}
		for _, conn := range []interface{ GetClientID() (uint64, error) }{s.engine.write, s.engine.read} {
			if id, err := conn.GetClientID(); err == nil {
				_ = s.engine.server.DisconnectClientByID(id) // it may be down already
			}
		}
	}
	wait(t, writing, "end of writing")
	swaps.Wait()
	if n := s.engine.write.Stats().Reconnects; n == 0 {
		t.Error("the connection was never lost")
	}
	next := map[string]int{}
	for range writers * each {
		got := wait(t, live, "message")
		if string(got.m.Payload) != fmt.Sprint(next[got.m.Topic]) {
			t.Fatalf("%s: message %s where %d was due", got.m.Topic, got.m.Payload, next[got.m.Topic])
		}
		next[got.m.Topic]++
	}
	if got := drain(t, s, 0, 0); len(got) != writers*each {
		t.Errorf("%d messages are stored, want %d", len(got), writers*each)
	}
	t.Logf("%d reconnects, %d swaps", s.engine.write.Stats().Reconnects, swapped.Load())
}

// An engine that does not answer makes writes fail at the deadline, each once,
// and those behind them soon.
func TestASilentEngineIsUnavailable(t *testing.T) {
	const deadline = 300 * time.Millisecond
	for name, silence := range map[string]func(*testing.T, *JetStream){
		"answers are lost": func(t *testing.T, s *JetStream) {
			for _, l := range s.lanes {
				if err := l.sub.Unsubscribe(); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.engine.write.Flush(); err != nil {
				t.Fatal(err)
			}
		},
		"nobody has the stream": func(t *testing.T, s *JetStream) {
			for _, l := range s.lanes {
				if err := s.engine.js.DeleteStream(t.Context(), l.name); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openJetStream(t, Options{
				Dir: t.TempDir(), Deadline: deadline, MaxPending: 8,
				Log: slog.New(slog.DiscardHandler),
			})
			defer s.Close()
			silence(t, s)
			begun := time.Now()
			const n = 20
			done := make(chan error, 3*n)
			var blocked time.Duration
			for i := range n {
				call := time.Now()
				s.Append(message("t", i), func(_ Pos, err error) { done <- err })
				blocked = max(blocked, time.Since(call))
			}
			for i := range n {
				s.Records(Sessions).Put(fmt.Sprint(i), nil, None, func(_ Revision, err error) { done <- err })
				s.SetRetained(message("t", i), func(_ Revision, err error) { done <- err })
			}
			for range cap(done) {
				if err := wait(t, done, "done"); !errors.Is(err, ErrUnavailable) {
					t.Error(err)
				}
			}
			if blocked < deadline/2 {
				t.Errorf("with 8 writes under way, the next one waited %v", blocked)
			}
			if took := time.Since(begun); took > patience {
				t.Errorf("that took %v", took)
			}
		})
	}
}

// A write whose answer was lost is not known to have happened. Who tries again
// with the same DedupID gets the place of the first, and nothing is stored twice.
func TestADedupIDIsKnownThoughTheAnswerWasLost(t *testing.T) {
	s := openJetStream(t, Options{Dir: t.TempDir(), Deadline: 300 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	defer s.Close()
	l := s.logs[0].lane
	before := appendOne(t, s, message("t", 0))
	if err := errors.Join(l.sub.Unsubscribe(), s.engine.write.Flush()); err != nil {
		t.Fatal(err)
	}
	named := &Message{Topic: "t", Payload: []byte("named"), QoS: 2, DedupID: "d"}
	lost := make(chan error, 2)
	s.Append(named, func(_ Pos, err error) { lost <- err }) // is on its way at once
	s.Append(message("t", 1), func(_ Pos, err error) { lost <- err })
	for range cap(lost) {
		if err := wait(t, lost, "done"); !errors.Is(err, ErrUnavailable) {
			t.Fatal(err)
		}
	}
	var err error
	if l.sub, err = s.engine.write.Subscribe(l.inbox+".*.*", l.receive); err != nil {
		t.Fatal(err)
	}
	ps := appendMany(t, s, message("t", 2), named, message("t", 3), named)
	if ps[1] != ps[3] || ps[0].Seq <= before.Seq || ps[2].Seq <= ps[0].Seq || ps[1].Seq >= ps[0].Seq {
		t.Errorf("positions %v, after %v", ps, before)
	}
	if m, err := s.Get(t.Context(), ps[1]); err != nil || string(m.Payload) != "named" {
		t.Errorf("%+v, %v", m, err)
	}
	got := map[string]int{}
	for _, m := range drain(t, s, 0, 0) {
		got[string(m.m.Payload)]++
	}
	for _, name := range []string{"0", "2", "3", "named"} {
		if got[name] != 1 {
			t.Errorf("%s is stored %d times", name, got[name])
		}
	}
}

func TestObserve(t *testing.T) {
	var mu sync.Mutex
	var writes []Write
	s := openJetStream(t, Options{Dir: t.TempDir(), Observe: func(w Write) {
		mu.Lock()
		defer mu.Unlock()
		writes = append(writes, w)
	}})
	defer s.Close()
	var ms []*Message
	for i := range 300 {
		ms = append(ms, message("t", i))
	}
	appendMany(t, s, ms...)
	mustPut(t, s.Records(Sessions), "k", "value", None)
	if _, err := putRecord(t, s.Records(Sessions), "k", "value", None); err == nil {
		t.Error("no conflict")
	}
	setRetained(t, s, message("t", 1))
	mu.Lock()
	defer mu.Unlock()
	messages, failed := map[string]int{}, map[string]int{}
	packs := 0
	for _, w := range writes {
		messages[w.What] += w.Messages
		if w.Err != nil {
			failed[w.What]++
		}
		if w.What == "log" {
			packs++
		}
		if w.Took <= 0 || w.Bytes <= 0 {
			t.Errorf("%+v", w)
		}
	}
	if messages["log"] != 300 || messages["sessions"] != 2 || messages["retained"] != 1 || failed["sessions"] != 1 || failed["log"] != 0 {
		t.Errorf("messages %v, failed %v", messages, failed)
	}
	if packs > 100 {
		t.Errorf("%d writes for 300 messages at once", packs)
	}
}

// Deleted and expired records leave the disk in the end; here, the engine is
// told the marker's time to live.
func TestMarkersEnd(t *testing.T) {
	s := openJetStream(t, Options{Dir: t.TempDir()})
	defer s.Close()
	r := s.Records(Shares).(*records)
	mustPut(t, r, "k", "v", None)
	if err := deleteRecord(t, r, "k", Any); err != nil {
		t.Fatal(err)
	}
	m, err := s.last(context.Background(), r.name, subject(r.prefix, "k"))
	if err != nil || !gone(m.header) || m.header.Get("Nats-TTL") != "60" {
		t.Errorf("%+v, %v", m, err)
	}
}
