package proxy

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

func TestRelayCarriesBytesBothWays(t *testing.T) {
	onBothFronts(t, func(t *testing.T, front setup, wrap func(*peer) *peer) {
		r := newRig(t, []string{echo(t)}, front)
		c := wrap(r.dial())
		c.send(connect311("dev-1"))
		c.expect(connack311)
		big := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
		go func() {
			c.send(big)
			c.closeWrite()
		}()
		got, err := c.rest()
		if err != nil || !bytes.Equal(got, big) {
			t.Fatalf("%d bytes came back of %d: %v", len(got), len(big), err)
		}
		e := r.ended(StageRelay, ByClient, Closed)
		if e.ClientID != "dev-1" || e.Backend != "b1" || !e.Opened || e.SetUp <= 0 {
			t.Errorf("end %+v", e)
		}
		if want := uint64(len(big) + len(connect311("dev-1"))); e.FromClient != want || e.FromBackend != uint64(len(big)+4) {
			t.Errorf("%d bytes counted from the client, %d from the backend", e.FromClient, e.FromBackend)
		}
		if tr := r.server.Traffic(); tr.FromClients.Load() != e.FromClient || tr.FromBackends.Load() != e.FromBackend {
			t.Error("the server counts otherwise than the connection")
		}
	})
}

// C020 (a): all at once, a slow reader, and nothing is lost.
func TestLastBytesOfTheClientArrive_C020a(t *testing.T) {
	publish := append([]byte{0x30, 100, 0, 3, 't', '/', 'a'}, make([]byte, 95)...)
	all := append(bytes.Repeat(publish, 50), 0xE0, 0)
	onBothFronts(t, func(t *testing.T, front setup, wrap func(*peer) *peer) {
		got := make(chan []byte, 1)
		r := newRig(t, []string{serve(t, func(p *peer) {
			p.readConnect()
			p.send(connack311)
			_ = p.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
			var b []byte
			buf := make([]byte, 1<<10)
			for {
				n, err := p.Read(buf)
				b = append(b, buf[:n]...)
				if err != nil {
					if err != io.EOF {
						t.Errorf("the backend saw %v, not FIN", err)
					}
					break
				}
				time.Sleep(2 * time.Millisecond) // a slow reader is what this is about
			}
			got <- b
		})}, front)
		c := wrap(r.dial())
		c.send(append(connect311("dev-1"), all...))
		c.closeWrite()
		c.expect(connack311)
		c.expectEOF()
		if b := <-got; !bytes.Equal(b, all) {
			t.Errorf("%d bytes of %d arrived", len(b), len(all))
		}
		r.ended(StageRelay, ByClient, Closed)
	})
}

// C020 (b): the backend says its last and leaves.
func TestLastBytesOfTheBackendArrive_C020b(t *testing.T) {
	big := bytes.Repeat([]byte("last words "), 64<<10/11)
	for _, tt := range []struct {
		name  string
		bytes []byte
		stage Stage
	}{{"CONNACK 0x05", []byte{0x20, 2, 0, 5}, StageConnack}, {"64 KB", append(connack311[:4:4], big...), StageRelay}} {
		t.Run(tt.name, func(t *testing.T) {
			onBothFronts(t, func(t *testing.T, front setup, wrap func(*peer) *peer) {
				r := newRig(t, []string{serve(t, func(p *peer) {
					p.readConnect()
					p.send(tt.bytes)
				})}, front)
				raw := r.dial()
				_ = raw.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
				c := wrap(raw)
				c.send(connect311("dev-1"))
				var got []byte
				buf := make([]byte, 4<<10)
				for {
					n, err := c.Read(buf)
					got = append(got, buf[:n]...)
					if err != nil {
						if err != io.EOF { // under TLS: close_notify
							t.Errorf("ended with %v", err)
						}
						break
					}
					time.Sleep(2 * time.Millisecond) // a slow reader is what this is about
				}
				if !bytes.Equal(got, tt.bytes) {
					t.Errorf("%d bytes of %d came", len(got), len(tt.bytes))
				}
				c.Close()
				if e := r.end(); e.Stage != tt.stage || e.By != ByBackend {
					t.Errorf("ended at %s by %s: %s", e.Stage, e.By, e.Why)
				}
			})
		})
	}
}

// C020 (c), both ways: a reset is passed on as one, after the bytes before it.
func TestResetIsPassedOnAfterTheBytesBeforeIt_C020c(t *testing.T) {
	words := bytes.Repeat([]byte("x"), 10<<10)
	t.Run("of the backend", func(t *testing.T) {
		onBothFronts(t, func(t *testing.T, front setup, wrap func(*peer) *peer) {
			arrived := make(chan bool)
			r := newRig(t, []string{broker(t, func(p *peer, _ []byte) {
				p.send(words)
				<-arrived
				p.reset()
			})}, front)
			c := wrap(r.dial())
			c.send(connect311("dev-1"))
			c.expect(connack311)
			c.expect(words)
			begun := time.Now()
			close(arrived)
			c.expectReset()
			if took := time.Since(begun); took > abortsWithin {
				t.Errorf("after %v", took)
			}
			r.ended(StageRelay, ByBackend, Reset)
		})
	})
	t.Run("of the client", func(t *testing.T) {
		onBothFronts(t, func(t *testing.T, front setup, wrap func(*peer) *peer) {
			arrived, over := make(chan bool), make(chan bool)
			r := newRig(t, []string{broker(t, func(p *peer, _ []byte) {
				defer close(over)
				p.expect(words)
				close(arrived)
				p.expectReset()
			})}, front)
			c := wrap(r.dial())
			c.send(connect311("dev-1"))
			c.expect(connack311)
			c.send(words)
			<-arrived
			begun := time.Now()
			c.reset()
			<-over
			if took := time.Since(begun); took > abortsWithin {
				t.Errorf("after %v", took)
			}
			r.ended(StageRelay, ByClient, Reset)
		})
	})
}

