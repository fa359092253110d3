package proxy

import (
	"sync"
	"time"
)

// throttlePeriod is how often a line of one kind is written at most.
const throttlePeriod = time.Second

type throttleKey struct {
	stage Stage
	by    Side
	why   Why
}

// throttle lets one line of each kind through a period, so that a storm of
// refusals is a counter in the log and not a flood. When the period is over, or
// at close, the newest of those that were held back is written with the count of
// the others: each connection is in some line. Kinds come from closed lists, so
// the map is bounded.
type throttle struct {
	write func(newest End, repeats int)

	mu      sync.Mutex
	kinds   map[throttleKey]*throttled
	closed  bool
	pending sync.WaitGroup // timers that run, and what they call
}

// throttled is what is known of one kind.
type throttled struct {
	last   time.Time   // when a line was written
	held   int         // lines held back since
	newest End         // of those
	due    *time.Timer // runs while any are held back
}

// allow says whether the line of e may be written now, and how many of its kind
// were held back since the last. Else it is held back itself. Once the throttle
// is closed there is nobody to write it later.
func (t *throttle) allow(e End) (repeats int, ok bool) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	kind := t.kind(throttleKey{e.Stage, e.By, e.Why})
	if wait := throttlePeriod - now.Sub(kind.last); wait > 0 && !t.closed {
		kind.newest = e
		kind.held++
		if kind.held == 1 {
			t.writeAfter(wait, kind)
		}
		return 0, false
	}
	repeats = kind.held // none, unless the timer is about to fire
	kind.last, kind.held = now, 0
	return repeats, true
}

func (t *throttle) kind(k throttleKey) *throttled {
	kind := t.kinds[k]
	if kind == nil {
		if t.kinds == nil {
			t.kinds = make(map[throttleKey]*throttled)
		}
		kind = &throttled{}
		t.kinds[k] = kind
	}
	return kind
}

// writeAfter has what is held back of a kind written when its time has come;
// t.mu is held.
func (t *throttle) writeAfter(wait time.Duration, kind *throttled) {
	if kind.due != nil && kind.due.Stop() {
		t.pending.Done()
	}
	t.pending.Add(1)
	kind.due = time.AfterFunc(wait, func() {
		defer t.pending.Done()
		t.writeHeld(kind)
	})
}

// writeHeld writes what is held back of a kind.
func (t *throttle) writeHeld(kind *throttled) {
	t.mu.Lock()
	newest, held := kind.newest, kind.held
	if held > 0 {
		kind.last, kind.held, kind.newest = time.Now(), 0, End{}
	}
	t.mu.Unlock()
	if held > 0 {
		t.write(newest, held-1)
	}
}

// close writes what is held back, and returns when nothing of the throttle runs
// any more. It is safe to repeat.
func (t *throttle) close() {
	t.mu.Lock()
	t.closed = true
	var all []*throttled
	for _, kind := range t.kinds {
		if kind.due != nil && kind.due.Stop() {
			t.pending.Done()
		}
		all = append(all, kind)
	}
	t.mu.Unlock()
	for _, kind := range all {
		t.writeHeld(kind)
	}
	t.pending.Wait()
}
