package proxy

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// answering gives a backend that answers CONNECT with these bytes and then does
// what then says, nil for only listening.
func answering(answer []byte, then func(*peer)) func(*peer) {
	return func(p *peer) {
		p.readConnect()
		p.send(answer)
		if then != nil {
			then(p)
			return
		}
		_, _ = p.rest()
	}
}

func connackKeepAlive(seconds byte) []byte {
	return []byte{0x20, 6, 0, 0, 3, byte(mqtt.PropServerKeepAlive), 0, seconds}
}

// talk sends a byte a second until that fails.
func talk(p *peer) {
	for {
		if _, err := p.Write([]byte{0}); err != nil {
			return
		}
		time.Sleep(time.Second)
	}
}

func TestIdleTimeoutIsTheClientsSilence(t *testing.T) {
	const never = 0
	keepAlive := func(v mqtt.Version, seconds uint16) []byte {
		return mqtt.AppendConnect(nil, mqtt.ConnectOptions{Version: v, ClientID: "dev-1", CleanStart: true, KeepAlive: seconds})
	}
	auth := []byte{0xF0, 2, 0x18, 0}
	for _, tt := range []struct {
		name    string
		setup   setup
		connect []byte
		backend func(*peer)
		answer  int // bytes of it
		want    time.Duration
	}{
		{"Keep Alive x 1.5 and the grace", nil, keepAlive(4, 60), answering(connack311, nil), 4, 100 * time.Second},
		{"what the backend says does not count", nil, keepAlive(4, 60), answering(connack311, talk), 4, 100 * time.Second},
		{"Keep Alive 0", nil, keepAlive(4, 0), answering(connack311, nil), 4, never},
		{"Keep Alive 0, idle_timeout", idleTimeout(7 * time.Second), keepAlive(4, 0), answering(connack311, nil), 4, 7 * time.Second},
		{"Keep Alive before idle_timeout", idleTimeout(7 * time.Second), keepAlive(4, 60), answering(connack311, nil), 4, 100 * time.Second},
		{"Server Keep Alive", nil, keepAlive(5, 60), answering(connackKeepAlive(20), nil), 8, 40 * time.Second},
		{"Server Keep Alive 0", nil, keepAlive(5, 60), answering(connackKeepAlive(0), nil), 8, never},
		{"Server Keep Alive after AUTH, shorter", nil, keepAlive(5, 60), answering(append(auth[:4:4], connackKeepAlive(20)...), nil), 12, 40 * time.Second},
		{"Server Keep Alive after AUTH, longer, late", nil, keepAlive(5, 60), answering(auth, func(p *peer) {
			time.Sleep(15 * time.Second)
			p.send(connackKeepAlive(200))
			_, _ = p.rest()
		}), 12, 15*time.Second + 310*time.Second},
		{"Server Keep Alive 0 after AUTH", nil, keepAlive(5, 60), answering(auth, func(p *peer) {
			for _, b := range connackKeepAlive(0) { // in crumbs
				p.send([]byte{b})
			}
			_, _ = p.rest()
		}), 12, never},
		{"AUTH itself in crumbs", nil, keepAlive(5, 60), answering(auth[:1], func(p *peer) {
			p.send(auth[1:])
			p.send(connackKeepAlive(20))
			_, _ = p.rest()
		}), 12, 40 * time.Second},
		{"tcp, idle_timeout", func(o *Options, _ *PoolOptions) { o.Protocol, o.IdleTimeout = TCP, 7*time.Second }, keepAlive(4, 60),
			func(p *peer) { _, _ = p.rest() }, 0, 7 * time.Second},
		{"tcp", func(o *Options, _ *PoolOptions) { o.Protocol = TCP }, keepAlive(4, 60), func(p *peer) { _, _ = p.rest() }, 0, never},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				setups := []setup{overPipes(t, tt.backend)}
				if tt.setup != nil {
					setups = append(setups, tt.setup)
				}
				r := build(t, []string{"pipe"}, setups...)
				defer r.close()
				c := r.pipe("192.0.2.1:4000")
				_ = c.SetDeadline(time.Time{})
				c.send(tt.connect)
				go func() { _, _ = c.rest() }()
				if tt.want == never {
					time.Sleep(24 * time.Hour)
					synctest.Wait()
					if len(r.ends) > 0 {
						t.Errorf("ended: %s", r.end().Why)
					}
					c.Close()
					return
				}
				time.Sleep(tt.want - 1)
				synctest.Wait()
				if len(r.ends) > 0 {
					t.Fatalf("ended early: %+v", r.end())
				}
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				if len(r.ends) == 0 {
					t.Fatalf("still there after %v", tt.want)
				}
				r.ended(StageRelay, ByClient, Idle)
				c.Close()
			})
		})
	}
}

