package health

import (
	"context"
	"net"
	"testing"
	"time"
)

func TestTCPProbe(t *testing.T) {
	for _, tc := range []struct {
		name   string
		handle func(c *net.TCPConn) // before the end is read
	}{
		{"server that waits for the client", func(*net.TCPConn) {}},
		{"server that speaks first", func(c *net.TCPConn) { _, _ = c.Write([]byte("220 mail\r\n")) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			type end struct {
				sent int
				err  error
			}
			ends := make(chan end, 1)
			addr := serve(t, func(c *net.TCPConn) {
				tc.handle(c)
				rest, err := readEnd(c)
				ends <- end{len(rest), err}
			})
			wantReason(t, probe(t, TCP{}, addr, 5*time.Second), "")
			if e := <-ends; e.sent != 0 || e.err != nil {
				t.Fatalf("the server read %d bytes, then %v; want a bare FIN", e.sent, e.err)
			}
		})
	}
}

func TestTCPProbeOfAServerThatKeepsItsEndOpenEndsSoon(t *testing.T) {
	release := make(chan struct{})
	addr := serve(t, func(*net.TCPConn) { <-release })
	defer close(release)
	began := time.Now()
	wantReason(t, probe(t, TCP{}, addr, time.Minute), "")
	if took := time.Since(began); took > 5*lingerTime {
		t.Fatalf("took %v", took)
	}
}

func TestTCPProbeRefused(t *testing.T) {
	wantReason(t, probe(t, TCP{}, freePort(t), 5*time.Second), Refused)
}

func TestTCPProbeEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (TCP{}).Probe(ctx, freePort(t)); err == nil {
		t.Fatal("passed")
	}
	ctx, cancel = context.WithTimeout(t.Context(), -time.Second)
	defer cancel()
	wantReason(t, TCP{}.Probe(ctx, freePort(t)), Timeout)
}
