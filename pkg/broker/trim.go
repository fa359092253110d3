package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
)

const (
	// trimEvery is how often the log is cut below the oldest place that a session
	// still needs.
	trimEvery = 30 * time.Second
	// staleAfter is how far the place that a record needs may be behind the
	// session's own, in sequence numbers, before the record is written for that
	// alone.
	staleAfter = 1 << 26
)

// trim is the janitor: what no session can need any more leaves the log. What
// counts are the records that are durable, for it is them that a restart reads.
func (b *Broker) trim(ctx context.Context) {
	tail := b.tail()   // before the sessions are looked at: later ones begin above
	if b.clustered() { // other nodes may be behind this one: half a minute at most
		tail, b.trimmed = b.trimmed, tail
		if tail == nil {
			return
		}
	}
	first := make([]uint64, len(tail))
	for shard, seq := range tail {
		first[shard] = seq + 1
	}
	if rec := b.dealt.Load(); rec != nil {
		rec.needs(first)
	}
	for _, cl := range b.all() {
		cl.mu.Lock()
		for shard, seq := range cl.needs(tail) {
			if shard < len(first) {
				first[shard] = min(first[shard], seq)
			}
		}
		cl.mu.Unlock()
	}
	if b.clustered() {
		var err error
		if first, err = b.neededByAll(ctx, tail); err != nil {
			b.log.Warn("log not trimmed", "err", err)
			return
		}
	}
	for shard, seq := range first {
		if err := b.store.Trim(ctx, shard, seq); err != nil && !errors.Is(err, context.Canceled) {
			b.log.Warn("log not trimmed", "shard", shard, "err", err)
		}
	}
}

// needs gives for each shard where the log has to begin for this client; nil
// for one that needs nothing. A record that is far behind only because nothing
// came for its session is written anew. cl.mu is held.
func (cl *client) needs(tail []uint64) []uint64 {
	persistent := cl.ses != nil && cl.ses.Persistent()
	if cl.record.needs == nil {
		if !persistent {
			return nil
		}
		unsaved := cl.ses.Checkpoint()
		snapshot := cl.ses.Snapshot(tail)
		cl.ses.Touch(unsaved)
		return snapshot.Needs()
	}
	if persistent {
		for shard, seq := range cl.ses.Cursors(tail) {
			if shard < len(cl.record.needs) && seq > cl.record.needs[shard]+staleAfter {
				cl.ses.Touch(session.Soon)
			}
		}
		cl.settle()
	}
	return cl.record.needs
}

// neededByAll gives for each shard where the log has to begin for the sessions of
// all nodes, by their records; nothing if that is another node's to find out.
func (b *Broker) neededByAll(ctx context.Context, tail []uint64) ([]uint64, error) {
	if v := b.view.Load(); !v.Quorum || v.Nodes[0].Name != b.o.Node {
		return nil, nil
	}
	first := make([]uint64, len(tail))
	for shard, seq := range tail {
		first[shard] = seq + 1
	}
	need := func(needs []uint64) {
		for shard, seq := range needs {
			if shard < len(first) {
				first[shard] = min(first[shard], seq)
			}
		}
	}
	err := b.each(ctx, cluster.Sessions, func(r cluster.Record) error {
		_, rec, err := parseSession(r)
		if err == nil && rec.Expiry > 0 {
			need(rec.Needs())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	err = b.each(ctx, cluster.Shares, func(r cluster.Record) error {
		return sharesNeed(r, first)
	})
	return first, err
}

// parsePlaces reads a place in each shard.
func parsePlaces(b []byte) (places []uint64) {
	for len(b) > 0 {
		seq, n := binary.Uvarint(b)
		if n <= 0 {
			return places
		}
		places = append(places, seq)
		b = b[n:]
	}
	return places
}
