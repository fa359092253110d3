package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// shardLog is one shard of the log.
type shardLog struct {
	s       *JetStream
	shard   int
	name    string // of the stream
	stream  jetstream.Stream
	subject string
	known   *dedup
	lane    *lane
	recent  packCache
}

// newShardLog makes a shard ready for writing: it reads which DedupIDs count.
func newShardLog(ctx context.Context, s *JetStream, shard int, stream jetstream.Stream) (*shardLog, error) {
	l := &shardLog{
		s: s, shard: shard, name: stream.CachedInfo().Config.Name, stream: stream,
		subject: subject(logPrefix(shard), s.o.Node), known: newDedup(),
	}
	if err := l.readIDs(ctx); err != nil {
		return nil, fmt.Errorf("read the last of stream %s: %w", l.name, err)
	}
	last, err := l.written(ctx)
	if err != nil {
		return nil, err
	}
	if l.lane, err = newLane(s, "log", l.name); err != nil {
		return nil, err
	}
	l.lane.start(&logWriter{l: l.lane, log: l, last: last, ids: make(map[string]*job)})
	return l, nil
}

// written gives the sequence number of this node's last message in the stream;
// 0 if there is none.
func (l *shardLog) written(ctx context.Context) (uint64, error) {
	m, err := l.s.last(ctx, l.name, l.subject)
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return m.seq, nil
}

// readIDs notes the DedupIDs that count.
func (l *shardLog) readIDs(ctx context.Context) error {
	return l.eachNamed(ctx, time.Now().Add(-dedupMemory), math.MaxUint64, l.known.addPack)
}

func (s *JetStream) Append(m *Message, done func(Pos, error)) {
	l := s.logs[shardOf(m.Topic, len(s.logs))]
	j := &job{bytes: encodedSize(m), message: m, appended: done, shard: l.shard}
	j.invalid = s.checkMessage(m)
	s.submit(l.lane, j)
}

// maxDedupID bounds a DedupID.
const maxDedupID = 256

func (s *JetStream) checkMessage(m *Message) error {
	if len(m.DedupID) > maxDedupID {
		return fmt.Errorf("%w: a DedupID of %d bytes, more than %d", ErrTooLarge, len(m.DedupID), maxDedupID)
	}
	return s.check(m.Topic, len(m.Payload)+len(m.Properties))
}

func (s *JetStream) check(name string, payload int) error {
	switch {
	case len(name) > s.o.MaxTopic:
		return fmt.Errorf("%w: a topic or key of %d bytes, more than %d", ErrTooLarge, len(name), s.o.MaxTopic)
	case payload > s.o.MaxPayload:
		return fmt.Errorf("%w: %d bytes, more than %d", ErrTooLarge, payload, s.o.MaxPayload)
	}
	return nil
}

func (s *JetStream) Tail(ctx context.Context, shard int, seq uint64, f func(Pos, *Message), ready func()) error {
	l, err := s.log(shard)
	if err != nil {
		return err
	}
	return s.read(ctx, func(ctx context.Context) error {
		twins := newTwins(l)
		return s.follow(ctx, l.stream, followOptions{from: engineSeq(seq), ready: ready}, func(m *stored) error {
			pack, err := l.pack(m)
			if err != nil {
				return err
			}
			var twin []bool
			if s.clustered() {
				if twin, err = twins.mark(ctx, m, pack); err != nil {
					return err
				}
				l.known.addPack(m.seq, pack)
			}
			now := time.Now()
			for i := range pack {
				at := seqOf(m.seq, i)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				switch {
				case at < seq:
				case pack[i].expired(now) || twin != nil && twin[i]:
					f(Pos{shard, at}, nil)
				default:
					f(Pos{shard, at}, &pack[i])
				}
			}
			return nil
		})
	})
}

func (l *shardLog) pack(m *stored) ([]Message, error) {
	pack, err := parsePack(m.data, m.taken)
	if err != nil {
		return nil, fmt.Errorf("stream %s, message %d: %w", l.name, m.seq, err)
	}
	return pack, nil
}

func (s *JetStream) Get(ctx context.Context, p Pos) (*Message, error) {
	l, err := s.log(p.Shard)
	if err != nil {
		return nil, err
	}
	if s.closing.Err() != nil {
		return nil, ErrClosed
	}
	seq := engineSeq(p.Seq)
	if seq == 0 {
		return nil, ErrNotFound
	}
	pack, generation := l.recent.get(seq)
	if pack == nil {
		m, err := s.message(ctx, l.name, seq)
		if err != nil {
			return nil, err
		}
		if pack, err = l.pack(m); err != nil {
			return nil, err
		}
		l.recent.put(seq, pack, generation)
	}
	i := packIndex(p.Seq)
	if i >= len(pack) || pack[i].expired(time.Now()) {
		return nil, ErrNotFound
	}
	return &pack[i], nil
}

func (s *JetStream) Bounds(ctx context.Context, shard int) (first, last uint64, err error) {
	l, err := s.log(shard)
	if err != nil {
		return 0, 0, err
	}
	if s.closing.Err() != nil {
		return 0, 0, ErrClosed
	}
	st, err := s.state(ctx, l.name)
	if err != nil {
		return 0, 0, err
	}
	if st.Msgs == 0 {
		st.FirstSeq = st.LastSeq + 1
	}
	return seqOf(st.FirstSeq, 0), seqOf(st.LastSeq+1, 0) - 1, nil
}

func (s *JetStream) Trim(ctx context.Context, shard int, seq uint64) error {
	l, err := s.log(shard)
	if err != nil {
		return err
	}
	first, last, err := s.Bounds(ctx, shard)
	if err != nil {
		return err
	}
	// A purge beyond the end would move the end.
	seq = min(seq, last+1)
	if needed, ok := l.known.oldest(time.Now()); ok {
		seq = min(seq, needed)
	}
	if engineSeq(seq) <= engineSeq(first) {
		return nil
	}
	if err := l.stream.Purge(ctx, jetstream.WithPurgeSequence(engineSeq(seq))); err != nil {
		return unavailable(ctx, err)
	}
	l.recent.clear()
	return nil
}

// packCache keeps the packs that were read last: who replays asks for one
// message after another, and each costs a request and its whole pack.
type packCache struct {
	mu         sync.Mutex
	generation int // of clear
	next       int
	packs      [8]struct {
		seq  uint64
		pack []Message
	}
}

func (c *packCache) get(seq uint64) (pack []Message, generation int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.packs {
		if c.packs[i].seq == seq {
			return c.packs[i].pack, c.generation
		}
	}
	return nil, c.generation
}

// put keeps a pack that get did not find, unless the cache was cleared since.
func (c *packCache) put(seq uint64, pack []Message, generation int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if generation != c.generation {
		return
	}
	c.packs[c.next].seq, c.packs[c.next].pack = seq, pack
	c.next = (c.next + 1) % len(c.packs)
}

func (c *packCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	clear(c.packs[:])
}
