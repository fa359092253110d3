package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mqttlb/mqttlb/cmd/internal/command"
	"github.com/mqttlb/mqttlb/pkg/admin"
	"github.com/mqttlb/mqttlb/pkg/listen"
)

// firstVerdicts is how long beyond a check's own timeout the start waits for
// the first verdict on each backend.
const firstVerdicts = time.Second

// sockets are all that the house listens on.
type sockets struct {
	listeners []net.Listener // as house.listeners
	admin     net.Listener   // nil when off
	health    net.Listener   // nil when off
}

// run balances until ctx ends, then shuts down in order: readiness first, so
// that others stop sending clients; the connections within shutdown_timeout;
// the rest last.
func (h *house) run(ctx context.Context) error {
	s, err := h.bind(ctx)
	if err != nil {
		return err
	}
	// What serves the connections outlives ctx: they are let go before it.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, work := errgroup.WithContext(work)

	h.surviveHangups(g, work)
	h.serveHTTP(g, work, s)
	h.checkBackends(g, work)
	h.awaitVerdicts(ctx)
	h.updateGate()
	h.countDescriptors()
	for i, l := range h.listeners {
		g.Go(func() error { return l.server.Serve(work, s.listeners[i]) })
		h.log.Info("listening", "listener", l.cfg.Name, "address", s.listeners[i].Addr().String(), "tls", string(l.cfg.TLS.Mode), "protocol", string(l.cfg.Protocol))
	}
	h.log.Info("ready to balance", "version", version, "ready", h.ready.Ready())

	select {
	case <-ctx.Done():
		h.shutdown()
	case <-work.Done(): // a part has failed
	}
	stop()
	return g.Wait()
}

// countDescriptors warns before the first connection that cannot be accepted.
func (h *house) countDescriptors() {
	if n, known := listen.Descriptors(); known {
		if w := descriptorWarning(h.cfg.Listeners, n); w != "" {
			h.log.Warn("too few descriptors", "warning", w)
		}
	}
}

// surviveHangups says that SIGHUP does nothing. Left alone it would end the
// process, and with it every connection of whoever expects a reload.
func (h *house) surviveHangups(g *errgroup.Group, ctx context.Context) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	g.Go(func() error {
		defer signal.Stop(hangups)
		for {
			select {
			case <-hangups:
				h.log.Warn("SIGHUP changes nothing: this version reads its configuration at the start only")
			case <-ctx.Done():
				return nil
			}
		}
	})
}

// bind opens all sockets or none.
func (h *house) bind(ctx context.Context) (sockets, error) {
	var s sockets
	b := command.Binder{Config: h.cfg}
	for i, l := range h.listeners {
		s.listeners = append(s.listeners, b.Listen(ctx, l.cfg.Address, fmt.Sprintf("listeners[%d].address", i)))
	}
	s.admin = b.Listen(ctx, h.cfg.Admin.Address, "admin.address")
	s.health = b.Listen(ctx, h.cfg.HealthEndpoint.HTTP, "health_endpoint.http")
	return s, b.Err()
}

func (h *house) serveHTTP(g *errgroup.Group, ctx context.Context, s sockets) {
	serve := func(l net.Listener, handler http.Handler) {
		if l != nil {
			g.Go(func() error { return admin.Serve(ctx, l, handler, h.log) })
		}
	}
	serve(s.admin, admin.Handler(h.ready, h.metrics.Registry))
	serve(s.health, admin.Health(h.ready))
	if h.gate != nil {
		g.Go(func() error { return h.gate.Run(ctx) })
	}
}

func (h *house) checkBackends(g *errgroup.Group, ctx context.Context) {
	for _, p := range h.pools {
		if p.monitor != nil {
			g.Go(func() error { return p.monitor.Run(ctx) })
		}
	}
}

// awaitVerdicts holds the first clients back, in the listening sockets' queues,
// until it is known where they can go.
func (h *house) awaitVerdicts(ctx context.Context) {
	var all sync.WaitGroup
	for _, p := range h.pools {
		if p.monitor == nil {
			continue
		}
		all.Go(func() {
			limit, cancel := context.WithTimeout(ctx, p.cfg.Health.Timeout+firstVerdicts)
			defer cancel()
			if err := p.monitor.First(limit); err != nil && ctx.Err() == nil {
				h.log.Warn("starting before all backends are checked", "pool", p.cfg.Name, "err", err)
			}
		})
	}
	all.Wait()
}

func (h *house) shutdown() {
	h.log.Info("shutting down", "timeout", h.cfg.ShutdownTimeout)
	h.ready.Drain()
	h.updateGate()
	ctx, cancel := context.WithTimeout(context.Background(), h.cfg.ShutdownTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, l := range h.listeners {
		all.Go(func() {
			if l.server.Shutdown(ctx) != nil {
				h.log.Warn("connections cut at shutdown_timeout", "listener", l.cfg.Name)
			}
		})
	}
	all.Wait()
	h.log.Info("stopped")
}