func idleTimeout(d time.Duration) setup {
	return func(o *Options, _ *PoolOptions) { o.IdleTimeout = d }
}

func TestPingKeepsAConnectionAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := build(t, []string{"pipe"}, overPipes(t, answering(connack311, nil)))
		defer r.close()
		c := r.pipe("192.0.2.1:4000")
		_ = c.SetDeadline(time.Time{})
		c.send(connect311("dev-1"))
		c.expect(connack311)
		for range 100 {
			time.Sleep(99 * time.Second)
			c.send([]byte{0xC0, 0})
		}
		synctest.Wait()
		if len(r.ends) > 0 {
			t.Fatal("ended though it pinged")
		}
		time.Sleep(100 * time.Second)
		r.ended(StageRelay, ByClient, Idle)
	})
}

// A device that vanished while messages for it were on their way: the backend's
// direction is stuck in a write, and must not outlive the silence.
func TestIdleTimeoutEndsAStuckWriteToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := build(t, []string{"pipe"}, overPipes(t, answering(connack311, talk)))
		defer r.close()
		c := r.pipe("192.0.2.1:4000")
		_ = c.SetDeadline(time.Time{})
		c.send(connect311("dev-1"))
		c.expect(connack311) // and reads nothing more
		time.Sleep(100*time.Second + lastWords)
		synctest.Wait()
		if len(r.ends) == 0 {
			t.Fatal("still there")
		}
		r.ended(StageRelay, ByClient, Idle)
	})
}

// When one direction is over the other has to go on making progress.
func TestHalfClosedConnectionEndsWhenTheRestIsSilent(t *testing.T) {
	const limit = 30 * time.Second
	for _, tt := range []struct {
		name    string
		backend func(*peer)
		client  func(*peer)
		by      Side
		want    time.Duration
	}{
		{"client over, backend silent", func(p *peer) { _, _ = p.rest(); time.Sleep(time.Hour) }, (*peer).closeWrite, ByBackend, limit},
		{"client over, backend talks for a while", func(p *peer) {
			for range 10 {
				time.Sleep(20 * time.Second)
				_, _ = p.Write([]byte{0})
			}
			time.Sleep(time.Hour)
		}, (*peer).closeWrite, ByBackend, 200*time.Second + limit},
		{"backend over, client silent", func(p *peer) { p.closeWrite(); _, _ = p.rest() }, func(*peer) {}, ByClient, limit},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := build(t, []string{"pipe"}, overPipes(t, answering(connack311, tt.backend)))
				defer r.close()
				c := r.pipe("192.0.2.1:4000")
				_ = c.SetDeadline(time.Time{})
				c.send(connect311("dev-1"))
				c.expect(connack311)
				begun := time.Now()
				tt.client(c)
				var over sync.WaitGroup
				over.Go(func() {
					_, _ = c.rest()
					if tt.by == ByClient {
						time.Sleep(time.Hour)
					}
					c.Close()
				})
				defer over.Wait()
				time.Sleep(tt.want)
				r.ended(StageRelay, tt.by, HalfClosed)
				if took := time.Since(begun); took < tt.want || took > tt.want+lastWords {
					t.Errorf("after %v, want %v", took, tt.want)
				}
			})
		})
	}
}

