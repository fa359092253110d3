package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func shell(t *testing.T, script string) *Process {
	t.Helper()
	p, err := Start(Command{Name: "script", Path: "sh", Args: []string{"-c", script}, Grace: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func TestALineIsWaitedForFromAGivenPlaceOn(t *testing.T) {
	p := shell(t, `echo one; echo two; read x; echo one again; printf unfinished`)
	<-p.Done() // standard input is empty
	if line, err := p.Log().WaitFor(t.Context(), 0, "one"); err != nil || line != "one" {
		t.Errorf("%q, %v", line, err)
	}
	if line, err := p.Log().WaitFor(t.Context(), 1, "one"); err != nil || line != "one again" {
		t.Errorf("%q, %v", line, err)
	}
	if got := strings.Join(p.Log().Since(0), "|"); got != "one|two|one again|unfinished" {
		t.Errorf("log %q", got)
	}
	if _, err := p.Log().WaitFor(t.Context(), 3, "one"); !errors.Is(err, errEnded) || !strings.Contains(err.Error(), "unfinished") {
		t.Errorf("error %v", err)
	}
}

func TestALogForgetsItsOldestLines(t *testing.T) {
	l := newLog(nil)
	for i := range maxLines + 1 {
		fmt.Fprintf(l, "line %d\n", i)
	}
	if l.Len() != maxLines+1 {
		t.Errorf("%d lines, want %d", l.Len(), maxLines+1)
	}
	if n := len(l.Since(0)); n > maxLines {
		t.Errorf("%d lines kept", n)
	}
	if got := l.Since(maxLines); len(got) != 1 || got[0] != fmt.Sprintf("line %d", maxLines) {
		t.Errorf("last line %q", got)
	}
	if _, err := l.WaitFor(t.Context(), maxLines-1, fmt.Sprintf("line %d", maxLines)); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.WaitFor(ctx, 0, "never"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestStopAsksFirst(t *testing.T) {
	p := shell(t, `trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.01; done`)
	if _, err := p.Log().WaitFor(t.Context(), 0, "ready"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}
	if p.ExitCode() != 7 || p.Log().Tail(1) != "bye" || p.Running() {
		t.Errorf("exit code %d, last line %q", p.ExitCode(), p.Log().Tail(1))
	}
}

func TestStopKillsWhatDoesNotListen(t *testing.T) {
	p, err := Start(Command{Name: "deaf", Path: "sh", Args: []string{"-c", `trap '' TERM; echo ready; while :; do sleep 0.01; done`}, Grace: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Log().WaitFor(t.Context(), 0, "ready"); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "deaf") {
		t.Errorf("error %v", err)
	}
}

func TestNothingOfTheGroupOutlivesTheChild(t *testing.T) {
	p := shell(t, `sleep 600 & echo $!; read x`)
	<-p.Done()
	wantGone(t, p.Log().Tail(1))
}

// The child must not outlive a starter that is killed, e.g. by a test's
// time-out. The starter is this test binary, started again.
func TestTheChildDiesWithItsStarter(t *testing.T) {
	if os.Getenv("RIG_TEST_STARTER") != "" {
		p := shell(t, `echo $$; exec sleep 600`)
		line, err := p.Log().WaitFor(t.Context(), 0, "")
		fmt.Println("child:", line, err)
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	starter, err := Start(Command{Name: "starter", Path: self, Args: []string{"-test.run=^" + t.Name() + "$"}, Env: []string{"RIG_TEST_STARTER=1"}})
	if err != nil {
		t.Fatal(err)
	}
	line, err := starter.Log().WaitFor(t.Context(), 0, "child:")
	if err != nil {
		t.Fatal(err)
	}
	<-starter.Done()
	wantGone(t, strings.Fields(line)[1])
}

// wantGone waits until the process is gone or a zombie that nobody reaps.
func wantGone(t *testing.T, pid string) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for range time.Tick(time.Millisecond) {
		stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("process %s is still there: %s", pid, stat)
		default:
		}
	}
}
