package main

import (
	"context"
	"sync"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
)

// lagStore is a store that counts the messages which went into its log here and
// have not come back by the tail. Sequence numbers alone can't tell how many
// those are: they have gaps.
type lagStore struct {
	cluster.Store
	shards []shardLag
}

// shardLag is what one shard has to catch up with.
type shardLag struct {
	mu     sync.Mutex
	tailed uint64   // the last that the tail has handed on
	behind []uint64 // those stored since, in order
}

// mostBehind is how many messages of a shard are counted. A tail that is
// further behind is not slow but broken, and must not cost memory without end.
const mostBehind = 1 << 20

func newLagStore(s cluster.Store) *lagStore {
	return &lagStore{s, make([]shardLag, s.Shards())}
}

// Append implements cluster.Store.
func (s *lagStore) Append(m *cluster.Message, done func(cluster.Pos, error)) {
	s.Store.Append(m, func(p cluster.Pos, err error) {
		if err == nil {
			s.shards[p.Shard].stored(p.Seq)
		}
		done(p, err)
	})
}

// Tail implements cluster.Store.
func (s *lagStore) Tail(ctx context.Context, shard int, seq uint64, f func(cluster.Pos, *cluster.Message), ready func()) error {
	return s.Store.Tail(ctx, shard, seq, func(p cluster.Pos, m *cluster.Message) {
		f(p, m)
		s.shards[shard].handed(p.Seq)
	}, ready)
}

// Lag is how many messages each shard is behind.
func (s *lagStore) Lag() []int {
	lag := make([]int, len(s.shards))
	for i := range s.shards {
		lag[i] = s.shards[i].len()
	}
	return lag
}

// stored notes a message, unless the tail was faster, or it is an old one that
// was published again.
func (l *shardLag) stored(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.behind)
	if seq > l.tailed && n < mostBehind && (n == 0 || seq > l.behind[n-1]) {
		l.behind = append(l.behind, seq)
	}
}

func (l *shardLag) handed(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tailed = seq
	for len(l.behind) > 0 && l.behind[0] <= seq {
		l.behind = l.behind[1:]
	}
}

func (l *shardLag) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.behind)
}
