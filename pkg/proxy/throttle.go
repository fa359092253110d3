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
// refusals is a counter in the log and not a flood. Kinds come from closed
// lists, so the map is bounded.
type throttle struct {
	mu   sync.Mutex
	kind map[throttleKey]*throttled
}

type throttled struct {
	last   time.Time
	silent int
}

// allow says whether a line may be written now, and how many of its kind were
// not since the last.
func (t *throttle) allow(k throttleKey, now time.Time) (repeats int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kind := t.kind[k]
	if kind == nil {
		if t.kind == nil {
			t.kind = make(map[throttleKey]*throttled)
		}
		kind = &throttled{}
		t.kind[k] = kind
	}
	if now.Sub(kind.last) < throttlePeriod {
		kind.silent++
		return 0, false
	}
	repeats = kind.silent
	kind.last, kind.silent = now, 0
	return repeats, true
}
