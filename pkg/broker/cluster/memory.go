package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// MemoryOptions are a Memory's; zero fields stand for the defaults.
type MemoryOptions struct {
	Shards int // 1
	// MaxPending and MaxPendingBytes bound the writes that are under way.
	MaxPending, MaxPendingBytes int
}

// Op is a kind of write, for the faults of a [Memory].
type Op int

const (
	Appends Op = iota
	RetainedWrites
	RecordWrites
	ops
)

// Memory is a [Store] for tests: it keeps everything in memory, until Close. It
// can be made to fail and to stall. It has timers of its own, so it works in a
// synctest bubble.
type Memory struct {
	gate     *gate
	dones    dispatcher
	running  sync.WaitGroup // Tail, Retained, Watch
	shards   []*memoryLog
	retained *memoryBucket
	buckets  map[Bucket]*memoryBucket

	closing context.Context
	stop    context.CancelFunc

	mu     sync.Mutex // guards what follows and orders writes
	faults [ops]fault
	closed bool     // faults are over
	known  []*dedup // by shard
}

type fault struct {
	err        error
	holding    int // calls to Hold that are not released
	held       []func()
	holdingAck int
	heldAck    []func()
}

// NewMemory opens an empty store.
func NewMemory(o MemoryOptions) *Memory {
	m := &Memory{
		gate:     newGate(orDefault(o.MaxPending, DefaultMaxPending), orDefault(o.MaxPendingBytes, DefaultMaxPendingBytes)),
		retained: newMemoryBucket(),
		buckets:  make(map[Bucket]*memoryBucket),
	}
	m.closing, m.stop = context.WithCancel(context.Background())
	for range orDefault(o.Shards, 1) {
		m.shards = append(m.shards, &memoryLog{changed: make(chan struct{})})
		m.known = append(m.known, newDedup())
	}
	for _, b := range buckets {
		m.buckets[b] = newMemoryBucket()
	}
	m.dones.start()
	return m
}

func orDefault(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}

// Fail makes writes of a kind fail with err, without effect; nil ends that.
func (m *Memory) Fail(op Op, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults[op].err = err
}

// Hold keeps writes of a kind from happening until release is called; then they
// happen in the order of the calls. They stay under way, whatever their deadline
// would be elsewhere.
func (m *Memory) Hold(op Op) (release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := &m.faults[op]
	f.holding++
	return sync.OnceFunc(func() { m.release(&f.holding, &f.held) })
}

// HoldAcks lets writes of a kind happen, so that readers see them, and keeps
// their done functions from being called until release is called.
func (m *Memory) HoldAcks(op Op) (release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := &m.faults[op]
	f.holdingAck++
	return sync.OnceFunc(func() { m.release(&f.holdingAck, &f.heldAck) })
}

func (m *Memory) release(holding *int, held *[]func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if *holding--; *holding > 0 {
		return
	}
	for _, f := range *held {
		f()
	}
	*held = nil
}

