package health

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mqttlb/mqttlb/pkg/backend"
)

func TestFailedDialsCountAsFailedChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := named("b1")
		w := start(t, Options{}, b)
		w.wantTold(t, "b1 up first")
		w.DialFailed(b, errRefused)
		w.DialFailed(b, errRefused)
		if !b.Usable() {
			t.Fatal("down after two of three")
		}
		w.DialFailed(b, errRefused)
		if b.Usable() { // no goroutine in between: the next pick must know already
			t.Fatal("up after three of three")
		}
		w.wantTold(t, "b1 down refused")
		w.mu.Lock()
		defer w.mu.Unlock()
		if r := w.results[len(w.results)-1]; !r.Passive || r.Reason != Refused {
			t.Fatalf("result %+v", r)
		}
	})
}

func TestFailedDialBringsTheNextCheckForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := named("b1")
		w := start(t, Options{}, b)
		w.wantTold(t, "b1 up first")
		time.Sleep(2 * time.Second)
		w.script.times()
		began := time.Now()
		w.DialFailed(b, errRefused)
		synctest.Wait()
		if got := w.script.times(); len(got) != 1 || got[0] != began {
			t.Fatalf("checks at %v, want one at %v", got, began)
		}
		// The check passed, and with it the failure is forgiven.
		w.DialFailed(b, errRefused)
		w.DialFailed(b, errRefused)
		w.wantTold(t)
	})
}

func TestStormOfFailedDialsIsOneCheckPerFastInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := named("b1")
		w := start(t, Options{Fall: 1 << 30}, b)
		w.wantTold(t, "b1 up first")
		w.script.times()
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			w.DialFailed(b, errRefused)
		}
		synctest.Wait()
		if n := len(w.script.times()); n < 9 || n > 12 {
			t.Fatalf("%d checks in 10 s, want one a second", n)
		}
	})
}

func TestReportsThatSayNothingOfTheBackendAreDropped(t *testing.T) {
	for _, tc := range []struct {
		name   string
		report func(m *Monitor, b *backend.Backend)
	}{
		{"the session gave the dial up", func(m *Monitor, b *backend.Backend) {
			m.DialFailed(b, fmt.Errorf("dial b1: %w", context.Canceled))
		}},
		{"no error", func(m *Monitor, b *backend.Backend) { m.DialFailed(b, nil) }},
		{"a backend that is not watched", func(m *Monitor, _ *backend.Backend) {
			m.DialFailed(named("b9"), errRefused)
		}},
		{"in maintenance", func(m *Monitor, b *backend.Backend) {
			b.SetAdmin(backend.Maint)
			m.DialFailed(b, errRefused)
			b.SetAdmin(backend.Active)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := named("b1")
				w := start(t, Options{Fall: 1}, b)
				w.wantTold(t, "b1 up first")
				tc.report(w.Monitor, b)
				w.wantTold(t)
			})
		})
	}
}

// A dial that began before the backend came back fails seconds later; it must not
// hold up the rise.
func TestLateFailureDoesNotHoldUpTheRise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := named("b1")
		w := start(t, Options{}, b)
		w.script.fail(errRefused)
		w.wantTold(t, "b1 down refused first")
		w.script.pass()
		w.script.times()
		for len(w.script.times()) == 0 { // up to the first pass
			time.Sleep(time.Second / 10)
		}
		w.DialFailed(b, errRefused)
		if took := untilChange(t, b, backend.StateUp); took > 2*DefaultFastInterval {
			t.Fatalf("up only after another %v", took)
		}
	})
}

func TestClosedEarly(t *testing.T) {
	const interval = 5 * time.Second
	for _, tc := range []struct {
		name  string
		steps string // client ids of one letter; "ok" a CONNACK; "wait" an interval
		want  int    // failures counted
	}{
		{"one client, however often", "a a a a a a a a", 0},
		{"two clients", "a b a b a b", 0},
		{"three clients", "a b c", 1},
		{"three clients with a CONNACK in between", "a b ok c", 0},
		{"three clients after a CONNACK", "a ok b c d", 1},
		{"two now, one long ago", "a wait b c", 0},
		{"the first one again, so that it is fresh", "a wait b a c", 1},
		{"any number of clients before the next check", "a b c d e f g h i j k l", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := named("b1")
				// Checks are out of the way, so that only the window of an interval acts.
				w := start(t, Options{Interval: interval, FastInterval: interval, Timeout: time.Hour}, b)
				w.wantTold(t, "b1 up first")
				w.script.say(silent)
				for _, s := range strings.Fields(tc.steps) {
					switch s {
					case "ok":
						w.Answered(b)
					case "wait":
						time.Sleep(interval + time.Second)
					default:
						w.ClosedEarly(b, []byte(s))
					}
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				got := 0
				for _, r := range w.results {
					if r.Reason == ClosedEarly {
						got++
					}
				}
				if got != tc.want {
					t.Fatalf("%d failures counted, want %d", got, tc.want)
				}
			})
		})
	}
}

// Many devices come with a CONNECT that this broker cannot bear. It answers its
// checks, so it stays up, whatever they do.
func TestPoisonousConnectNeverMarksAWorkingBackendDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := named("b1")
		w := start(t, Options{}, b)
		w.wantTold(t, "b1 up first")
		for i := range 10_000 {
			time.Sleep(7 * time.Millisecond)
			w.ClosedEarly(b, fmt.Appendf(nil, "dev-%d", i))
		}
		w.wantTold(t)
	})
}

// A broker that closes on everybody, checks included, is down soon.
func TestBrokerThatClosesOnAllIsDownSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := named("b1")
		w := start(t, Options{}, b)
		w.wantTold(t, "b1 up first")
		w.script.fail(&Error{Closed, errors.New("the backend closed the connection")})
		began := time.Now()
		for i := 0; b.Usable(); i++ {
			w.ClosedEarly(b, fmt.Appendf(nil, "dev-%d", i))
			time.Sleep(50 * time.Millisecond)
			synctest.Wait()
		}
		if took := time.Since(began); took > 2*DefaultFastInterval {
			t.Fatalf("down after %v", took)
		}
	})
}

func TestEventsOfOneBackendComeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := named("b1")
		w := start(t, Options{Interval: 10 * time.Millisecond, FastInterval: time.Millisecond, Rise: 1, Fall: 2}, b)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for i := range 200 {
					w.DialFailed(b, errRefused)
					w.ClosedEarly(b, fmt.Appendf(nil, "c%d", i))
					w.Answered(b)
					time.Sleep(time.Millisecond)
				}
			})
		}
		wg.Wait()
		w.stop()
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.events) < 10 {
			t.Fatalf("only %d events: the test shows nothing", len(w.events))
		}
		for i, e := range w.events {
			if e.Up != (i%2 == 0) {
				t.Fatalf("event %d is up=%v", i, e.Up)
			}
		}
	})
}

func TestAnsweredIsFreeWhenNothingIsSuspected(t *testing.T) {
	b := named("b1")
	m := NewMonitor(TCP{}, Options{})
	m.SetBackends([]*backend.Backend{b})
	if n := testing.AllocsPerRun(100, func() { m.Answered(b) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