// Enhanced authentication: AUTH goes both ways before CONNACK does.
func TestEnhancedAuthenticationGoesThrough(t *testing.T) {
	challenge, response := []byte{0xF0, 2, 0x18, 0}, []byte{0xF0, 2, 0x18, 0}
	connack := mqtt.AppendConnack(nil, mqtt.V5, mqtt.Success)
	refused := mqtt.AppendConnack(nil, mqtt.V5, mqtt.NotAuthorized)
	for _, last := range [][]byte{connack, refused} {
		r := newRig(t, []string{serve(t, func(p *peer) {
			p.readConnect()
			p.send(challenge)
			p.expect(response)
			p.send(last)
			if &last[0] == &connack[0] {
				_, _ = p.rest()
			}
		})})
		c := r.dial()
		c.send(connect5("dev-1"))
		c.expect(challenge)
		c.send(response)
		c.expect(last)
		c.closeWrite()
		c.expectEOF()
		if e := r.end(); e.Why != Closed || !e.Opened {
			t.Errorf("ended %s", e.Why)
		}
		r.reported(nil, nil, []string{"b1"})
	}
}

// The wait for CONNACK is bounded behind an AUTH as before it, from each AUTH
// anew: a device may have to think. Whoever's turn it was is named.
func TestWaitForConnackIsBoundedAfterAUTH(t *testing.T) {
	const connackTimeout = patience // of the rig
	auth, connack := []byte{0xF0, 2, 0x18, 0}, mqtt.AppendConnack(nil, mqtt.V5, mqtt.Success)
	for _, tt := range []struct {
		name    string
		backend func(*peer)
		client  func(*peer)
		by      Side
		why     Why
		after   time.Duration
		never   bool
	}{
		{name: "the client does not answer", backend: answering(auth, nil), client: func(*peer) {}, by: ByClient, why: Timeout, after: connackTimeout},
		{
			name: "the backend does not go on", backend: answering(auth, nil),
			client: func(p *peer) { time.Sleep(time.Second); p.send(auth) }, by: ByBackend, why: NoConnack, after: connackTimeout,
		},
		{
			name: "the second AUTH leads nowhere",
			backend: answering(auth, func(p *peer) {
				p.expect(auth)
				p.send(auth)
				_, _ = p.rest()
			}),
			client: func(p *peer) { time.Sleep(connackTimeout / 2); p.send(auth) }, by: ByClient, why: Timeout, after: connackTimeout/2 + connackTimeout,
		},
		{
			name: "slow, but it comes to an end",
			backend: answering(auth, func(p *peer) {
				for range 3 {
					p.expect(auth)
					p.send(auth)
				}
				p.send(connack)
				_, _ = p.rest()
			}),
			client: func(p *peer) {
				for range 3 {
					time.Sleep(connackTimeout - 1)
					p.send(auth)
				}
			},
			never: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := build(t, []string{"pipe"}, overPipes(t, tt.backend))
				defer r.close()
				c := r.pipe("192.0.2.1:4000")
				_ = c.SetDeadline(time.Time{})
				c.send(mqtt.AppendConnect(nil, mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "dev-1", CleanStart: true}))
				go func() { _, _ = c.rest() }()
				tt.client(c)
				time.Sleep(24 * time.Hour)
				synctest.Wait()
				if tt.never {
					if len(r.ends) > 0 {
						t.Errorf("ended: %+v", r.end())
					}
					c.Close()
					return
				}
				if len(r.ends) == 0 {
					t.Fatal("not ended in a day")
				}
				e := r.ended(StageConnack, tt.by, tt.why)
				if e.Duration < tt.after || e.Duration > tt.after+lastWords {
					t.Errorf("after %v, want %v", e.Duration, tt.after)
				}
			})
		})
	}
}
