package cluster

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// recorder notes what happens in a test of faults.
type recorder struct {
	mu     sync.Mutex
	events []string
}

func (r *recorder) append(s Store, name string) {
	s.Append(&Message{Topic: "t", Payload: []byte(name), QoS: 1}, func(_ Pos, err error) { r.note(name, err) })
}

func (r *recorder) note(name string, err error) {
	if err != nil {
		name += ": " + err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, name)
}

// expect waits until nothing more happens.
func (r *recorder) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.events, want) {
		t.Errorf("happened: %q, want %q", r.events, want)
	}
	r.events = nil
}

// expectSet is expect where the order is not given: a reader's calls and those
// of done come side by side.
func (r *recorder) expectSet(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	slices.Sort(r.events)
	r.mu.Unlock()
	r.expect(t, want...)
}

func TestMemoryFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(MemoryOptions{})
		defer m.Close()
		var r recorder
		m.Fail(Appends, ErrFull)
		r.append(m, "a")
		m.Records(Sessions).Put("k", nil, None, func(_ Revision, err error) { r.note("put", err) })
		r.expect(t, "a: "+ErrFull.Error(), "put")
		m.Fail(Appends, nil)
		m.Fail(RecordWrites, ErrUnavailable)
		m.Fail(RetainedWrites, ErrFull)
		r.append(m, "b")
		m.Records(Sessions).Delete("k", Any, func(err error) { r.note("delete", err) })
		m.SetRetained(message("t", 1), func(_ Revision, err error) { r.note("retain", err) })
		r.expect(t, "b", "delete: "+ErrUnavailable.Error(), "retain: "+ErrFull.Error())
		if got := drain(t, m, 0, 0); len(got) != 1 || string(got[0].m.Payload) != "b" {
			t.Errorf("stored: %v", got)
		}
		if _, err := m.Records(Sessions).Get(context.Background(), "k"); err != nil {
			t.Errorf("a delete that failed: %v", err)
		}
	})
}

func TestMemoryHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(MemoryOptions{})
		defer m.Close()
		var r recorder
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go m.Tail(ctx, 0, 0, func(_ Pos, m *Message) { r.note("tail "+string(m.Payload), nil) }, nil)

		release, again := m.Hold(Appends), m.Hold(Appends)
		r.append(m, "a")
		r.append(m, "b")
		r.expect(t)
		release()
		release() // is nothing more
		r.expect(t)
		again()
		r.expectSet(t, "a", "b", "tail a", "tail b")

		release = m.HoldAcks(Appends)
		r.append(m, "c")
		r.append(m, "d")
		r.expect(t, "tail c", "tail d")
		release()
		r.expect(t, "c", "d")

		_ = m.Hold(Appends)
		r.append(m, "e")
		m.Close()
		r.expectSet(t, "e", "tail e")
	})
}

func TestMemoryBoundsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(MemoryOptions{MaxPending: 2})
		defer m.Close()
		release := m.HoldAcks(Appends)
		var r recorder
		go func() {
			for _, name := range []string{"a", "b", "c", "d"} {
				r.append(m, name)
				r.note("called "+name, nil)
			}
		}()
		r.expect(t, "called a", "called b")
		release()
		r.expectSet(t, "a", "b", "c", "called c", "called d", "d")
	})
}

func TestMemoryKeepsTimeOfItsBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(MemoryOptions{})
		defer m.Close()
		setRetained(t, m, &Message{Topic: "k", Payload: []byte("v"), Expires: time.Now().Add(24 * time.Hour)})
		p := appendOne(t, m, &Message{Topic: "t", QoS: 2, DedupID: "d"})
		if again := appendOne(t, m, &Message{Topic: "t", QoS: 2, DedupID: "d"}); again != p {
			t.Errorf("%v, then %v", p, again)
		}
		time.Sleep(24*time.Hour - time.Nanosecond)
		synctest.Wait()
		if all := retained0(t, m); all["k"] == nil {
			t.Error("a retained message has ended early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if all := retained0(t, m); all["k"] != nil {
			t.Error("a retained message has not ended")
		}
		if again := appendOne(t, m, &Message{Topic: "t", QoS: 2, DedupID: "d"}); again == p {
			t.Error("a DedupID is known for a day")
		}
	})
}
