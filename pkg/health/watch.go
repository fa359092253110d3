package health

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mqttlb/mqttlb/pkg/backend"
)

// watch is the Monitor's eye on one backend.
type watch struct {
	m       *Monitor
	b       *backend.Backend
	hurry   chan struct{} // holds one: the next check is wanted before its time
	decided chan struct{} // closed by decide: what First waits for
	decide  func()

	suspected atomic.Bool // suspects is not empty: lets Answered go without the lock

	mu       sync.Mutex // held while outcomes are counted and told
	streak   streak
	suspects []suspect
	blamed   bool               // a closed-early failure was counted since the last check
	local    bool               // the last outcome was trouble of our own
	ended    bool               // no longer in the list
	cancel   context.CancelFunc // of the running loop; nil while none runs
}

// newWatch watches b, under the verdict that it brings along if carry says so.
func newWatch(m *Monitor, b *backend.Backend, carry bool) *watch {
	w := &watch{m: m, b: b, hurry: make(chan struct{}, 1), decided: make(chan struct{})}
	w.decide = sync.OnceFunc(func() { close(w.decided) })
	if v, ok := b.Verdict(); ok && carry {
		w.streak = streak{known: true, up: v.Up}
		w.decide()
	}
	return w
}

// begin gives the context for run; false when it runs already or has ended.
func (w *watch) begin(ctx context.Context) (context.Context, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.cancel != nil {
		return nil, false
	}
	ctx, w.cancel = context.WithCancel(ctx)
	return ctx, true
}

// end stops the watch for good. When it has returned, nothing is told any more.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.decide()
	if w.cancel != nil {
		w.cancel()
	}
}

// run checks until ctx ends.
func (w *watch) run(ctx context.Context) {
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.cancel()
		w.cancel = nil
	}()
	var began time.Time // when the last check began
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.hurry:
			// Even a storm of failing dials gets no more than one check per FastInterval.
			next.Reset(time.Until(began.Add(w.m.o.FastInterval)))
		case <-next.C:
			began = time.Now()
			w.check(ctx)
			next.Reset(time.Until(began.Add(w.pause())))
		}
	}
}

// check probes once and counts the outcome, unless the backend is in maintenance.
func (w *watch) check(ctx context.Context) {
	if w.b.Admin() == backend.Maint {
		w.rest()
		return
	}
	began := time.Now()
	probe, cancel := context.WithTimeoutCause(ctx, w.m.o.Timeout, noAnswer{w.m.o.Timeout})
	err := w.m.prober.Probe(probe, w.address())
	cancel()
	if ctx.Err() != nil {
		return // cut short by us: no outcome
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blamed = false
	w.count(Result{Err: err, Elapsed: time.Since(began)})
}

// address is where the check goes: the backend's, with the port of the Options.
func (w *watch) address() string {
	port, own := w.m.o.Ports[w.b.ID().Name]
	if !own {
		port = w.m.o.Port
	}
	if port == 0 {
		return w.b.Address
	}
	host, _, err := net.SplitHostPort(w.b.Address)
	if err != nil {
		return w.b.Address // the dial tells what is wrong with it
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// rest forgets what is known: whatever the operator does during maintenance, the
// backend serves again only after a check has passed.
func (w *watch) rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	w.streak = streak{}
	w.clearSuspects()
	if v, ok := w.b.Verdict(); ok && v.Up {
		w.b.SetHealth(false, "in maintenance, not checked")
	}
	w.decide()
}

// count takes one outcome: tells it, counts it, and tells the verdict if that made a
// new one. w.mu is held.
func (w *watch) count(r Result) {
	// An outcome of before the list or the operator changed is dropped: whoever stops a
	// broker right after he has put it in maintenance must see no alarm.
	if w.ended || w.b.Admin() == backend.Maint {
		return
	}
	r.Backend, r.Reason = w.b, ReasonOf(r.Err)
	w.m.o.OnCheck(r)
	if w.skipLocal(r) {
		return
	}

	first := !w.streak.known
	changed := w.streak.count(r.Err == nil, w.m.o.Rise, w.m.o.Fall)
	switch {
	case w.streak.up:
		w.b.SetHealth(true, "")
	case r.Err != nil: // a pass on the way up leaves the reason of the fall in place
		w.b.SetHealth(false, r.Err.Error())
	}
	w.log(r, changed)
	if changed {
		w.m.o.OnChange(Event{Backend: w.b, Up: w.streak.up, First: first, Reason: r.Reason, Err: r.Err})
		w.decide()
	}
}

// skipLocal says whether the outcome is trouble of our own, which is logged once per
// spell.
func (w *watch) skipLocal(r Result) bool {
	spell := w.local
	w.local = r.Reason == Local
	if w.local && !spell {
		w.m.o.Log.Warn("health check not possible", append(w.attrs(r), slog.Bool("passive", r.Passive))...)
	}
	return w.local
}

func (w *watch) log(r Result, changed bool) {
	switch {
	case changed && w.streak.up:
		w.m.o.Log.Info("backend is up", w.attrs(r)...)
	case changed:
		w.m.o.Log.Warn("backend is down", append(w.attrs(r), slog.Bool("passive", r.Passive))...)
	case r.Err != nil:
		w.m.o.Log.Debug("health check failed", append(w.attrs(r),
			slog.Bool("passive", r.Passive), slog.Int("run", w.streak.run))...)
	}
}

func (w *watch) attrs(r Result) []any {
	a := []any{slog.String("pool", w.b.Pool), slog.String("backend", w.b.Name), slog.String("address", w.b.Address)}
	if r.Err != nil {
		a = append(a, slog.String("reason", string(r.Reason)), slog.Any("err", r.Err))
	}
	return a
}

// pause is the time from the start of the last check to the start of the next.
func (w *watch) pause() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.streak.underWay() {
		return spread(w.m.o.FastInterval)
	}
	return spread(w.m.o.Interval)
}

// spread moves d by up to 10 % either way.
func spread(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*rand.Float64()))
}

// noAnswer is why a check's context ends at its timeout.
type noAnswer struct{ within time.Duration }

func (e noAnswer) Error() string     { return fmt.Sprintf("no answer within %v", e.within) }
func (e noAnswer) Is(err error) bool { return err == context.DeadlineExceeded }