// abortsWithin is half of the time that an abort gives bytes on their way to a
// peer that is there: one that is gone needs none.
const abortsWithin = 500 * time.Millisecond

// A client that is gone with bytes on their way to it: they can't arrive any
// more, and the backend must not wait for that.
func TestResetOfAClientThatDidNotReadIsPromptAtTheBackend(t *testing.T) {
	r := newRig(t, []string{broker(t, func(p *peer, _ []byte) {
		big := make([]byte, 64<<10)
		for {
			if _, err := p.Write(big); err != nil {
				if strings.Contains(err.Error(), "i/o timeout") {
					t.Errorf("the backend ended with %v", err)
				}
				return
			}
		}
	})})
	c := r.dial()
	_ = c.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	c.send(connect311("dev-1"))
	c.expect(connack311)
	before := r.server.Traffic().FromBackends.Load()
	eventually(t, "much is on its way", func() bool { return r.server.Traffic().FromBackends.Load() > before+64<<10 })
	begun := time.Now()
	c.reset()
	r.ended(StageRelay, ByClient, Reset)
	if took := time.Since(begun); took > abortsWithin {
		t.Errorf("after %v", took)
	}
}

// C020 (d): a client may say all that it has to say and then listen.
func TestHalfClosedClientGoesOnReading_C020d(t *testing.T) {
	onBothFronts(t, func(t *testing.T, front setup, wrap func(*peer) *peer) {
		r := newRig(t, []string{broker(t, func(p *peer, _ []byte) {
			if b, err := p.rest(); err != nil || string(b) != "that is all" {
				t.Errorf("the backend got %q, %v", b, err)
			}
			for range 10 {
				p.send([]byte("more"))
			}
		})}, front)
		c := wrap(r.dial())
		c.send(connect311("dev-1"))
		c.expect(connack311)
		c.send([]byte("that is all"))
		c.closeWrite()
		if b, err := c.rest(); err != nil || string(b) != strings.Repeat("more", 10) {
			t.Errorf("the client got %q, %v", b, err)
		}
		r.ended(StageRelay, ByClient, Closed)
	})
}

// And the other way round.
func TestHalfClosedBackendGoesOnReading_C020d(t *testing.T) {
	onBothFronts(t, func(t *testing.T, front setup, wrap func(*peer) *peer) {
		got := make(chan string, 1)
		r := newRig(t, []string{broker(t, func(p *peer, _ []byte) {
			p.closeWrite()
			b, err := p.rest()
			if err != nil {
				t.Error(err)
			}
			got <- string(b)
		})}, front)
		c := wrap(r.dial())
		c.send(connect311("dev-1"))
		c.expect(connack311)
		c.expectEOF()
		c.send([]byte("still here"))
		c.closeWrite()
		if b := <-got; b != "still here" {
			t.Errorf("the backend got %q", b)
		}
		r.ended(StageRelay, ByBackend, Closed)
	})
}

// Held bytes and the backend's talk may both be too much for the sockets: each
// is written by its own direction, so neither waits for the other.
func TestMuchBehindConnectAndMuchInReturn(t *testing.T) {
	const size = 8 << 20
	behind := make([]byte, 100<<10)
	r := newRig(t, []string{broker(t, func(p *peer, _ []byte) {
		p.send(make([]byte, size)) // before it reads on
		if b, err := p.rest(); err != nil || len(b) != len(behind) {
			t.Errorf("%d bytes behind CONNECT arrived: %v", len(b), err)
		}
	})}, func(o *Options, _ *PoolOptions) { o.MaxConnectSize = 256 << 10 })
	c := r.dial()
	big := mqtt.AppendConnect(nil, mqtt.ConnectOptions{ClientID: "dev-1", CleanStart: true, Username: make60k(), Password: make60k()})
	go func() {
		c.send(append(big, behind...))
		c.closeWrite()
	}()
	c.expect(connack311)
	if b, err := c.rest(); err != nil || len(b) != size {
		t.Errorf("%d bytes came: %v", len(b), err)
	}
	r.ended(StageRelay, ByClient, Closed)
}

func make60k() []byte { return bytes.Repeat([]byte("u"), 60<<10) }

// Buffers go from connection to connection: what one has read must never show
// up at another.
func TestConnectionsDoNotSeeEachOthersBuffers(t *testing.T) {
	r := newRig(t, []string{broker(t, func(p *peer, connect []byte) {
		view, _, _ := mqtt.ParseConnect(connect, 0)
		p.send(append([]byte(nil), view.ClientID...))
		b, _ := p.rest()
		if want := bytes.Repeat(view.ClientID, len(b)/max(1, len(view.ClientID))); !bytes.Equal(b, want) {
			t.Errorf("%q was sent the bytes of another", view.ClientID)
		}
	})})
	done := make(chan bool)
	const clients, rounds = 8, 40
	for i := range clients {
		go func() {
			defer func() { done <- true }()
			id := strings.Repeat(string(rune('a'+i)), 20+i)
			for range rounds {
				raw, err := net.Dial("tcp", r.addr)
				if err != nil {
					t.Error(err)
					return
				}
				c := &peer{t, raw}
				_ = c.SetDeadline(time.Now().Add(patience))
				c.send(append(connect311(id), strings.Repeat(id, 60)...))
				c.expect(connack311)
				c.expect([]byte(id))
				c.closeWrite()
				c.expectEOF()
				c.Close()
				if e := r.end(); e.Err != nil {
					t.Error(e.Err)
				}
			}
		}()
	}
	for range clients {
		<-done
	}
}
