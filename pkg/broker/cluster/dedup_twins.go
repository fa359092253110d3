package cluster

import (
	"context"
	"errors"
	"sync"
	"time"
)

// twins finds the messages that a reader must not deliver, since others with
// their DedupID were before them: a client that changes nodes may send one again
// before the second node knows of the first.
//
// A message is such a one if the log has another with its DedupID before it, not
// more than dedupWindow by the engine's time. That is the same for every reader,
// wherever it begins: what it has not read itself it reads back, once it meets the
// first message with a DedupID. A single node needs none of this.
type twins struct {
	l      *shardLog
	loaded bool
	last   map[string]time.Time // of the last one with this DedupID
	order  []twinEntry
}

type twinEntry struct {
	id string
	at time.Time
}

func newTwins(l *shardLog) *twins { return &twins{l: l, last: make(map[string]time.Time)} }

// has says whether a pack has DedupIDs.
func (m *stored) has() bool { return len(m.header[headerIDs]) > 0 }

// mark says which messages of a pack are not to be delivered; nil is none. Packs
// have to come in order. It fails only when ctx ends.
func (t *twins) mark(ctx context.Context, m *stored, pack []Message) (twin []bool, err error) {
	if !m.has() {
		return nil, nil
	}
	for !t.loaded {
		if err := t.load(ctx, m); err == nil {
			t.loaded = true
		} else if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		} else {
			t.l.s.o.Log.Warn("what was before in the log can't be read yet", "stream", t.l.name, "seq", m.seq, "err", err)
			select {
			case <-time.After(followPause):
			case <-ctx.Done():
			}
		}
	}
	for i := range pack {
		if id := pack[i].DedupID; id != "" && t.note(id, m.taken) {
			if twin == nil {
				twin = make([]bool, len(pack))
			}
			twin[i] = true
		}
	}
	return twin, nil
}

// note notes an id, and says whether it was there.
func (t *twins) note(id string, at time.Time) bool {
	n := 0
	for n < len(t.order) && at.Sub(t.order[n].at) >= dedupMemory {
		if e := t.order[n]; t.last[e.id].Equal(e.at) {
			delete(t.last, e.id)
		}
		n++
	}
	clear(t.order[:n])
	t.order = t.order[n:]
	was, ok := t.last[id]
	if !ok || at.After(was) {
		t.last[id] = at
		t.order = append(t.order, twinEntry{id, at})
	}
	return ok && at.Sub(was) < dedupWindow
}

// load reads back the ids of the packs before m that may matter.
func (t *twins) load(ctx context.Context, m *stored) error {
	clear(t.last)
	t.order = nil
	return t.l.eachNamed(ctx, m.taken.Add(-dedupMemory), m.seq, func(seq uint64, pack []Message) {
		for i := range pack {
			if id := pack[i].DedupID; id != "" {
				t.note(id, pack[i].Time)
			}
		}
	})
}

// namedBatch is how many packs are asked for at a time.
const namedBatch = 64

// eachNamed reads the packs that have DedupIDs, from a time on and before a
// sequence number. It reads which have some, and then these only.
func (l *shardLog) eachNamed(ctx context.Context, from time.Time, before uint64, f func(uint64, []Message)) error {
	first, err := l.s.since(ctx, l.name, ">", from)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil || first.seq >= before {
		return err
	}
	named := make([]uint64, 0, namedBatch)
	read := func() error {
		err := l.packs(ctx, named, f)
		named = named[:0]
		return err
	}
	reading, enough := context.WithCancelCause(ctx)
	defer enough(nil)
	errAll := errors.New("all are read")
	err = l.s.follow(reading, l.stream, followOptions{from: first.seq, headersOnly: true, ready: func() { enough(errAll) }}, func(m *stored) error {
		if m.seq >= before {
			return errAll
		}
		if m.has() {
			named = append(named, m.seq)
		}
		if len(named) == namedBatch {
			if err := read(); err != nil {
				return err
			}
		}
		if m.seq+1 == before {
			return errAll
		}
		return nil
	})
	if errors.Is(err, errAll) || errors.Is(context.Cause(reading), errAll) {
		return read()
	}
	return err
}

// packs gives packs to f, in order. One that has expired meanwhile does not come.
func (l *shardLog) packs(ctx context.Context, seqs []uint64, f func(uint64, []Message)) error {
	type result struct {
		pack []Message
		err  error
	}
	results := make([]result, len(seqs))
	var asking sync.WaitGroup
	for i, seq := range seqs {
		asking.Go(func() {
			r := &results[i]
			var m *stored
			if m, r.err = l.s.message(ctx, l.name, seq); r.err == nil {
				r.pack, r.err = l.pack(m)
			}
		})
	}
	asking.Wait()
	for i, r := range results {
		switch {
		case r.err == nil:
			f(seqs[i], r.pack)
		case !errors.Is(r.err, ErrNotFound):
			return r.err
		}
	}
	return nil
}
