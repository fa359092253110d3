package health

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mqttlb/mqttlb/pkg/backend"
)

var errRefused = &Error{Refused, syscall.ECONNREFUSED}

// script is a Prober that answers what the test has put in place, and remembers when
// it was asked about which address.
type script struct {
	mu     sync.Mutex
	answer func(ctx context.Context, addr string) error
	asked  []time.Time
	addrs  []string
	busy   map[string]int
	most   int // the most checks of one address that were under way at once
}

func (s *script) Probe(ctx context.Context, addr string) error {
	s.mu.Lock()
	s.asked = append(s.asked, time.Now())
	s.addrs = append(s.addrs, addr)
	if s.busy == nil {
		s.busy = map[string]int{}
	}
	s.busy[addr]++
	s.most = max(s.most, s.busy[addr])
	answer := s.answer
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy[addr]--
	}()
	if answer == nil {
		return nil
	}
	return answer(ctx, addr)
}

func (s *script) say(answer func(context.Context, string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *script) pass()          { s.say(nil) }
func (s *script) fail(err error) { s.say(func(context.Context, string) error { return err }) }

// silent is a backend that never answers.
func silent(ctx context.Context, _ string) error {
	<-ctx.Done()
	return &Error{ReasonOf(context.Cause(ctx)), context.Cause(ctx)}
}

// times forgets and returns when checks began.
func (s *script) times() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.asked
	s.asked, s.addrs = nil, nil
	return t
}

// watched is a running Monitor and what it told.
type watched struct {
	*Monitor
	script *script

	mu      sync.Mutex
	events  []Event
	results []Result
	log     bytes.Buffer
	stop    func()
}

// start runs a Monitor over the backends until the test ends.
func start(t *testing.T, o Options, list ...*backend.Backend) *watched {
	t.Helper()
	w := &watched{script: &script{}}
	o.OnChange = func(e Event) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, e)
	}
	o.OnCheck = func(r Result) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.results = append(w.results, r)
	}
	o.Log = slog.New(slog.NewTextHandler(&w.log, nil))
	w.Monitor = NewMonitor(w.script, o)
	w.SetBackends(list)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(w.stop)
	return w
}

// told forgets and returns the events, as "b1 up", "b1 down refused".
func (w *watched) told() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, e := range w.events {
		s := e.Backend.Name + " down " + string(e.Reason)
		if e.Up {
			s = e.Backend.Name + " up"
		}
		if e.First {
			s += " first"
		}
		out = append(out, s)
	}
	w.events = nil
	return out
}

func (w *watched) wantTold(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := w.told(); !slices.Equal(got, want) {
		t.Fatalf("told %q, want %q", got, want)
	}
}

func named(name string) *backend.Backend {
	return backend.New(backend.Spec{Pool: "p", Name: name, Address: name + ".test:1883"})
}

// untilChange lets time go on, in small steps, until the state is want; it gives the time
// that this took.
func untilChange(t *testing.T, b *backend.Backend, want backend.State) time.Duration {
	t.Helper()
	began := time.Now()
	for b.State() != want {
		if time.Since(began) > time.Minute {
			t.Fatalf("%s is still %s after a minute, want %s", b.Name, b.State(), want)
		}
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
	}
	return time.Since(began)
}

func TestFirstCheckDecidesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b1, b2 := named("b1"), named("b2")
		w := start(t, Options{}, b1, b2)
		w.script.say(func(_ context.Context, addr string) error {
			if addr == b2.Address {
				return errRefused
			}
			return nil
		})
		began := time.Now()
		if err := w.First(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d != 0 {
			t.Fatalf("the first verdicts took %v", d)
		}
		if b1.State() != backend.StateUp || b2.State() != backend.StateDown {
			t.Fatalf("b1 %s, b2 %s", b1.State(), b2.State())
		}
		synctest.Wait()
		got := w.told()
		slices.Sort(got)
		if want := []string{"b1 up first", "b2 down refused first"}; !slices.Equal(got, want) {
			t.Fatalf("told %q, want %q", got, want)
		}
		if v, _ := b2.Verdict(); v.Reason != "refused: connection refused" {
			t.Fatalf("reason %q", v.Reason)
		}
	})
}

func TestFirstGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, Options{}, named("b1"))
		w.script.say(silent)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := w.First(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "p/b1") {
			t.Fatalf("got %v", err)
		}
	})
}

func TestFallAndRiseAreCountedAtTheFastInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := named("b1")
		w := start(t, Options{}, b)
		w.wantTold(t, "b1 up first")
		w.script.times()

		began := time.Now()
		w.script.fail(errRefused)
		untilChange(t, b, backend.StateDown)
		w.wantTold(t, "b1 down refused")
		wantGaps(t, began, w.script.times(), DefaultInterval, DefaultFastInterval, DefaultFastInterval)
		down := time.Now()

		w.script.pass()
		untilChange(t, b, backend.StateUp)
		w.wantTold(t, "b1 up")
		// A backend that is down and gives no sign of life is checked at Interval.
		wantGaps(t, down, w.script.times(), DefaultInterval, DefaultFastInterval)

		if n := strings.Count(w.log.String(), `msg="backend is down"`); n != 1 {
			t.Fatalf("%d lines of the fall in the log:\n%s", n, w.log.String())
		}
		if !strings.Contains(w.log.String(), "reason=refused") {
			t.Fatalf("no reason in the log:\n%s", w.log.String())
		}
	})
}

