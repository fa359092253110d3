package proxy

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mqttlb/mqttlb/pkg/backend"
	"github.com/mqttlb/mqttlb/pkg/health"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// blackhole is an address that answers no SYN: its queue is full.
func blackhole(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*unix.SockaddrInet4).Port}).String()
	for range 16 {
		c, err := net.DialTimeout("tcp", address, 50*time.Millisecond)
		if n, ok := errors.AsType[net.Error](err); ok && n.Timeout() {
			return address
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Skip("this kernel takes connections beyond its queue")
	return ""
}

func dialTimeout(d time.Duration) setup {
	return func(_ *Options, po *PoolOptions) { po.DialTimeout = d }
}

// collector is a broker that says yes and gives all that it was sent once it has
// as much as it is to have.
func collector(t *testing.T, size int) (address string, got chan []byte) {
	got = make(chan []byte, 16)
	return serve(t, func(p *peer) {
		line, _ := readLine(p)
		b := append([]byte(line), p.readConnect()...)
		p.send(connack311)
		rest := make([]byte, size)
		n, _ := readFull(p, rest)
		got <- append(b, rest[:n]...)
		_, _ = p.rest()
	}), got
}

// rstBackend resets when it hears the first byte; the count tells how often.
func rstBackend(t *testing.T, count *atomic.Int32) string {
	return serve(t, func(p *peer) {
		_, _ = p.Read(make([]byte, 1))
		count.Add(1)
		p.reset()
	})
}

// resetting is a backend that accepts and resets before any byte is sent to it.
// The setup has the dial wait until that has happened: a reset that comes even
// earlier fails the connect.
func resetting(t *testing.T) (address string, wait setup) {
	dialled, reset := make(chan bool), make(chan bool)
	address = serve(t, func(p *peer) {
		<-dialled
		p.reset()
		reset <- true
	})
	return address, func(_ *Options, po *PoolOptions) {
		dial := po.Dial
		po.Dial = func(ctx context.Context, b *backend.Backend) (net.Conn, error) {
			c, err := dial(ctx, b)
			if b.Address == address {
				dialled <- true
				<-reset
			}
			return c, err
		}
	}
}

func TestUnreachableBackendsArePassedOver_C019(t *testing.T) {
	all := streamOf(t, "C006", "connect-subscribe-publish-ping")
	_, size, _ := mqtt.ParseConnect(all, 0)
	for _, tt := range []struct {
		name    string
		bad     func(t *testing.T) []string
		failed  []string
		early   []string
		attempt int
	}{
		{"owner refuses", func(t *testing.T) []string { return []string{closedPort(t)} }, []string{"b1"}, nil, 2},
		{"owner does not answer SYN", func(t *testing.T) []string { return []string{blackhole(t)} }, []string{"b1"}, nil, 2},
		{"all but the last of five refuse", func(t *testing.T) []string {
			return []string{closedPort(t), closedPort(t), closedPort(t), closedPort(t)}
		}, []string{"b1", "b2", "b3", "b4"}, nil, 5},
		{"owner reads and resets", func(t *testing.T) []string {
			return []string{rstBackend(t, new(atomic.Int32))}
		}, nil, []string{"b1/pipe-1"}, 2},
		{"owner reads CONNECT and closes", func(t *testing.T) []string {
			return []string{serve(t, func(p *peer) { _, _ = readLine(p); p.readConnect() })}
		}, nil, []string{"b1/pipe-1"}, 2},
		{"refused, then closed, then refused", func(t *testing.T) []string {
			return []string{closedPort(t), rstBackend(t, new(atomic.Int32)), closedPort(t)}
		}, []string{"b1", "b3"}, []string{"b2/pipe-1"}, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onBothFronts(t, func(t *testing.T, front setup, wrap func(*peer) *peer) {
				good, got := collector(t, len(all)-size)
				r := newRig(t, append(tt.bad(t), good), front, sendHeader(HeaderV1, TLVs{}), dialTimeout(300*time.Millisecond))
				c := wrap(r.dial())
				c.send(all)
				c.expect(connack311)
				b := <-got
				header, rest, _ := bytes.Cut(b, []byte("\n"))
				if !bytes.HasPrefix(header, []byte("PROXY TCP4 127.0.0.1 ")) || !bytes.Equal(rest, all) {
					t.Errorf("the backend got %q", b)
				}
				c.closeWrite()
				c.expectEOF() // one CONNACK and no more
				e := r.ended(StageRelay, ByClient, Closed)
				last := r.backends[len(r.backends)-1].Name
				if e.Attempt != tt.attempt || e.Backend != last {
					t.Errorf("attempt %d on %s", e.Attempt, e.Backend)
				}
				r.reported(tt.failed, tt.early, []string{last})
			})
		})
	}
}

