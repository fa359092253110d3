package listen

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// stumbling is a listener whose Accept fails in this way, then that.
type stumbling struct {
	results []error // nil: a connection
	mu      sync.Mutex
	at      []time.Time
}

func (s *stumbling) Accept() (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, time.Now())
	if len(s.results) == 0 {
		return nil, net.ErrClosed
	}
	err := s.results[0]
	s.results = s.results[1:]
	if err != nil {
		return nil, err
	}
	c, _ := net.Pipe()
	return c, nil
}

func (*stumbling) Close() error   { return nil }
func (*stumbling) Addr() net.Addr { return &net.TCPAddr{Port: 1883} }

// Running out of descriptors passes: it is waited out, longer each time, and a
// connection that comes through begins anew.
func TestAcceptWaitsOutErrorsThatPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &net.OpError{Op: "accept", Err: syscall.EMFILE}
		var log bytes.Buffer
		l := &stumbling{}
		for range 12 {
			l.results = append(l.results, out)
		}
		l.results = append(l.results, nil, out, &net.OpError{Op: "accept", Err: syscall.ECONNABORTED}, nil)
		handled := 0
		err := Accept(l, slog.New(slog.NewTextHandler(&log, nil)), func(c net.Conn) { handled++; c.Close() })
		if err != nil || handled != 2 {
			t.Fatalf("%v after %d connections", err, handled)
		}
		var pauses []time.Duration
		for i := range l.at[1:] {
			pauses = append(pauses, l.at[i+1].Sub(l.at[i]))
		}
		want := []time.Duration{5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000, 1000, 0, 5, 10, 0}
		for i := range want {
			if i >= len(pauses) || pauses[i] != want[i]*time.Millisecond {
				t.Fatalf("pauses %v, want %v in ms", pauses, want)
			}
		}
		// All of it within one period: the first line, and one for the rest.
		if lines := strings.Split(strings.TrimSpace(log.String()), "\n"); len(lines) != 2 ||
			strings.Contains(lines[0], "repeats") || !strings.Contains(lines[1], "repeats=12") || !strings.Contains(lines[1], "abort") {
			t.Errorf("log:\n%s", log.String())
		}
	})
}

// Descriptors that come and go make each second accept fail: that is one warning
// a period, not one a connection.
func TestAcceptWarnsOncePerPeriodHoweverOftenItSucceedsBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := &stumbling{}
		failures := 2000
		for range failures { // 5 ms each
			l.results = append(l.results, &net.OpError{Op: "accept", Err: syscall.EMFILE}, nil)
		}
		begun := time.Now()
		if err := Accept(l, slog.New(slog.NewJSONHandler(&log, nil)), func(c net.Conn) { c.Close() }); err != nil {
			t.Fatal(err)
		}
		most := 2 + int(time.Since(begun)/acceptWarnPeriod)
		told, lines := 0, 0
		for line := range strings.Lines(log.String()) {
			var m struct {
				Level   string
				Repeats int
			}
			if err := json.Unmarshal([]byte(line), &m); err != nil || m.Level != "WARN" {
				t.Errorf("%s: %v", line, err)
			}
			lines++
			told += 1 + m.Repeats
		}
		if lines > most || told != failures {
			t.Errorf("%d lines, want %d at most, that tell of %d failures of %d", lines, most, told, failures)
		}
	})
}

func TestAcceptEndsOnErrorsThatDoNotPass(t *testing.T) {
	wrong := &net.OpError{Op: "accept", Err: syscall.EINVAL}
	if err := Accept(&stumbling{results: []error{wrong}}, slog.New(slog.DiscardHandler), func(net.Conn) {}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("%v", err)
	}
	if err := Accept(&stumbling{}, slog.New(slog.DiscardHandler), func(net.Conn) {}); err != nil {
		t.Errorf("closed: %v", err)
	}
}

func TestListenTellsWhyItCannot(t *testing.T) {
	l, err := Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Listen(context.Background(), l.Addr().String()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second one: %v", err)
	}
}
