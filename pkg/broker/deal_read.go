package broker

import (
	"context"
	"errors"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
	"github.com/mqttlb/mqttlb/pkg/broker/topics"
)

// readShare reads a shard for a group that is behind, until it is where the node
// is, or has enough for now.
func (b *Broker) readShare(g *group, shard int) {
	d := &b.dealer
	at := &g.reading[shard]
	err := b.readShareOn(g, shard)
	if err != nil && b.work.Err() == nil {
		b.log.Warn("a shared subscription waits for the log, trying again", "share", g.share, "shard", shard, "err", err)
		select {
		case <-time.After(trainPause):
		case <-b.work.Done():
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	at.running = false
	d.rouse()
}

func (b *Broker) readShareOn(g *group, shard int) error {
	d := &b.dealer
	at := &g.reading[shard]
	// What the node begins to distribute from now on finds the group.
	begun := b.shards[shard].begun.Load()
	bounds, cancel := context.WithTimeout(b.work, recordTimeout)
	_, last, err := b.store.Bounds(bounds, shard)
	cancel()
	if err != nil {
		return err
	}
	goal := max(begun, last)
	ctx, stop := context.WithCancelCause(b.work)
	defer stop(nil)
	// there says whether to go on; d.mu is held.
	there := func() bool {
		switch {
		case d.groups[g.share] != g:
		case at.at >= goal && at.at >= at.left:
			at.behind = false
		case g.waits >= mostPending:
		default:
			return true
		}
		stop(errArrived)
		return false
	}
	d.mu.Lock()
	from := at.at
	d.mu.Unlock()
	err = b.store.Tail(ctx, shard, from+1, func(p cluster.Pos, m *cluster.Message) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if ctx.Err() != nil || d.groups[g.share] != g {
			stop(errArrived)
			return
		}
		if m != nil && topics.Match(g.filter, m.Topic) {
			d.put(g, fromStore(m), session.Ref{Shard: shard, Seq: p.Seq})
			d.rouse()
		}
		at.at = p.Seq
		there()
	}, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if ctx.Err() == nil {
			at.at = max(at.at, goal)
			there()
		}
	})
	if errors.Is(context.Cause(ctx), errArrived) {
		return nil
	}
	return err
}