func TestBackendThatAcceptsAndResetsIsPassedOver_C019(t *testing.T) {
	address, wait := resetting(t)
	r := newRig(t, []string{address, echo(t)}, wait)
	c := r.dial()
	c.send(connect311("dev-1"))
	c.expect(connack311)
	r.reported(nil, []string{"b1/dev-1"}, []string{"b2"})
}

// One that closes after CONNECT may do so because of this CONNECT. Two are
// enough: a third would be sent it in vain, and each time is a blow.
func TestCloseAfterConnectIsRetriedOnce_C019(t *testing.T) {
	var tried atomic.Int32
	r := newRig(t, []string{rstBackend(t, &tried), rstBackend(t, &tried), rstBackend(t, &tried)})
	c := r.dial()
	if how, _ := outcome(r, c, nil, connect5("poison")); how != "connack=88,close" {
		t.Error(how)
	}
	c.Close()
	e := r.ended(StageConnack, ByBackend, ClosedEarly)
	if n := tried.Load(); n != 2 || e.Attempt != 2 {
		t.Errorf("%d backends were sent the CONNECT, attempt %d", n, e.Attempt)
	}
	r.reported(nil, []string{"b1/poison", "b2/poison"}, nil)
}

func TestNoBackendLeft(t *testing.T) {
	for _, tt := range []struct {
		name      string
		addresses func(t *testing.T) []string
		change    func(r *rig)
		attempts  int
		v3, v5    string
		stage     Stage
		by        Side
		why       Why
		failed    int
	}{
		{"all refuse", func(t *testing.T) []string { return []string{closedPort(t), closedPort(t)} }, nil, 5,
			"connack=03,close", "connack=88,close", StageDial, ByBackend, Unreachable, 2},
		{"attempts are used up", func(t *testing.T) []string { return []string{closedPort(t), closedPort(t), echo(t)} }, nil, 2,
			"connack=03,close", "connack=88,close", StageDial, ByBackend, Unreachable, 2},
		{"all are down", func(t *testing.T) []string { return []string{echo(t)} }, func(r *rig) { r.backends[0].SetHealth(false, "test") }, 5,
			"connack=03,close", "connack=88,close", StageDial, ByMqttlb, NoBackend, 0},
		{"all drain", func(t *testing.T) []string { return []string{echo(t)} }, func(r *rig) { r.backends[0].SetAdmin(backend.Drain) }, 5,
			"connack=03,close", "connack=88,close", StageDial, ByMqttlb, NoBackend, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, tt.addresses(t), func(_ *Options, po *PoolOptions) { po.Attempts = tt.attempts })
			if tt.change != nil {
				tt.change(r)
			}
			for want, connect := range map[string][]byte{tt.v3: connect311("dev-1"), tt.v5: connect5("dev-1")} {
				c := r.dial()
				if how, _ := outcome(r, c, nil, connect); how != want {
					t.Errorf("%s, want %s", how, want)
				}
				c.Close()
				r.ended(tt.stage, tt.by, tt.why)
			}
			if n := len(noted(r, &r.failed)); n != 2*tt.failed {
				t.Errorf("%d dials reported", n)
			}
		})
	}
}

