package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mqttlb/mqttlb/pkg/backend"
)

// Prober checks one backend once. Probe returns nil when the backend can serve,
// and else an error that [ReasonOf] can sort. It is called for several backends at
// the same time, ends soon after ctx does, and leaves nothing behind: no
// connection, no goroutine, no session on the broker.
type Prober interface {
	Probe(ctx context.Context, addr string) error
}

// What a zero field of Options stands for.
const (
	DefaultInterval     = 5 * time.Second
	DefaultFastInterval = time.Second
	DefaultTimeout      = 3 * time.Second
	DefaultRise         = 2
	DefaultFall         = 3
)

// Options tune a Monitor. Zero fields stand for the defaults.
type Options struct {
	// Interval is the time from the start of one check of a backend to the start of
	// its next; FastInterval the same while a streak is under way, and at most
	// Interval. Both are spread by ±10 %. A check that takes longer is waited for.
	Interval, FastInterval time.Duration
	// Timeout bounds one check, from dial to answer.
	Timeout time.Duration
	// Rise is how many consecutive passes bring a backend up, Fall how many
	// consecutive failures take it down.
	Rise, Fall int
	// Port is checked in place of the port of the backend's address; zero is no change.
	Port int
	// Ports are those of backends, by name, for which another counts than Port.
	Ports map[string]int
	// Log takes one line per change of a verdict; nil is silence.
	Log *slog.Logger
	// OnChange learns of each first and each changed verdict, OnCheck of each outcome
	// that was not dropped. For one backend they are called one at a time and in
	// order, by checks and by passive reports alike. They must be quick, and must not
	// call the Monitor.
	OnChange func(Event)
	OnCheck  func(Result)
}

// Event is a new verdict.
type Event struct {
	Backend *backend.Backend
	Up      bool
	First   bool   // the first verdict since the start or since maintenance
	Reason  Reason // why it is down; empty while up
	Err     error  // the failure that decided; nil while up
}

// Result is the outcome of one check or passive report.
type Result struct {
	Backend *backend.Backend
	Reason  Reason // empty when passed
	Err     error  // nil when passed
	Passive bool
	Elapsed time.Duration // what the check took; zero for a passive report
}

// Monitor keeps the verdicts of one pool's backends. Build it with NewMonitor, name
// the backends with SetBackends and let Run run. All methods are safe for
// concurrent use.
type Monitor struct {
	prober Prober
	o      Options
	seed   maphash.Seed // of the hashes that stand for Client Identifiers

	running atomic.Bool
	changed chan struct{} // holds one: there are watches for Run to start

	mu      sync.Mutex                            // held to replace watches
	watches atomic.Pointer[map[backend.ID]*watch] // an immutable snapshot
}

// NewMonitor gives a Monitor without backends.
func NewMonitor(p Prober, o Options) *Monitor {
	o.Interval = cmp.Or(o.Interval, DefaultInterval)
	o.FastInterval = min(cmp.Or(o.FastInterval, DefaultFastInterval), o.Interval)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Rise = cmp.Or(o.Rise, DefaultRise)
	o.Fall = cmp.Or(o.Fall, DefaultFall)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.OnChange == nil {
		o.OnChange = func(Event) {}
	}
	if o.OnCheck == nil {
		o.OnCheck = func(Result) {}
	}
	m := &Monitor{prober: p, o: o, seed: maphash.MakeSeed(), changed: make(chan struct{}, 1)}
	m.watches.Store(&map[backend.ID]*watch{})
	return m
}

// SetBackends says which backends to check from now on, also while Run runs. When it
// has returned, nothing is reported any more of a backend that the list lacks.
//
// A backend that is in the list as before keeps its streak. One that
// [backend.Backend.With] has given a new Spec is checked at once, under the verdict
// that it brings along; if its address is new, that check decides like a first one.
func (m *Monitor) SetBackends(list []*backend.Backend) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := *m.watches.Load()
	after := make(map[backend.ID]*watch, len(list))
	for _, b := range list {
		w := before[b.ID()]
		switch {
		case w == nil:
			w = newWatch(m, b, true)
		case w.b != b:
			w = newWatch(m, b, w.b.Address == b.Address)
		}
		after[b.ID()] = w
	}
	m.watches.Store(&after)
	for id, w := range before {
		if after[id] != w {
			w.end()
		}
	}
	signal(m.changed)
}

// Run checks the backends until ctx ends, waits for what it has started, and then
// returns nil. It returns an error at once if the Monitor runs already.
func (m *Monitor) Run(ctx context.Context) error {
	if !m.running.CompareAndSwap(false, true) {
		return errors.New("health: the monitor runs already")
	}
	defer m.running.Store(false)
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		for w := range maps.Values(*m.watches.Load()) {
			if ctx, ok := w.begin(ctx); ok {
				wg.Go(func() { w.run(ctx) })
			}
		}
		select {
		case <-m.changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// First returns when each backend of the moment has its first verdict, is in
// maintenance or has left the list. It needs Run to be running, and gives up with an
// error when ctx ends.
func (m *Monitor) First(ctx context.Context) error {
	for id, w := range *m.watches.Load() {
		select {
		case <-w.decided:
		case <-ctx.Done():
			return fmt.Errorf("wait for the first health check of %s: %w", id, context.Cause(ctx))
		}
	}
	return nil
}

// watchOf finds who watches b. It is nil for a backend that is not in the list, or is
// there under another address: a report about the old address says nothing of the new.
func (m *Monitor) watchOf(b *backend.Backend) *watch {
	w := (*m.watches.Load())[b.ID()]
	if w == nil || w.b.Address != b.Address {
		return nil
	}
	return w
}

// signal leaves word in a channel that holds one; word that is there already will do.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
