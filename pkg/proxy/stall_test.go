package proxy

import (
	"crypto/tls"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// C010: the limit is one from accept on, whatever comes meanwhile. Time is
// synctest's, so it is met to the nanosecond.
func TestStalledClientsEndAtOneAbsoluteDeadline_C010(t *testing.T) {
	const budget = 10 * time.Second
	connect := connect311("dev-1")
	for _, tt := range []struct {
		name   string
		setups []setup
		stage  Stage
		sends  func(c *peer)
	}{
		{"tls, silent", []setup{terminate(nil)}, StageHandshake, nil},
		{"tls, a byte a second", []setup{terminate(nil)}, StageHandshake, dribble([]byte{0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3})},
		{"tls, whole hello and no more", []setup{terminate(nil)}, StageHandshake, func(c *peer) {
			_ = tls.Client(&mute{Conn: c.Conn}, clientTLS()).Handshake()
		}},
		{"tls, handshake and no more", []setup{terminate(nil)}, StageConnect, func(c *peer) { _, _ = c.overTLS(clientTLS()).rest() }},
		{"plain, silent", nil, StageConnect, nil},
		{"plain, a byte a second", nil, StageConnect, dribble(connect)},
		{"proxy header, silent", []setup{acceptProxy(false)}, StageHeader, nil},
		{"proxy header, a byte a second", []setup{acceptProxy(false)}, StageHeader, dribble([]byte("PROXY TCP4 192.0.2.1 "))},
		{"all of it slowly", []setup{acceptProxy(false)}, StageConnect, func(c *peer) {
			c.send([]byte("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"))
			time.Sleep(7 * time.Second) // does not begin anew with the header read
			c.send(connect[:5])
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := build(t, []string{"nobody"}, append(tt.setups, func(o *Options, _ *PoolOptions) { o.ConnectTimeout = budget })...)
				defer r.close()
				c := r.pipe(trusted)
				var sending sync.WaitGroup
				if tt.sends != nil {
					sending.Go(func() { tt.sends(c) })
				}
				if e := r.ended(tt.stage, ByClient, Timeout); e.Duration != budget {
					t.Errorf("ended after %v, want %v", e.Duration, budget)
				}
				c.Close()
				sending.Wait()
			})
		})
	}
}

// dribble sends a byte a second for as long as that goes.
func dribble(b []byte) func(*peer) {
	return func(c *peer) {
		for {
			for i := range b {
				if _, err := c.Write(b[i : i+1]); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
			b = b[len(b)-1:]
		}
	}
}

// C010 on sockets: many that stall hold up nobody, and leave nothing behind.
func TestStalledClientsHoldUpNobody_C010(t *testing.T) {
	address, _ := recorder(t)
	r := newRig(t, []string{address}, terminate(nil), func(o *Options, _ *PoolOptions) { o.ConnectTimeout = 3 * time.Second })
	live := func() {
		t.Helper()
		begun := time.Now()
		c := r.dial().overTLS(clientTLS())
		c.send(connect311("real"))
		c.expect(connack311)
		c.Close()
		if took := time.Since(begun); took > time.Second {
			t.Errorf("a real client took %v", took)
		}
		r.ended(StageRelay, ByClient, Closed)
	}
	live()
	descriptors, goroutines := openDescriptors(t), runtime.NumGoroutine()

	hello := recordHello()
	var stalled []*peer
	var dribbling sync.WaitGroup
	for i := range 700 {
		c := r.dial()
		stalled = append(stalled, c)
		switch {
		case i < 500:
		case i < 600:
			dribbling.Go(func() {
				for _, b := range hello {
					if _, err := c.Write([]byte{b}); err != nil {
						return
					}
					if waitClosed(c, 100*time.Millisecond) {
						return
					}
				}
			})
		default:
			c.send(hello)
		}
		if i%100 == 99 {
			live()
		}
	}
	for range stalled {
		if e := r.end(); e.Why != Timeout {
			t.Errorf("ended %s at %s: %v", e.Why, e.Stage, e.Err)
		}
	}
	for _, c := range stalled {
		c.Close()
	}
	dribbling.Wait()
	eventually(t, "descriptors and goroutines are given back", func() bool {
		return openDescriptors(t) <= descriptors && runtime.NumGoroutine() <= goroutines
	})
}

// waitClosed waits so long for the other side to end the connection.
func waitClosed(c *peer, d time.Duration) bool {
	_ = c.SetReadDeadline(time.Now().Add(d))
	_, err := c.Read(make([]byte, 1))
	t, ok := err.(interface{ Timeout() bool })
	return err != nil && (!ok || !t.Timeout())
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc here")
	}
	return len(fds)
}
