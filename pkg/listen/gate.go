package listen

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"
)

// rebindPause is how long a Gate waits before it tries again to listen.
const rebindPause = time.Second

// Gate is a TCP health-check port. It listens while it is open and has no
// socket while it is shut, so that a checker that only connects is refused by
// the kernel: accepting and closing would look healthy to it.
type Gate struct {
	Address string // host:port
	Log     *slog.Logger

	mu     sync.Mutex
	open   bool
	turned chan struct{} // closed and replaced when open changes
}

// Set opens or shuts the gate. It may be called before Run and at any time.
func (g *Gate) Set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == open {
		return
	}
	g.open = open
	if g.turned != nil {
		close(g.turned)
		g.turned = nil
	}
}

// state is whether the gate is to be open, and a channel that closes when that
// changes.
func (g *Gate) state() (bool, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.turned == nil {
		g.turned = make(chan struct{})
	}
	return g.open, g.turned
}

// Run keeps the port as Set says until ctx ends. A failed bind is logged and
// tried again each second: a port that someone else holds for a moment must
// not take the balancer out for good.
func (g *Gate) Run(ctx context.Context) error {
	for {
		open, turned := g.state()
		var retry <-chan time.Time
		shut := func() {}
		if open {
			l, err := net.Listen("tcp", g.Address)
			if err != nil {
				g.Log.Error("health endpoint cannot listen, trying again", "address", g.Address, "err", err, "pause", rebindPause)
				retry = time.After(rebindPause)
			} else {
				g.Log.Info("health endpoint open", "address", l.Addr().String())
				shut = g.serve(l)
			}
		}
		select {
		case <-ctx.Done():
			shut()
			return nil
		case <-turned:
		case <-retry:
		}
		shut()
	}
}

// serve accepts and closes until the returned function has closed l.
func (g *Gate) serve(l net.Listener) (shut func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = Accept(l, g.Log, func(c net.Conn) { c.Close() })
	}()
	return func() {
		l.Close()
		<-done
		g.Log.Info("health endpoint shut", "address", g.Address)
	}
}
