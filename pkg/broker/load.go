package broker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
)

// load brings back what the store has: sessions, the identifiers of QoS 2
// publications that are not at their end, retained messages; then it reads the
// log from the place of the session that is furthest behind.
func (b *Broker) load(ctx, work context.Context) error {
	known := make(chan struct{})
	b.working.Go(func() { b.watchDealer(work, sync.OnceFunc(func() { close(known) })) })
	select {
	case <-known:
	case <-ctx.Done():
		return ctx.Err()
	}
	lowest, err := b.loadSessions(ctx)
	if err != nil {
		return err
	}
	if err := b.loadInbound(ctx); err != nil {
		return err
	}
	if err := b.watchRetained(ctx, work); err != nil {
		return err
	}
	for shard := range b.shards {
		if err := b.follow(ctx, work, shard, lowest); err != nil {
			return err
		}
	}
	now := time.Now()
	for _, cl := range b.all() {
		cl.mu.Lock()
		cl.ses.CaughtUp()
		cl.schedule(now)
		cl.settle()
		cl.mu.Unlock()
	}
	return nil
}

// each reads all records of a bucket.
func (b *Broker) each(parent context.Context, bucket cluster.Bucket, f func(cluster.Record) error) error {
	ctx, enough := context.WithCancel(parent)
	defer enough()
	var fault error
	err := b.store.Records(bucket).Watch(ctx, func(r cluster.Record) {
		if fault == nil && !r.Gone {
			fault = f(r)
		}
	}, enough)
	if fault != nil || errors.Is(err, context.Canceled) && parent.Err() == nil {
		err = fault
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", bucket, err)
	}
	return nil
}

// loadSessions gives, by shard, the lowest cursor of all sessions; nil without
// any.
func (b *Broker) loadSessions(ctx context.Context) (lowest []uint64, err error) {
	now := time.Now()
	err = b.each(ctx, cluster.Sessions, func(r cluster.Record) error {
		owner, rec, err := parseSession(r)
		if err != nil {
			return err
		}
		if b.clustered() && owner.node != b.o.Node {
			return nil
		}
		cl := b.client(rec.ClientID)
		cl.mu.Lock()
		defer cl.mu.Unlock()
		cl.restore(rec, owner, r.Revision, now)
		for shard, seq := range rec.Cursors {
			for len(lowest) <= shard {
				lowest = append(lowest, seq)
			}
			lowest[shard] = min(lowest[shard], seq)
		}
		return nil
	})
	return lowest, err
}

// parseSession reads the record of a session.
func parseSession(r cluster.Record) (ownership, session.Record, error) {
	owner, rest, err := parseOwnership(r.Value)
	if err != nil {
		return owner, session.Record{}, fmt.Errorf("session record %s: %w", r.Key, err)
	}
	rec, err := session.ParseRecord(rest)
	if err != nil {
		return owner, rec, fmt.Errorf("session record %s: %w", r.Key, err)
	}
	return owner, rec, nil
}

// restore brings a session into memory as its record has it; cl.mu is held.
func (cl *client) restore(rec session.Record, owner ownership, revision cluster.Revision, now time.Time) {
	cl.record.revision, cl.record.owner, cl.record.needs = revision, owner, rec.Needs()
	cl.known = true
	cl.ses = session.Restore(rec, &cl.b.o.Limits, now)
	for _, sub := range cl.ses.Subscriptions() {
		cl.b.add(cl, sub)
	}
	cl.bringShared()
}

func (b *Broker) loadInbound(ctx context.Context) error {
	byKey := make(map[string]*client)
	for _, cl := range b.all() {
		byKey[cl.key] = cl
	}
	return b.each(ctx, cluster.Inbound2, func(r cluster.Record) error {
		key, _, _ := strings.Cut(r.Key, "/")
		switch cl := byKey[key]; {
		case cl != nil:
			cl.mu.Lock()
			defer cl.mu.Unlock()
			return cl.remember(r)
		case !b.clustered(): // of a session that is no more
			b.store.Records(cluster.Inbound2).Delete(r.Key, cluster.Any, func(error) {})
		}
		return nil
	})
}

// remember takes the record of a QoS 2 publication of the client that is not at
// its end; cl.mu is held.
func (cl *client) remember(r cluster.Record) error {
	_, number, _ := strings.Cut(r.Key, "/")
	id, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return fmt.Errorf("record %s of a QoS 2 publication: %w", r.Key, err)
	}
	in := parseInbound(string(r.Value))
	in.confirmed = true
	cl.keepInbound(uint16(id), in)
	cl.ses.Remember(uint16(id))
	return nil
}

// follow tails one shard; it returns when what was there at its start is fanned
// out.
func (b *Broker) follow(ctx, work context.Context, shard int, lowest []uint64) error {
	first, last, err := b.store.Bounds(ctx, shard)
	if err != nil {
		return fmt.Errorf("bounds of log %d: %w", shard, err)
	}
	from := last + 1
	if shard < len(lowest) {
		from = min(max(lowest[shard]+1, first), last+1)
	}
	b.shards[shard].begun.Store(from - 1)
	b.shards[shard].dealt.Store(from - 1)
	caught := make(chan struct{})
	failed := make(chan error, 1)
	b.working.Go(func() {
		err := b.store.Tail(work, shard, from, func(p cluster.Pos, m *cluster.Message) {
			b.shards[shard].begun.Store(p.Seq)
			if m != nil {
				b.fanOut(fromStore(m), session.Ref{Shard: p.Shard, Seq: p.Seq})
			}
			b.shards[shard].deal(p.Seq)
		}, func() { close(caught) })
		if err != nil && work.Err() == nil {
			b.log.Error("the log can't be read any more", "shard", shard, "err", err)
			b.ready.Store(false)
			failed <- err
		}
	})
	select {
	case <-caught:
		return nil
	case err := <-failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
