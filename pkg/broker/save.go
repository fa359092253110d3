package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
)

const (
	// recordTimeout bounds reading a record again.
	recordTimeout = 3 * time.Second
	// flushWidth is how many records are on their way at once at a checkpoint.
	flushWidth = 1024
	// trimEvery is how often the log is cut below the oldest place that a session
	// still needs.
	trimEvery = 30 * time.Second
	// staleAfter is how far the place that a record needs may be behind the
	// session's own, in sequence numbers, before the record is written for that
	// alone.
	staleAfter = 1 << 26
)

// record is where a client's record in the store stands.
type record struct {
	revision cluster.Revision // of what is there; None for nothing
	unsure   bool             // the last write failed, and may have happened
	needs    []uint64         // by shard, where the log has to begin for what is there
	writing  bool
	urgent   bool          // what is being written, packets wait for
	now      []func(error) // wait for the write under way
	next     []func(error) // wait for one that has not begun
}

// save writes the client's record; then is called, without the lock, when all
// that had changed by now is durable. Writes of one client follow one another,
// and all who ask meanwhile share the next one. cl.mu is held, so the write is
// a goroutine's: the store may make it wait for answers that need the lock.
func (cl *client) save(then func(error)) {
	cl.record.next = append(cl.record.next, then)
	if !cl.record.writing {
		cl.begin()
	}
}

func (cl *client) begin() {
	cl.record.writing = true
	cl.b.writes.Add(1)
	go cl.write()
}

// write writes the record for all who wait, after the removal of what an ended
// session left.
func (cl *client) write() {
	cl.mu.Lock()
	r := &cl.record
	r.now, r.next = r.next, nil
	orphans, cleared := cl.orphans, cl.cleared
	cl.orphans, cl.cleared = nil, nil
	var snapshot session.Record
	kept := cl.ses != nil && cl.ses.Persistent()
	if cl.ses != nil {
		r.urgent = kept && cl.ses.Checkpoint() == session.First
		snapshot = cl.ses.Snapshot(cl.b.tail())
	}
	revision, unsure := r.revision, r.unsure
	cl.mu.Unlock()

	for _, id := range orphans {
		cl.b.removeInbound(cl.key, id)
	}
	if cleared != nil {
		close(cleared)
	}
	records := cl.b.store.Records(cluster.Sessions)
	switch {
	case kept:
		if unsure {
			var err error
			if revision, err = cl.b.revision(cl.key); err != nil {
				cl.written(cluster.None, nil, err)
				return
			}
		}
		needs := snapshot.Needs()
		records.Put(cl.key, snapshot.Append(nil), revision, 0, func(revision cluster.Revision, err error) {
			cl.written(revision, needs, err)
		})
	case revision != cluster.None || unsure:
		records.Delete(cl.key, cluster.Any, func(err error) { cl.written(cluster.None, nil, err) })
	default: // a session that ends with its connection has no record, nor has none at all
		cl.written(cluster.None, nil, nil)
	}
}

// written takes the outcome of a write, and begins the next one if somebody
// waits for it.
func (cl *client) written(revision cluster.Revision, needs []uint64, err error) {
	defer cl.b.writes.Done()
	cl.mu.Lock()
	r := &cl.record
	waiting, urgency := r.now, session.Soon
	if r.urgent {
		urgency = session.First
	}
	r.now, r.writing, r.urgent = nil, false, false
	if err == nil {
		r.revision, r.needs, r.unsure = revision, needs, false
	} else {
		if !r.unsure {
			cl.b.log.Error("session record not written, trying again", "client_id", cl.id, "err", err)
		}
		r.unsure = true
		if cl.ses != nil {
			cl.ses.Touch(urgency)
		}
		cl.saveSoon()
	}
	switch {
	case len(r.next) > 0:
		cl.begin()
	case err == nil && cl.ses == nil && cl.link == nil:
		cl.forget()
	}
	cl.mu.Unlock()
	for _, f := range waiting {
		f(err)
	}
}

// revision reads a record's.
func (b *Broker) revision(key string) (cluster.Revision, error) {
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	r, err := b.store.Records(cluster.Sessions).Get(ctx, key)
	if errors.Is(err, cluster.ErrNotFound) {
		return cluster.None, nil
	}
	return r.Revision, err
}

// saveSoon lets the checkpoint loop write the record; cl.mu is held.
func (cl *client) saveSoon() {
	if cl.dirty {
		return
	}
	cl.dirty = true
	cl.b.dirtyMu.Lock()
	defer cl.b.dirtyMu.Unlock()
	cl.b.dirty[cl] = struct{}{}
}

// checkpoints writes, every now and then, the records that may wait.
func (b *Broker) checkpoints(ctx context.Context) {
	tick := time.NewTicker(b.o.Checkpoint / 2)
	defer tick.Stop()
	trim := time.NewTicker(trimEvery)
	defer trim.Stop()
	for {
		select {
		case <-ctx.Done():
			b.flush()
			b.saveShares()
			return
		case <-tick.C:
			b.flush()
			b.saveShares()
			for i := range b.shards {
				b.shards[i].sweep()
			}
		case <-trim.C:
			b.trim(ctx)
		}
	}
}

// flush writes the records that are due and waits for them.
func (b *Broker) flush() {
	b.dirtyMu.Lock()
	due := b.dirty
	b.dirty = make(map[*client]struct{})
	b.dirtyMu.Unlock()
	var all sync.WaitGroup
	width := make(chan struct{}, flushWidth)
	for cl := range due {
		width <- struct{}{}
		all.Add(1)
		written := func(error) {
			<-width
			all.Done()
		}
		cl.mu.Lock()
		cl.dirty = false
		if cl.record.unsure || cl.ses != nil && cl.ses.Checkpoint() != session.Saved {
			cl.save(written)
		} else {
			written(nil)
		}
		cl.mu.Unlock()
	}
	all.Wait()
}

// trim is the janitor: what no session can need any more leaves the log. What
// counts are the records that are durable, for it is them that a restart reads.
func (b *Broker) trim(ctx context.Context) {
	tail := b.tail() // before the sessions are looked at: later ones begin above
	first := b.shares.needs(tail)
	for _, cl := range b.all() {
		cl.mu.Lock()
		for shard, seq := range cl.needs(tail) {
			if shard < len(first) {
				first[shard] = min(first[shard], seq)
			}
		}
		cl.mu.Unlock()
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

func (b *Broker) all() []*client {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]*client, 0, len(b.clients))
	for _, cl := range b.clients {
		all = append(all, cl)
	}
	return all
}