// A backend that took the CONNECT may be at work on it: it is not sent to
// another one, however long the silence or whatever comes instead of an answer.
func TestWhatFollowsTheFirstByteOrSilenceIsNotRetried_C019(t *testing.T) {
	for _, tt := range []struct {
		name  string
		reply func(p *peer)
		why   Why
	}{
		{"no CONNACK in time", func(p *peer) { _, _ = p.rest() }, NoConnack},
		{"half a CONNACK and silence", func(p *peer) { p.send([]byte{0x20}); _, _ = p.rest() }, NoConnack},
		{"half a CONNACK and FIN", func(p *peer) { p.send([]byte{0x20, 2}) }, Closed},
		{"half a CONNACK and RST", func(p *peer) {
			p.send([]byte{0x20})
			_, _ = p.Read(make([]byte, 1)) // the other side has the byte once it has reacted or waits
			p.reset()
		}, NoConnack},
		{"PINGRESP", func(p *peer) { p.send([]byte{0xD0, 0}); _, _ = p.rest() }, BadConnack},
		{"HTTP", func(p *peer) { p.send([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")); _, _ = p.rest() }, BadConnack},
		{"malformed CONNACK", func(p *peer) { p.send([]byte{0x20, 2, 0xFF, 0}); _, _ = p.rest() }, BadConnack},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for want, connect := range map[string][]byte{"connack=03,close": connect311("dev-1"), "connack=88,close": connect5("dev-1")} {
				var spare atomic.Int32
				owner := serve(t, func(p *peer) { p.readConnect(); tt.reply(p) })
				r := newRig(t, []string{owner, rstBackend(t, &spare)}, func(_ *Options, po *PoolOptions) {
					po.ConnackTimeout = 50 * time.Millisecond
				})
				c := r.dial()
				if how, _ := outcome(r, c, nil, connect); how != want {
					t.Errorf("%s, want %s", how, want)
				}
				c.Close()
				if e := r.ended(StageConnack, ByBackend, tt.why); e.Attempt != 1 || e.Backend != "b1" || e.Err == nil {
					t.Errorf("attempt %d on %s: %v", e.Attempt, e.Backend, e.Err)
				}
				if spare.Load() > 0 {
					t.Error("the CONNECT went to another backend, too")
				}
				r.reported(nil, nil, nil)
			}
		})
	}
}

// The refusal is the backend's own: it comes through whole, and what the client
// had sent behind its CONNECT goes nowhere.
func TestBackendsRefusalComesThroughWhole(t *testing.T) {
	long := mqtt.AppendConnackReason(nil, mqtt.V5, mqtt.Banned, string(bytes.Repeat([]byte("no"), 1000)))
	for _, tt := range []struct {
		name    string
		connect []byte
		answer  [][]byte // writes
	}{
		{"3.1.1", connect311("dev-1"), [][]byte{{0x20, 2, 0, 5}}},
		{"5.0", connect5("dev-1"), [][]byte{{0x20, 3, 0, 0x87, 0}}},
		{"5.0, 2 KB in two writes", connect5("dev-1"), [][]byte{long[:3], long[3:]}},
		{"5.0 refused by a server of 3.1.1", connect5("dev-1"), [][]byte{{0x20, 2, 0, 1}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onBothFronts(t, func(t *testing.T, front setup, wrap func(*peer) *peer) {
				behind := make(chan []byte, 1)
				r := newRig(t, []string{serve(t, func(p *peer) {
					p.readConnect()
					for _, b := range tt.answer {
						p.send(b)
					}
					b, _ := p.rest()
					behind <- b
				})}, front)
				c := wrap(r.dial())
				c.send(append(slices.Clone(tt.connect), 0xC0, 0))
				got, err := c.rest()
				if want := bytes.Join(tt.answer, nil); err != nil || !bytes.Equal(got, want) {
					t.Errorf("got % x, %v", got, err)
				}
				c.Close()
				e := r.ended(StageConnack, ByBackend, Refused)
				if e.Answer != mqtt.Success {
					t.Errorf("the record says that we told the client %s", e.Answer)
				}
				if b := <-behind; len(b) > 0 {
					t.Errorf("the backend was sent % x behind the CONNECT that it refused", b)
				}
				r.reported(nil, nil, []string{"b1"})
			})
		})
	}
}

// What this machine lacks is no backend's fault: nobody is blamed, and the
// client is told that we are busy. Descriptors are lacking for all backends, a
// local port or a buffer may be there for the next.
func TestWhatWeLackIsNoBackendsFault(t *testing.T) {
	for _, tt := range []struct {
		name    string
		errno   syscall.Errno
		attempt int
	}{
		{"no descriptor left to us", syscall.EMFILE, 1},
		{"no descriptor left to anybody", syscall.ENFILE, 1},
		{"no local port left", syscall.EADDRNOTAVAIL, 2},
		{"no buffers", syscall.ENOBUFS, 2},
		{"no memory", syscall.ENOMEM, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lack := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", tt.errno)}
			if r := health.ReasonOf(lack); r != health.Local {
				t.Errorf("a health check that meets it says %q", r)
			}
			r := newRig(t, []string{"one", "two"}, func(_ *Options, po *PoolOptions) {
				po.Dial = func(context.Context, *backend.Backend) (net.Conn, error) { return nil, lack }
			})
			for want, connect := range map[string][]byte{"connack=03,close": connect311("dev-1"), "connack=89,close": connect5("dev-1")} {
				c := r.dial()
				if how, _ := outcome(r, c, nil, connect); how != want {
					t.Errorf("%s, want %s", how, want)
				}
				c.Close()
				if e := r.ended(StageDial, ByMqttlb, NoResources); e.Attempt != tt.attempt || !errors.Is(e.Err, tt.errno) {
					t.Errorf("attempt %d, %v", e.Attempt, e.Err)
				}
			}
			r.reported(nil, nil, nil)
			if !strings.Contains(r.log.String(), `level=WARN msg="connection refused"`) {
				t.Errorf("no warning: %s", r.log.String())
			}
		})
	}
}

func TestNoLocalPortForOneBackendLeadsToTheNext(t *testing.T) {
	r := newRig(t, []string{"no port for this", echo(t)}, func(_ *Options, po *PoolOptions) {
		dial := po.Dial
		po.Dial = func(ctx context.Context, b *backend.Backend) (net.Conn, error) {
			if b.Name == "b1" {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.EADDRNOTAVAIL)}
			}
			return dial(ctx, b)
		}
	})
	c := r.dial()
	c.send(connect311("dev-1"))
	c.expect(connack311)
	r.reported(nil, nil, []string{"b2"})
}

