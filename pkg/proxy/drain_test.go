package proxy

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mqttlb/mqttlb/pkg/backend"
)

// connected is a client whose way is open.
func (r *rig) connected(id string) *peer {
	r.t.Helper()
	c := r.dial()
	c.send(connect311(id))
	c.expect(connack311)
	return c
}

func TestCloseBackendEndsItsConnectionsAndNoOther(t *testing.T) {
	a, _ := recorder(t)
	b, _ := recorder(t)
	r := newRig(t, []string{a, b})
	onA := []*peer{r.connected("a1"), r.connected("a2")}
	r.backends[0].SetHealth(false, "test")
	onB := r.connected("b1")
	if n := r.server.CloseBackend(r.backends[0].ID(), MarkedDown); n != 2 {
		t.Errorf("%d connections ended", n)
	}
	for _, c := range onA {
		c.expectEOF()
		c.Close()
		if e := r.ended(StageRelay, ByMqttlb, MarkedDown); e.Backend != "b1" {
			t.Errorf("on %s", e.Backend)
		}
	}
	if n := r.server.CloseBackend(backend.ID{Pool: "pool", Name: "nobody"}, MarkedDown); n != 0 {
		t.Errorf("%d connections of nobody ended", n)
	}
	onB.send([]byte{0xC0, 0})
	onB.closeWrite()
	onB.expectEOF()
	r.ended(StageRelay, ByClient, Closed)
}

// A backend that hangs is what on_marked_down is for: it can't be waited for
// before its clients are told.
func TestCloseBackendDoesNotWaitForABackendThatHangs(t *testing.T) {
	release := make(chan bool)
	r := newRig(t, []string{broker(t, func(*peer, []byte) { <-release })})
	c := r.connected("dev-1")
	begun := time.Now()
	r.server.CloseBackend(r.backends[0].ID(), MarkedDown)
	c.expectEOF()
	if took := time.Since(begun); took > lastWords/2 {
		t.Errorf("the client was told after %v", took)
	}
	close(release)
	c.Close()
	r.ended(StageRelay, ByMqttlb, MarkedDown)
}

// A client that waits for CONNACK is owed one, in its own version.
func TestCloseBackendWhileConnackIsDue(t *testing.T) {
	for want, connect := range map[string][]byte{"connack=03,close": connect311("dev-1"), "connack=88,close": connect5("dev-1")} {
		asked := make(chan bool)
		r := newRig(t, []string{serve(t, func(p *peer) {
			p.readConnect()
			asked <- true
			_, _ = p.rest()
		}), echo(t)})
		c := r.dial()
		go func() {
			<-asked
			r.server.CloseBackend(r.backends[0].ID(), MarkedDown)
		}()
		if how, _ := outcome(r, c, nil, connect); how != want {
			t.Errorf("%s, want %s", how, want)
		}
		c.Close()
		if e := r.ended(StageConnack, ByMqttlb, MarkedDown); e.Attempt != 1 {
			t.Errorf("the CONNECT was sent to another backend, too: attempt %d", e.Attempt)
		}
		r.reported(nil, nil, nil)
	}
}

// One that is being dialled is on its way to the backend that is to be left.
func TestCloseBackendDuringADialToIt(t *testing.T) {
	dialled, proceed := make(chan bool), make(chan bool)
	r := newRig(t, []string{echo(t)}, delayDial(dialled, proceed))
	c := r.dial()
	c.send(connect311("dev-1"))
	<-dialled
	if n := r.server.CloseBackend(r.backends[0].ID(), MarkedDown); n != 1 {
		t.Errorf("%d connections ended", n)
	}
	close(proceed)
	if b, err := c.rest(); err != nil || string(b) != "\x20\x02\x00\x03" {
		t.Errorf("answered % x, %v", b, err)
	}
	c.Close()
	r.ended(StageDial, ByMqttlb, MarkedDown)
	r.reported(nil, nil, nil)
}

func TestShutdownSpreadsTheEndsEvenly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, limit = 20, 10*time.Second + shutdownMargin
		r := build(t, []string{"pipe"}, overPipes(t, answering(connack311, nil)))
		defer r.close()
		var all sync.WaitGroup
		for range clients {
			c := r.pipe("192.0.2.1:4000")
			c.send(connect311("dev-1"))
			c.expect(connack311)
			all.Go(func() { _, _ = c.rest(); c.Close() })
		}
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		if err := r.server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if took := time.Since(begun); took != limit-shutdownMargin-(limit-shutdownMargin)/clients {
			t.Errorf("took %v", took)
		}
		var at []time.Duration
		for range clients {
			e := r.ended(StageRelay, ByMqttlb, ShuttingDown)
			at = append(at, e.Duration)
		}
		slices.Sort(at)
		for i, d := range at {
			if want := time.Duration(i) * (limit - shutdownMargin) / clients; d != want {
				t.Errorf("end %d at %v, want %v", i, d, want)
			}
		}
		all.Wait()
	})
}

func TestShutdownWithoutADeadlineEndsAllAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := build(t, []string{"pipe"}, overPipes(t, answering(connack311, nil)))
		defer r.close()
		c := r.pipe("192.0.2.1:4000")
		c.send(connect311("dev-1"))
		c.expect(connack311)
		go func() { _, _ = c.rest(); c.Close() }()
		begun := time.Now()
		if err := r.server.Shutdown(context.Background()); err != nil || time.Since(begun) > 0 {
			t.Errorf("Shutdown: %v after %v", err, time.Since(begun))
		}
		// Again is no harm.
		if err := r.server.Shutdown(context.Background()); err != nil {
			t.Errorf("second Shutdown: %v", err)
		}
	})
}

// What is left at the end of Shutdown's time is cut, at whatever stage.
func TestShutdownCutsWhatDoesNotEnd(t *testing.T) {
	dialling := make(chan bool, 1)
	r := build(t, []string{"blocked"}, func(_ *Options, po *PoolOptions) {
		po.Dial = func(ctx context.Context, _ *backend.Backend) (net.Conn, error) {
			dialling <- true
			<-ctx.Done()
			return nil, ctx.Err()
		}
	}, func(o *Options, _ *PoolOptions) { o.MaxConnections = 0 })
	l := mustListen(t)
	r.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(t.Context(), l) }()
	waits := r.dial()
	waits.send(connect311("dev-1"))
	<-dialling
	silent := r.dial()
	eventually(t, "both are accepted", func() bool { return r.server.Accepted() == 2 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begun := time.Now()
	err := r.server.Shutdown(ctx)
	if took := time.Since(begun); took > lastWords/2 {
		t.Errorf("took %v", took)
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v", err)
	}
	for range 2 {
		if e := r.end(); e.Why != ShuttingDown || e.By != ByMqttlb {
			t.Errorf("ended by %s: %s", e.By, e.Why)
		}
	}
	_, _ = silent.rest()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if n := r.server.Connections(); n != 0 {
		t.Errorf("%d connections left", n)
	}
}

func TestServeAfterShutdownClosesItsSocket(t *testing.T) {
	r := newRig(t, []string{echo(t)})
	if err := r.server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := mustListen(t)
	if err := r.server.Serve(t.Context(), l); err != nil {
		t.Errorf("Serve: %v", err)
	}
	if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
		c.Close()
		t.Error("the socket still takes connections")
	}
}

func TestServeEndsWithItsContextAndConnectionsLiveOn(t *testing.T) {
	r := build(t, []string{echo(t)})
	defer r.close()
	ctx, cancel := context.WithCancel(t.Context())
	l := mustListen(t)
	r.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(ctx, l) }()
	c := r.connected("dev-1")
	cancel()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	c.send([]byte("still here"))
	c.expect([]byte("still here"))
	c.Close()
	r.ended(StageRelay, ByClient, Closed)
}

// Kicks may come at any moment of a connection's life.
func TestKickAtAnyMomentEndsTheConnection(t *testing.T) {
	onBothFronts(t, func(t *testing.T, front setup, wrap func(*peer) *peer) {
		address, _ := recorder(t)
		r := newRig(t, []string{address}, front)
		for i := range 60 {
			over := make(chan bool)
			raw := r.dial()
			go func() {
				defer close(over)
				defer raw.Close()
				c := &peer{discard{t}, raw.Conn}
				if r.server.opts.Mode == Terminate {
					c = c.overTLS(clientTLS())
				}
				_, _ = c.Write(connect5("dev-1"))
				_, _ = c.rest()
			}()
			time.Sleep(time.Duration(i) * 50 * time.Microsecond) // moments, not order
			for len(r.ends) == 0 {
				for _, s := range r.server.snapshot() {
					s.kick(MarkedDown)
				}
				time.Sleep(time.Millisecond)
			}
			<-over
			if e := r.end(); e.Why != MarkedDown || e.By != ByMqttlb {
				t.Fatalf("ended by %s: %s at %s", e.By, e.Why, e.Stage)
			}
		}
	})
}

// discard is a testing.TB for peers that may well fail.
type discard struct{ testing.TB }

func (discard) Helper()               {}
func (discard) Errorf(string, ...any) {}
