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
	// mostConflicts is how often a record is tried again that has changed while
	// it was written.
	mostConflicts = 8
	// recordTimeout bounds reading a record again.
	recordTimeout = 3 * time.Second
	// flushWidth is how many records are on their way at once at a checkpoint.
	flushWidth = 1024
)

// record is where a client's record in the store stands.
type record struct {
	revision  cluster.Revision // of what is there; None for nothing
	owner     ownership        // that it names
	unsure    bool             // the last write failed, and may have happened
	conflicts int              // writes in a row that met another revision
	needs     []uint64         // by shard, where the log has to begin for what is there
	writing   bool
	urgent    bool          // what is being written, packets wait for
	now       []func(error) // wait for the write under way
	next      []func(error) // wait for one that has not begun
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
	cl.settleShared()
	r := &cl.record
	r.now, r.next = r.next, nil
	if cl.lost {
		cl.mu.Unlock()
		cl.written(saved{}, errLost)
		return
	}
	orphans, cleared := cl.orphans, cl.cleared
	cl.orphans, cl.cleared = nil, nil
	var snapshot session.Record
	kept := cl.ses != nil && cl.recorded()
	if cl.ses != nil {
		r.urgent = kept && cl.ses.Checkpoint() == session.First
		snapshot = cl.ses.Snapshot(cl.b.tail())
	}
	revision, unsure := r.revision, r.unsure
	owner := cl.nextOwner()
	cl.mu.Unlock()

	for _, id := range orphans {
		cl.b.removeInbound(cl.key, id)
	}
	if cleared != nil {
		close(cleared)
	}
	if unsure {
		var err error
		if revision, err = cl.examine(owner); err != nil {
			cl.written(saved{}, err)
			return
		}
	}
	records := cl.b.store.Records(cluster.Sessions)
	switch {
	case kept:
		needs := snapshot.Needs()
		records.Put(cl.key, snapshot.Append(owner.append(nil)), revision, func(revision cluster.Revision, err error) {
			cl.written(saved{revision, owner, needs}, err)
		})
	case revision != cluster.None:
		records.Delete(cl.key, revision, func(err error) { cl.written(saved{}, err) })
	default: // a session that ends with its connection has no record, nor has none at all
		cl.written(saved{}, nil)
	}
}

// recorded says that the session has a record: if it can outlive its connection,
// or has to say what its client has of shared subscriptions, and in a cluster each,
// so that there is one owner. cl.mu is held.
func (cl *client) recorded() bool {
	return cl.b.clustered() || cl.ses.Persistent() || cl.ses.OwesShared()
}

// saved is what a write has left in the store.
type saved struct {
	revision cluster.Revision
	owner    ownership
	needs    []uint64
}

// nextOwner is whom the next record names: this node, in an epoch of its own if
// the session comes from another. cl.mu is held.
func (cl *client) nextOwner() ownership {
	o := cl.record.owner
	if o.node != cl.b.o.Node {
		o = ownership{cl.b.o.Node, o.epoch + 1}
	}
	return o
}

// errLost says that another node has the session.
var errLost = errors.New("the session is on another node")

// examine reads the record after a write that failed: it may have happened, or
// the record may be another node's by now. next is what our write would say.
func (cl *client) examine(next ownership) (cluster.Revision, error) {
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	r, err := cl.b.store.Records(cluster.Sessions).Get(ctx, cl.key)
	cl.mu.Lock()
	known := cl.record
	cl.mu.Unlock()
	switch {
	case errors.Is(err, cluster.ErrNotFound):
		if known.revision != cluster.None && cl.b.clustered() && cl.holds() {
			return cluster.None, errLost // another node has ended it
		}
		return cluster.None, nil
	case err != nil:
		return cluster.None, err
	case !cl.b.clustered() || r.Revision == known.revision:
		return r.Revision, nil
	}
	if is, _, err := parseOwnership(r.Value); err != nil || is != next {
		return cluster.None, errors.Join(errLost, err)
	}
	return r.Revision, nil
}

// holds says that there is a session to be lost.
func (cl *client) holds() bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.ses != nil
}

// written takes the outcome of a write, and begins the next one if somebody
// waits for it.
func (cl *client) written(s saved, err error) {
	defer cl.b.writes.Done()
	cl.mu.Lock()
	r := &cl.record
	waiting, urgency := r.now, session.Soon
	if r.urgent {
		urgency = session.First
	}
	r.now, r.writing, r.urgent = nil, false, false
	switch {
	case err == nil:
		cl.adopted = false
		r.revision, r.owner, r.needs, r.unsure, r.conflicts = s.revision, s.owner, s.needs, false, 0
	case errors.Is(err, errLost):
		waiting, r.next = append(waiting, r.next...), nil
		cl.lose()
	case errors.Is(err, cluster.ErrConflict) && r.conflicts < mostConflicts:
		// Look who has written it, and try again if that was ourselves. The engine
		// also says it now and then where nobody has.
		r.conflicts++
		r.unsure = true
		if cl.ses != nil {
			cl.ses.Touch(urgency)
		}
		r.next = append(waiting, r.next...)
		waiting = nil
	default:
		if !r.unsure {
			cl.b.log.Error("session record not written, trying again", "client_id", cl.id, "err", err)
		}
		r.unsure, r.conflicts = true, 0
		if cl.ses != nil {
			cl.ses.Touch(urgency)
		}
		cl.saveSoon()
	}
	switch {
	case len(r.next) > 0:
		cl.begin()
	case (err == nil || errors.Is(err, errLost)) && cl.ses == nil && cl.link == nil:
		cl.forget()
	}
	cl.mu.Unlock()
	for _, f := range waiting {
		f(err)
	}
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
			b.leaveDeals()
			return
		case <-tick.C:
			b.flush()
			b.saveShares()
			for i := range b.shards {
				b.shards[i].sweep()
			}
		case <-b.saveNow:
			b.saveShares()
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

func (b *Broker) all() []*client {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]*client, 0, len(b.clients))
	for _, cl := range b.clients {
		all = append(all, cl)
	}
	return all
}
