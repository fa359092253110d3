package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mqttlb/mqttlb/cmd/internal/command"
	"github.com/mqttlb/mqttlb/pkg/admin"
	"github.com/mqttlb/mqttlb/pkg/admin/brokeradmin"
	"github.com/mqttlb/mqttlb/pkg/broker"
)

// gateInterval is how often the TCP health-check port asks for the readiness: a
// node that has lost its majority must be out for its checkers soon after it has
// noticed.
const gateInterval = 200 * time.Millisecond

// sockets are all that the house listens on.
type sockets struct {
	listeners []net.Listener // as cfg.Listeners
	admin     net.Listener   // nil when off
	health    net.Listener   // nil when off
}

// bind opens all sockets or none.
func (h *house) bind(ctx context.Context) (sockets, error) {
	var s sockets
	b := command.Binder{Config: h.cfg}
	for i, l := range h.cfg.Listeners {
		s.listeners = append(s.listeners, b.Listen(ctx, l.Address, fmt.Sprintf("listeners[%d].address", i)))
	}
	s.admin = b.Listen(ctx, h.cfg.Admin.Address, "admin.address")
	s.health = b.Listen(ctx, h.cfg.HealthEndpoint.HTTP, "health_endpoint.http")
	return s, b.Err()
}

// run serves until ctx ends, then shuts down in order: readiness first, so that
// others stop sending clients; the connections within shutdown_timeout; the
// store last. Sockets come before the data: who finds them taken may be looking
// at a broker that uses the same folder.
func (h *house) run(ctx context.Context) error {
	s, err := h.bind(ctx)
	if err != nil {
		return err
	}
	return h.runOn(ctx, s)
}

// runOn is run on open sockets. HTTP comes first: a node that waits for others
// says so.
func (h *house) runOn(ctx context.Context, s sockets) error {
	n := &node{house: h}
	ready := brokeradmin.NewReadiness(h.cfg.Node.Name, n.Ready)
	// What serves the connections outlives ctx: they are let go before it.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, work := errgroup.WithContext(work)
	h.serveHTTP(g, work, s, n.api(ready))
	err := n.open(ctx)
	if err == nil {
		err = n.serve(ctx, work, g, s, ready)
	}
	s.closeListeners()
	stop()
	err = errors.Join(err, g.Wait(), n.close())
	h.log.Info("stopped")
	return err
}

func (s sockets) closeListeners() {
	for _, l := range s.listeners {
		l.Close()
	}
}

func (h *house) serveHTTP(g *errgroup.Group, ctx context.Context, s sockets, api *brokeradmin.API) {
	ready := api.Ready
	serve := func(l net.Listener, handler http.Handler) {
		if l != nil {
			g.Go(func() error { return admin.Serve(ctx, l, handler, h.log) })
		}
	}
	own := admin.Handler(ready, h.metrics.Registry)
	api.Handle(own)
	serve(s.admin, own)
	serve(s.health, admin.Health(ready))
	if h.gate != nil {
		g.Go(func() error { return h.gate.Run(ctx) })
		g.Go(func() error { return h.followReadiness(ctx, ready) })
	}
}

// followReadiness sets the gate: readiness hangs on the store, and tells nobody
// when it turns. A shutdown shuts the gate for good.
func (h *house) followReadiness(ctx context.Context, ready *brokeradmin.Readiness) error {
	tick := time.NewTicker(gateInterval)
	defer tick.Stop()
	for {
		h.gate.Set(ready.Ready())
		select {
		case <-tick.C:
		case <-ready.Draining():
			h.gate.Set(false)
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

func (h *house) shutdown(b *broker.Broker, ready *brokeradmin.Readiness) {
	h.log.Info("shutting down", "timeout", h.cfg.ShutdownTimeout)
	ready.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), h.cfg.ShutdownTimeout)
	defer cancel()
	if b.Shutdown(ctx) != nil {
		h.log.Warn("connections cut at shutdown_timeout")
	}
}
