package backend

import (
	"sync"
	"testing"
)

func TestStateIsOneWordForVerdictAndAdmin(t *testing.T) {
	b := New(Spec{Pool: "p", Name: "b1"})
	check := func(want State, usable bool) {
		t.Helper()
		if b.State() != want || b.Usable() != usable {
			t.Fatalf("state %s usable %v, want %s %v", b.State(), b.Usable(), want, usable)
		}
	}
	check(StateChecking, false)
	b.SetHealth(true, "")
	check(StateUp, true)
	b.SetAdmin(Drain)
	check(StateDrain, false)
	b.SetAdmin(Maint)
	check(StateMaint, false)
	b.SetHealth(false, "refused")
	b.SetAdmin(Active)
	check(StateDown, false)
	if v, ok := b.Verdict(); !ok || v.Reason != "refused" {
		t.Fatalf("verdict %+v %v", v, ok)
	}
}

func TestSetHealthTellsChangesApartFromRepeats(t *testing.T) {
	b := New(Spec{})
	if !b.SetHealth(false, "a") {
		t.Fatal("the first verdict is a change")
	}
	v1, _ := b.Verdict()
	if b.SetHealth(false, "b") {
		t.Fatal("a repeat is no change")
	}
	v2, _ := b.Verdict()
	if v2.Since != v1.Since || v2.Reason != "b" {
		t.Fatalf("a repeat keeps Since and takes the reason: %+v then %+v", v1, v2)
	}
	if !b.SetHealth(true, "") {
		t.Fatal("down to up is a change")
	}
}

func TestWithKeepsStateAndCounters(t *testing.T) {
	b := New(Spec{Pool: "p", Name: "b1", Address: "old:1"})
	b.SetHealth(true, "")
	b.Acquire()
	c := b.With(Spec{Pool: "p", Name: "b1", Address: "new:1", Weight: 7})
	if !c.Usable() || c.Connections() != 1 || c.Address != "new:1" || c.Weight != 7 {
		t.Fatalf("got %+v usable %v connections %d", c.Spec, c.Usable(), c.Connections())
	}
	c.Release()
	if b.Connections() != 0 {
		t.Fatal("both faces count the same connections")
	}
}

func TestAcquireHoldsTheBoundUnderContention(t *testing.T) {
	b := New(Spec{MaxConnections: 10})
	var wg sync.WaitGroup
	var mu sync.Mutex
	granted := 0
	for range 200 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if b.Acquire() {
				mu.Lock()
				granted++
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	if granted > 10 || b.Connections() != int64(granted) {
		t.Fatalf("granted %d, counted %d, bound 10", granted, b.Connections())
	}
	if granted == 10 && (!b.Full() || b.Acquire()) {
		t.Fatal("a full backend takes no more")
	}
}
