package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mqttlb/mqttlb/pkg/admin/brokeradmin"
	"github.com/mqttlb/mqttlb/pkg/broker"
	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
)

// node is a house with its data. HTTP asks it before it has them, and after.
type node struct {
	*house
	engine atomic.Pointer[cluster.JetStream] // nil until it is open
	broker atomic.Pointer[broker.Broker]     // likewise
}

// open opens the store. In a cluster that takes until a majority is there.
func (n *node) open(ctx context.Context) error {
	if c := n.cfg.Cluster; c != nil {
		n.log.Info("joining the cluster", "cluster", c.Name, "node", n.cfg.Node.Name, "size", c.Size, "listen", c.Listen)
	}
	engine, err := cluster.OpenJetStream(ctx, n.storeOptions())
	if err != nil {
		if ctx.Err() != nil { // asked to stop before it had begun
			return nil
		}
		return err
	}
	n.engine.Store(engine)
	return nil
}

// serve is run on an open store.
func (n *node) serve(ctx, work context.Context, g *errgroup.Group, s sockets, ready *brokeradmin.Readiness) error {
	engine := n.engine.Load()
	if engine == nil {
		return nil
	}
	b := broker.New(n.options(engine, engine.Peers()))
	n.watch(b)
	n.broker.Store(b)
	begun := time.Now()
	if err := b.Start(ctx); err != nil {
		if ctx.Err() != nil { // likewise
			return nil
		}
		return err
	}
	n.log.Info("state loaded", "took", time.Since(begun).Round(time.Millisecond), "sessions", b.Stats().Sessions, "retained", b.Stats().Retained)
	for i, l := range n.cfg.Listeners {
		g.Go(func() error { return b.Serve(work, s.listeners[i], n.listenerOptions(l)) })
		n.log.Info("listening", "listener", l.Name, "address", s.listeners[i].Addr().String(), "tls", string(l.TLS.Mode))
	}
	n.log.Info("ready to serve", "version", version, "node", n.cfg.Node.Name)

	select {
	case <-ctx.Done():
	case <-work.Done(): // a part has failed
	}
	n.shutdown(b, ready)
	return nil
}

func (n *node) close() error {
	if engine := n.engine.Load(); engine != nil {
		return engine.Close()
	}
	return nil
}

// api is what HTTP shows of the node.
func (n *node) api(ready *brokeradmin.Readiness) *brokeradmin.API {
	a := &brokeradmin.API{Ready: ready, Drainer: n, Log: n.log}
	if n.cfg.Cluster != nil {
		a.Cluster = n
	}
	return a
}

// Ready says whether clients should be sent here, and why not.
func (n *node) Ready() (ready bool, reasons []string) {
	if b := n.broker.Load(); b != nil {
		return b.Ready()
	}
	if n.cfg.Cluster != nil && n.engine.Load() == nil {
		return false, []string{"waits for a majority of the cluster"}
	}
	return false, []string{"the store is being opened"}
}

var errNotYet = errors.New("the broker is not up yet: it has no clients")

// Drain implements brokeradmin.Drainer.
func (n *node) Drain(rate float64, within time.Duration) error {
	if b := n.broker.Load(); b != nil {
		return b.Drain(rate, within)
	}
	return errNotYet
}

// CancelDrain implements brokeradmin.Drainer.
func (n *node) CancelDrain() bool {
	b := n.broker.Load()
	return b != nil && b.CancelDrain()
}

// Draining implements brokeradmin.Drainer.
func (n *node) Draining() broker.Drain {
	if b := n.broker.Load(); b != nil {
		return b.Draining()
	}
	return broker.Drain{}
}

// Status implements brokeradmin.Cluster.
func (n *node) Status(ctx context.Context) (brokeradmin.Seen, error) {
	engine := n.engine.Load()
	if engine == nil { // it waits for the others
		return brokeradmin.Seen{
			Cluster: n.cfg.Cluster.Name, Size: n.cfg.Cluster.Size,
			Nodes: []brokeradmin.Node{{Name: n.cfg.Node.Name, Heard: true}},
		}, nil
	}
	st, err := engine.Status(ctx)
	if err != nil {
		return brokeradmin.Seen{}, err
	}
	return seen(n.cfg.Cluster, st), nil
}

// Remove implements brokeradmin.Cluster.
func (n *node) Remove(ctx context.Context, name string) error {
	err := cluster.ErrUnavailable
	if engine := n.engine.Load(); engine != nil {
		err = engine.Remove(ctx, name)
	}
	if errors.Is(err, cluster.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", brokeradmin.ErrNotNow, err)
	}
	return err
}
