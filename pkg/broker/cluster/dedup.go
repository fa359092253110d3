package cluster

import (
	"sync"
	"time"
)

// dedupWindow is how long a DedupID counts, for those who read.
const dedupWindow = 2 * time.Minute

// dedupMemory is how long one counts for those who write. It is longer, so that
// what a writer takes for new is new for every reader, whose time is that of the
// engine's clocks.
const dedupMemory = dedupWindow + 30*time.Second

// dedup knows the DedupIDs of the last messages of a shard. The engine has the
// like, for its own messages only; but then each of ours would have to be one,
// and cost a sync. The pack holds the ids, so they are known again after a
// restart; that is why Trim leaves them alone while they count.
//
// In a cluster it learns of what others write from those who tail the shard. What
// comes by two nodes at once, it can't prevent: see twins.
type dedup struct {
	mu    sync.Mutex
	byID  map[string]uint64
	order []dedupEntry // oldest first
}

type dedupEntry struct {
	id   string
	seq  uint64
	seen time.Time
}

func newDedup() *dedup { return &dedup{byID: make(map[string]uint64)} }

// get gives the sequence number of the message with an id.
func (d *dedup) get(id string, now time.Time) (seq uint64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clean(now)
	seq, ok = d.byID[id]
	return seq, ok
}

// add notes a message that was stored; none if it has no id.
func (d *dedup) add(id string, seq uint64, now time.Time) {
	if id == "" {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.byID[id]; ok {
		return // the first one counts
	}
	d.byID[id] = seq
	d.order = append(d.order, dedupEntry{id, seq, now})
}

// addPack notes a pack's messages, if they still count.
func (d *dedup) addPack(engine uint64, pack []Message) {
	if len(pack) == 0 || time.Since(pack[0].Time) >= dedupMemory {
		return
	}
	for i := range pack {
		d.add(pack[i].DedupID, seqOf(engine, i), pack[i].Time)
	}
}

// oldest gives the lowest sequence number that still counts.
func (d *dedup) oldest(now time.Time) (seq uint64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clean(now)
	if len(d.order) == 0 {
		return 0, false
	}
	return d.order[0].seq, true
}

// clean forgets what counts no more; d.mu is held.
func (d *dedup) clean(now time.Time) {
	n := 0
	for n < len(d.order) && now.Sub(d.order[n].seen) >= dedupMemory {
		delete(d.byID, d.order[n].id)
		n++
	}
	clear(d.order[:n])
	d.order = d.order[n:]
}
