package listen

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// freeAddress is one on which nobody listens now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// runGate runs a gate for as long as the test goes.
func runGate(t *testing.T, g *Gate) *syncBuffer {
	t.Helper()
	log := &syncBuffer{}
	g.Log = slog.New(slog.NewTextHandler(log, nil))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := g.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return log
}

// connects waits until a connection succeeds or is refused. One that comes at
// the moment of closing may be reset.
func connects(t *testing.T, address string, want bool) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		var c net.Conn
		if c, err = net.Dial("tcp", address); err == nil {
			c.Close()
		}
		if want && err == nil || !want && errors.Is(err, syscall.ECONNREFUSED) {
			return
		}
	}
	t.Fatalf("connects: %v, want %v: %v", err == nil, want, err)
}

func TestGateIsThereOnlyWhileItIsOpen(t *testing.T) {
	g := &Gate{Address: freeAddress(t)}
	log := runGate(t, g)
	connects(t, g.Address, false)
	for range 3 {
		g.Set(true)
		g.Set(true)
		connects(t, g.Address, true)
		g.Set(false)
		connects(t, g.Address, false)
	}
	if n := strings.Count(log.String(), "health endpoint open"); n != 3 {
		t.Errorf("opened %d times: %s", n, log)
	}
}

func TestGateSetBeforeRun(t *testing.T) {
	g := &Gate{Address: freeAddress(t)}
	g.Set(true)
	runGate(t, g)
	connects(t, g.Address, true)
}

func TestGateIsShutWhenRunEnds(t *testing.T) {
	g := &Gate{Address: freeAddress(t), Log: slog.New(slog.DiscardHandler)}
	g.Set(true)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- g.Run(ctx) }()
	connects(t, g.Address, true)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", g.Address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after Run: %v", err)
	}
}

func TestGateTriesAgainWhenItsPortIsTaken(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	g := &Gate{Address: other.Addr().String()}
	g.Set(true)
	log := runGate(t, g)
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(log.String(), "trying again"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the failure is not logged")
		}
	}
	if strings.Contains(log.String(), "health endpoint open") {
		t.Error("open on a port that is taken")
	}
	other.Close()
	connects(t, g.Address, true) // after rebindPause
	if !strings.Contains(log.String(), "health endpoint open") {
		t.Errorf("log: %s", log)
	}
}
