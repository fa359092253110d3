package cluster

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// memoryBucket is a bucket, or the retained messages: what is there, and the
// history of changes, from which all who watch read.
type memoryBucket struct {
	mu      sync.Mutex
	now     map[string]*memoryChange
	history []*memoryChange // the revision is the place in it, from 1
	timers  map[string]*time.Timer
	changed chan struct{}
	stopped bool

	watchers map[*int]struct{} // what each has been told, by the length of the history
	told     chan struct{}     // closed when one of them was told more
}

type memoryChange struct {
	key      string
	value    any // []byte or *Message
	gone     bool
	revision Revision
	ttl      time.Duration
}

func newMemoryBucket() *memoryBucket {
	return &memoryBucket{
		now: make(map[string]*memoryChange), timers: make(map[string]*time.Timer), changed: make(chan struct{}),
		watchers: make(map[*int]struct{}), told: make(chan struct{}),
	}
}

// put makes a change if the key is at the revision expected.
func (b *memoryBucket) put(c memoryChange, expected Revision) (Revision, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var is Revision
	if was := b.now[c.key]; was != nil {
		is = was.revision
	}
	if expected != Any && expected != is {
		return None, ErrConflict
	}
	if c.gone && is == None {
		return Revision(len(b.history)), nil // nothing to remove
	}
	b.change(&c)
	return c.revision, nil
}

// change makes a change; b.mu is held.
func (b *memoryBucket) change(c *memoryChange) {
	if t := b.timers[c.key]; t != nil {
		t.Stop()
		delete(b.timers, c.key)
	}
	b.history = append(b.history, c)
	c.revision = Revision(len(b.history))
	if !c.gone {
		b.now[c.key] = c
	} else {
		delete(b.now, c.key)
	}
	if c.ttl > 0 && !b.stopped {
		b.timers[c.key] = time.AfterFunc(c.ttl, func() { b.expire(c) })
	}
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *memoryBucket) expire(c *memoryChange) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.now[c.key] == c {
		b.change(&memoryChange{key: c.key, gone: true})
	}
}

func (b *memoryBucket) get(key string) *memoryChange {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now[key]
}

func (b *memoryBucket) list(prefix string) (all []*memoryChange) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, c := range b.now {
		if level, ok := strings.CutPrefix(key, prefix); ok && !strings.Contains(level, "/") {
			all = append(all, c)
		}
	}
	return all
}

func (b *memoryBucket) watch(ctx context.Context, f func(*memoryChange), ready func()) error {
	b.mu.Lock()
	next := len(b.history)
	var all []*memoryChange
	for _, c := range b.now {
		all = append(all, c)
	}
	told := new(int)
	b.watchers[told] = struct{}{}
	b.mu.Unlock()
	defer b.tell(func() { delete(b.watchers, told) })
	slices.SortFunc(all, func(x, y *memoryChange) int { return int(x.revision) - int(y.revision) })
	for _, c := range all {
		if ctx.Err() != nil {
			return nil
		}
		f(c)
	}
	ready()
	for ctx.Err() == nil {
		b.tell(func() { *told = next })
		b.mu.Lock()
		news, changed := b.history[next:], b.changed
		b.mu.Unlock()
		for _, c := range news {
			if ctx.Err() != nil {
				return nil
			}
			f(c)
		}
		next += len(news)
		if len(news) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return nil
}

// tell changes what watchers have been told.
func (b *memoryBucket) tell(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
	close(b.told)
	b.told = make(chan struct{})
}

// sync waits until all who watch have been told of what has happened by now.
func (b *memoryBucket) sync(ctx context.Context) error {
	b.mu.Lock()
	now := len(b.history)
	behind := func() bool {
		for told := range b.watchers {
			if *told < now {
				return true
			}
		}
		return false
	}
	for behind() {
		told := b.told
		b.mu.Unlock()
		select {
		case <-told:
		case <-ctx.Done():
			return ctx.Err()
		}
		b.mu.Lock()
	}
	b.mu.Unlock()
	return nil
}

func (b *memoryBucket) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	for _, t := range b.timers {
		t.Stop()
	}
}

type memoryRecords struct {
	m *Memory
	b *memoryBucket
}

func (r *memoryRecords) Put(key string, value []byte, expected Revision, done func(Revision, error)) {
	r.m.write(RecordWrites, len(key)+len(value), func() func() {
		rev, err := r.b.put(memoryChange{key: key, value: slices.Clone(value)}, expected)
		return func() { done(rev, err) }
	}, func(err error) func() {
		return func() { done(None, err) }
	})
}

func (r *memoryRecords) Delete(key string, expected Revision, done func(error)) {
	r.m.write(RecordWrites, len(key), func() func() {
		_, err := r.b.put(memoryChange{key: key, gone: true}, expected)
		return func() { done(err) }
	}, func(err error) func() {
		return func() { done(err) }
	})
}

func (r *memoryRecords) Get(ctx context.Context, key string) (Record, error) {
	if r.m.closing.Err() != nil {
		return Record{}, ErrClosed
	}
	c := r.b.get(key)
	if c == nil {
		return Record{}, ErrNotFound
	}
	return c.record(), nil
}

func (r *memoryRecords) List(ctx context.Context, prefix string, f func(Record)) error {
	if r.m.closing.Err() != nil {
		return ErrClosed
	}
	for _, c := range r.b.list(prefix + "/") {
		f(c.record())
	}
	return ctx.Err()
}

func (r *memoryRecords) Watch(ctx context.Context, f func(Record), ready func()) error {
	return r.m.read(ctx, func(ctx context.Context) error {
		return r.b.watch(ctx, func(c *memoryChange) { f(c.record()) }, ready)
	})
}

func (c *memoryChange) record() Record {
	v, _ := c.value.([]byte)
	return Record{Key: c.key, Value: v, Revision: c.revision, Gone: c.gone}
}