// write lets do happen, which returns the call to done. m.mu is held while it
// runs. early gives the call to done for a write that does not happen.
func (m *Memory) write(op Op, bytes int, do func() func(), early func(error) func()) {
	if err := m.gate.enter(bytes); err != nil {
		m.dones.add(early(err))
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	f := &m.faults[op]
	run := func() {
		var done func()
		if f.err != nil {
			done = early(f.err)
		} else {
			done = do()
		}
		ack := func() {
			m.dones.add(func() {
				done()
				m.gate.leave(bytes)
			})
		}
		if f.holdingAck > 0 && !m.closed {
			f.heldAck = append(f.heldAck, ack)
		} else {
			ack()
		}
	}
	if f.holding > 0 && !m.closed {
		f.held = append(f.held, run)
	} else {
		run()
	}
}

func (m *Memory) Append(msg *Message, done func(Pos, error)) {
	m.write(Appends, encodedSize(msg), func() func() {
		p := m.append(msg)
		return func() { done(p, nil) }
	}, func(err error) func() {
		return func() { done(Pos{}, err) }
	})
}

func (m *Memory) append(msg *Message) Pos {
	now := time.Now()
	shard := shardOf(msg.Topic, len(m.shards))
	if seq, ok := m.known[shard].get(msg.DedupID, now); ok {
		return Pos{shard, seq}
	}
	p := Pos{Shard: shard, Seq: m.shards[shard].append(msg.copy(now))}
	m.known[shard].add(msg.DedupID, p.Seq, now)
	return p
}

// copy is a message that no longer shares memory with the caller's.
func (m *Message) copy(taken time.Time) *Message {
	c := *m
	c.Payload = slices.Clone(m.Payload)
	c.Properties = slices.Clone(m.Properties)
	c.Time = taken
	if !m.Expires.IsZero() {
		c.Expires = time.UnixMilli(m.Expires.UnixMilli())
	}
	return &c
}

func (m *Memory) shard(n int) (*memoryLog, error) {
	if n < 0 || n >= len(m.shards) {
		return nil, fmt.Errorf("shard %d of %d: %w", n, len(m.shards), ErrNotFound)
	}
	return m.shards[n], nil
}

func (m *Memory) Shards() int { return len(m.shards) }

func (m *Memory) Tail(ctx context.Context, shard int, seq uint64, f func(Pos, *Message), ready func()) error {
	l, err := m.shard(shard)
	if err != nil {
		return err
	}
	return m.read(ctx, func(ctx context.Context) error {
		return l.tail(ctx, seq, func(seq uint64, msg *Message) { f(Pos{shard, seq}, msg) }, ready)
	})
}

func (m *Memory) Get(ctx context.Context, p Pos) (*Message, error) {
	l, err := m.shard(p.Shard)
	if err != nil {
		return nil, err
	}
	if m.closing.Err() != nil {
		return nil, ErrClosed
	}
	return l.get(p.Seq)
}

func (m *Memory) Bounds(ctx context.Context, shard int) (first, last uint64, err error) {
	l, err := m.shard(shard)
	if err != nil {
		return 0, 0, err
	}
	if m.closing.Err() != nil {
		return 0, 0, ErrClosed
	}
	first, last = l.bounds()
	return first, last, nil
}

func (m *Memory) Trim(ctx context.Context, shard int, seq uint64) error {
	l, err := m.shard(shard)
	if err != nil {
		return err
	}
	if m.closing.Err() != nil {
		return ErrClosed
	}
	l.trim(seq)
	return nil
}

func (m *Memory) SetRetained(msg *Message, done func(Revision, error)) {
	m.write(RetainedWrites, encodedSize(msg), func() func() {
		now := time.Now()
		change := memoryChange{key: msg.Topic, gone: true}
		if len(msg.Payload) > 0 && !msg.expired(now) {
			change.gone, change.value = false, msg.copy(now)
			if !msg.Expires.IsZero() {
				change.ttl = time.Until(msg.Expires)
			}
		}
		rev, _ := m.retained.put(change, Any)
		return func() { done(rev, nil) }
	}, func(err error) func() {
		return func() { done(None, err) }
	})
}

func (m *Memory) Retained(ctx context.Context, f func(*Message, Revision), ready func()) error {
	return m.read(ctx, func(ctx context.Context) error {
		return m.retained.watch(ctx, func(c *memoryChange) {
			msg, ok := c.value.(*Message)
			if !ok {
				msg = &Message{Topic: c.key, Retain: true}
			}
			f(msg, c.revision)
		}, ready)
	})
}

func (m *Memory) SyncRetained(ctx context.Context) error {
	if m.closing.Err() != nil {
		return ErrClosed
	}
	return m.retained.sync(ctx)
}

func (m *Memory) Records(b Bucket) Records {
	r, ok := m.buckets[b]
	if !ok {
		panic(fmt.Sprintf("cluster: there is no bucket %q", b))
	}
	return &memoryRecords{m, r}
}

// read runs a reader, which ends with ctx or with the store.
func (m *Memory) read(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m.mu.Lock()
	if m.closing.Err() != nil {
		m.mu.Unlock()
		return ErrClosed
	}
	m.running.Add(1)
	m.mu.Unlock()
	defer m.running.Done()
	defer context.AfterFunc(m.closing, func() { cancel(ErrClosed) })()
	if err := f(ctx); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// Close lets held writes happen first.
func (m *Memory) Close() error {
	m.mu.Lock()
	m.closed = true
	for op := range m.faults {
		f := &m.faults[op]
		for _, held := range []*[]func(){&f.held, &f.heldAck} {
			for _, f := range *held {
				f()
			}
			*held = nil
		}
	}
	m.mu.Unlock()
	m.gate.close()
	m.mu.Lock()
	m.stop()
	m.mu.Unlock()
	m.running.Wait()
	m.retained.stop()
	for _, b := range m.buckets {
		b.stop()
	}
	m.dones.stop()
	return nil
}

// dispatcher calls done functions, one after another.
type dispatcher struct {
	mu      sync.Mutex
	cond    *sync.Cond
	queue   []func()
	ended   bool
	stopped chan struct{}
}

func (d *dispatcher) start() {
	d.cond = sync.NewCond(&d.mu)
	d.stopped = make(chan struct{})
	go d.run()
}

func (d *dispatcher) add(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended { // Close has returned: this is a call after it
		go f()
		return
	}
	d.queue = append(d.queue, f)
	d.cond.Signal()
}

func (d *dispatcher) run() {
	defer close(d.stopped)
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		for len(d.queue) == 0 {
			if d.ended {
				return
			}
			d.cond.Wait()
		}
		f := d.queue[0]
		d.queue = d.queue[1:]
		d.mu.Unlock()
		f()
		d.mu.Lock()
	}
}

func (d *dispatcher) stop() {
	d.mu.Lock()
	d.ended = true
	d.cond.Signal()
	d.mu.Unlock()
	<-d.stopped
}