// What a kick or the end of the server's context interrupts says nothing of the
// backend.
func TestDialGivenUpByUsBlamesNobody(t *testing.T) {
	for name, stop := range map[string]func(r *rig, cancel context.CancelFunc){
		"context ends": func(_ *rig, cancel context.CancelFunc) { cancel() },
		"shutdown": func(r *rig, _ context.CancelFunc) {
			ctx, cancel := context.WithTimeout(context.Background(), shutdownMargin)
			defer cancel()
			if err := r.server.Shutdown(ctx); err != nil {
				r.t.Errorf("Shutdown: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dialling := make(chan bool, 8)
			r := build(t, []string{"one", "two"}, func(_ *Options, po *PoolOptions) {
				po.Dial = func(ctx context.Context, _ *backend.Backend) (net.Conn, error) {
					dialling <- true
					<-ctx.Done()
					return nil, &net.OpError{Op: "dial", Err: ctx.Err()}
				}
			})
			defer r.close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l := mustListen(t)
			r.addr = l.Addr().String()
			served := make(chan error, 1)
			go func() { served <- r.server.Serve(ctx, l) }()
			c := r.dial()
			c.send(connect5("dev-1"))
			<-dialling
			go func() {
				// The client is told to come again, and goes.
				c.expect([]byte{0x20})
				_, _ = c.rest()
				c.Close()
			}()
			stop(r, cancel)
			e := r.ended(StageDial, ByMqttlb, ShuttingDown)
			if e.Answer != mqtt.ServerUnavailable || e.Attempt != 1 {
				t.Errorf("answer %s after attempt %d", e.Answer, e.Attempt)
			}
			r.reported(nil, nil, nil)
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
}