// wantGaps wants one time per gap, each its gap ±10 % after the one before; the test's
// own steps blur a gap by 10 ms.
func wantGaps(t *testing.T, from time.Time, times []time.Time, gaps ...time.Duration) {
	t.Helper()
	if len(times) != len(gaps) {
		t.Fatalf("%d checks, want %d: %v", len(times), len(gaps), times)
	}
	for i, gap := range gaps {
		got := times[i].Sub(from)
		if got < gap*9/10-10*time.Millisecond || got > gap*11/10+10*time.Millisecond {
			t.Fatalf("check %d came %v after the one before, want %v ±10 %%", i, got, gap)
		}
		from = times[i]
	}
}

func TestSilentBackendIsDownWithinFallTimesInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := named("b1")
		w := start(t, Options{}, b)
		w.wantTold(t, "b1 up first")
		w.script.say(silent)
		took := untilChange(t, b, backend.StateDown)
		if limit := DefaultFall * DefaultInterval; took > limit {
			t.Fatalf("down after %v, limit %v", took, limit)
		}
		w.wantTold(t, "b1 down timeout")
		if v, _ := b.Verdict(); v.Reason != "timeout: no answer within 3s" {
			t.Fatalf("reason %q", v.Reason)
		}
	})
}

func TestChecksOfOneBackendNeverOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := named("b1")
		w := start(t, Options{Interval: time.Second, FastInterval: 100 * time.Millisecond, Timeout: 10 * time.Second}, b)
		synctest.Wait()
		w.script.say(func(context.Context, string) error { time.Sleep(4 * time.Second); return nil })
		for range 60 {
			time.Sleep(500 * time.Millisecond)
			w.DialFailed(b, errRefused)
			w.SetBackends([]*backend.Backend{b})
		}
		w.stop()
		if w.script.most != 1 {
			t.Fatalf("%d checks at once", w.script.most)
		}
	})
}

func TestBackendsAreCheckedAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var list []*backend.Backend
		for _, n := range []string{"b1", "b2", "b3", "b4"} {
			list = append(list, named(n))
		}
		w := start(t, Options{}, list...)
		w.script.say(silent)
		began := time.Now()
		if err := w.First(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d != DefaultTimeout {
			t.Fatalf("four silent backends took %v, want one timeout", d)
		}
	})
}

func TestJitterSpreadsChecks(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 1000 {
		d := spread(time.Second)
		if d < 900*time.Millisecond || d > 1100*time.Millisecond {
			t.Fatalf("%v", d)
		}
		seen[d] = true
	}
	if len(seen) < 900 {
		t.Fatalf("only %d different of 1000", len(seen))
	}
}

func TestPortReplacesThePortOfTheAddress(t *testing.T) {
	for _, tc := range []struct {
		address string
		port    int
		want    string
	}{
		{"10.0.0.7:1883", 0, "10.0.0.7:1883"},
		{"10.0.0.7:1883", 18083, "10.0.0.7:18083"},
		{"[2001:db8::7]:1883", 18083, "[2001:db8::7]:18083"},
		{"broker:1883", 1, "broker:1"},
		{"no-port", 1, "no-port"},
	} {
		own := newWatch(NewMonitor(nil, Options{Port: 7, Ports: map[string]int{"b1": tc.port}}), backend.New(backend.Spec{Name: "b1", Address: tc.address}), true)
		if got := own.address(); got != tc.want {
			t.Errorf("%s with port %d of its own gave %s, want %s", tc.address, tc.port, got, tc.want)
		}
		w := newWatch(NewMonitor(nil, Options{Port: tc.port}), backend.New(backend.Spec{Address: tc.address}), true)
		if got := w.address(); got != tc.want {
			t.Errorf("%s with port %d gave %s, want %s", tc.address, tc.port, got, tc.want)
		}
	}
}

func TestDrainIsCheckedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := named("b1")
		b.SetAdmin(backend.Drain)
		w := start(t, Options{}, b)
		w.wantTold(t, "b1 up first")
		w.script.fail(errRefused)
		time.Sleep(20 * time.Second)
		w.wantTold(t, "b1 down refused")
	})
}

func TestMaintenanceIsNotCheckedAndForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := named("b1")
		w := start(t, Options{}, b)
		w.wantTold(t, "b1 up first")

		b.SetAdmin(backend.Maint)
		w.script.times()
		w.script.fail(errRefused)
		time.Sleep(time.Minute)
		if got := w.script.times(); len(got) > 0 {
			t.Fatalf("checked %d times in maintenance", len(got))
		}
		w.wantTold(t) // what the operator does to it in maintenance is no alarm

		b.SetAdmin(backend.Active)
		if b.Usable() {
			t.Fatal("serves again before a check has passed")
		}
		w.script.pass()
		if took := untilChange(t, b, backend.StateUp); took > 2*DefaultFastInterval {
			t.Fatalf("back after %v", took)
		}
		w.wantTold(t, "b1 up first")
	})
}

func TestCheckThatEndsInMaintenanceIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := named("b1")
		w := start(t, Options{Fall: 1}, b)
		w.wantTold(t, "b1 up first")
		w.script.say(silent)
		for len(w.script.times()) == 0 {
			time.Sleep(time.Second / 10)
		}
		b.SetAdmin(backend.Maint)
		time.Sleep(DefaultTimeout)
		w.wantTold(t)
	})
}

func TestFirstDoesNotWaitForMaintenance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := named("b1")
		b.SetAdmin(backend.Maint)
		w := start(t, Options{}, b)
		if err := w.First(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestTroubleOfOurOwnIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b1, b2 := named("b1"), named("b2")
		w := start(t, Options{}, b1)
		w.wantTold(t, "b1 up first")
		w.script.fail(&Error{Local, syscall.EMFILE})
		w.SetBackends([]*backend.Backend{b1, b2})
		time.Sleep(time.Minute)
		for range 10 {
			w.DialFailed(b1, syscall.EADDRNOTAVAIL)
		}
		w.wantTold(t)
		if b1.State() != backend.StateUp || b2.State() != backend.StateChecking {
			t.Fatalf("b1 %s, b2 %s", b1.State(), b2.State())
		}
		w.mu.Lock()
		told := slices.ContainsFunc(w.results, func(r Result) bool { return r.Reason == Local })
		w.mu.Unlock()
		if !told {
			t.Fatal("OnCheck was not told")
		}
		w.stop()
		if n := strings.Count(w.log.String(), "health check not possible"); n != 2 {
			t.Fatalf("%d lines, want one per backend:\n%s", n, w.log.String())
		}
	})
}

func TestSetBackendsWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b1, b2, b3 := named("b1"), named("b2"), named("b3")
		w := start(t, Options{}, b1, b2)
		synctest.Wait()
		w.told()

		w.SetBackends([]*backend.Backend{b1, b3})
		w.wantTold(t, "b3 up first")
		w.script.mu.Lock()
		w.script.addrs = nil
		w.script.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		w.script.mu.Lock()
		defer w.script.mu.Unlock()
		if slices.Contains(w.script.addrs, b2.Address) || !slices.Contains(w.script.addrs, b1.Address) {
			t.Fatalf("checked %q", w.script.addrs)
		}
	})
}

func TestRemovedBackendIsNotReportedAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := named("b1")
		w := start(t, Options{Fall: 1}, b)
		w.wantTold(t, "b1 up first")
		cut := make(chan struct{})
		w.script.say(func(ctx context.Context, _ string) error {
			<-ctx.Done()
			close(cut)
			return errRefused
		})
		w.script.times()
		for len(w.script.times()) == 0 {
			time.Sleep(time.Second / 10)
		}
		w.SetBackends(nil)
		<-cut // the check under way is cut short at once
		w.DialFailed(b, errRefused)
		w.ClosedEarly(b, []byte("c"))
		w.Answered(b)
		w.wantTold(t)
		if err := w.First(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestReloadKeepsTheVerdictAndChecksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := named("b1")
		w := start(t, Options{}, b)
		w.wantTold(t, "b1 up first")
		w.script.fail(errRefused)
		w.script.times()

		spec := b.Spec
		spec.Weight = 7
		heavier := b.With(spec)
		w.SetBackends([]*backend.Backend{heavier})
		synctest.Wait()
		if n := len(w.script.times()); n != 1 {
			t.Fatalf("%d checks at the reload", n)
		}
		w.wantTold(t) // one failure of three
		untilChange(t, heavier, backend.StateDown)
		w.wantTold(t, "b1 down refused")
	})
}

func TestNewAddressIsDecidedByItsFirstCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := named("b1")
		w := start(t, Options{}, b)
		w.wantTold(t, "b1 up first")
		w.script.fail(errRefused)

		spec := b.Spec
		spec.Address = "elsewhere.test:1883"
		moved := b.With(spec)
		w.SetBackends([]*backend.Backend{moved})
		w.wantTold(t, "b1 down refused first")
		w.script.pass()
		untilChange(t, moved, backend.StateUp)
		w.told()
		for range 10 {
			w.DialFailed(b, errRefused) // late news of the old address
		}
		w.wantTold(t)
	})
}

func TestRunEndsWithItsContextAndCanRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := named("b1")
		w := start(t, Options{Fall: 1}, b)
		w.wantTold(t, "b1 up first")
		if err := w.Run(t.Context()); err == nil {
			t.Fatal("a second Run beside the first")
		}
		w.script.say(silent)
		w.script.times()
		for len(w.script.times()) == 0 {
			time.Sleep(time.Second / 10)
		}
		w.stop() // in the middle of a check: cut short, and no verdict
		w.wantTold(t)

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		w.script.times()
		go func() { done <- w.Run(ctx) }()
		synctest.Wait()
		if n := len(w.script.times()); n != 1 {
			t.Fatalf("%d checks after the second start", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}
