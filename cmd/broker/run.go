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
	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
)

// gateInterval is how often the TCP health-check port asks for the readiness.
const gateInterval = time.Second

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

// runOn is run on open sockets.
func (h *house) runOn(ctx context.Context, s sockets) error {
	store, err := cluster.OpenJetStream(ctx, h.storeOptions())
	if err != nil {
		s.close()
		if ctx.Err() != nil { // asked to stop before it had begun
			return nil
		}
		return err
	}
	b := broker.New(h.options(store))
	h.watch(b)
	err = errors.Join(h.serve(ctx, b, s), store.Close())
	h.log.Info("stopped")
	return err
}

func (s sockets) close() {
	for _, l := range append(s.listeners, s.admin, s.health) {
		if l != nil {
			l.Close()
		}
	}
}

// serve is run on an open store.
func (h *house) serve(ctx context.Context, b *broker.Broker, s sockets) error {
	ready := brokeradmin.NewReadiness(h.cfg.Node.Name, b.Ready)
	// What serves the connections outlives ctx: they are let go before it.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, work := errgroup.WithContext(work)
	h.serveHTTP(g, work, s, ready)

	begun := time.Now()
	if err := b.Start(ctx); err != nil {
		s.close()
		stop()
		_ = g.Wait()
		if ctx.Err() != nil { // likewise
			return nil
		}
		return err
	}
	h.log.Info("state loaded", "took", time.Since(begun).Round(time.Millisecond), "sessions", b.Stats().Sessions, "retained", b.Stats().Retained)
	for i, l := range h.cfg.Listeners {
		g.Go(func() error { return b.Serve(work, s.listeners[i], h.listenerOptions(l)) })
		h.log.Info("listening", "listener", l.Name, "address", s.listeners[i].Addr().String(), "tls", string(l.TLS.Mode))
	}
	h.log.Info("ready to serve", "version", version, "node", h.cfg.Node.Name)

	select {
	case <-ctx.Done():
	case <-work.Done(): // a part has failed
	}
	h.shutdown(b, ready)
	stop()
	return g.Wait()
}

func (h *house) serveHTTP(g *errgroup.Group, ctx context.Context, s sockets, ready *brokeradmin.Readiness) {
	serve := func(l net.Listener, handler http.Handler) {
		if l != nil {
			g.Go(func() error { return admin.Serve(ctx, l, handler, h.log) })
		}
	}
	serve(s.admin, admin.Handler(ready, h.metrics.Registry))
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
