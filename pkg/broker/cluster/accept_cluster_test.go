package cluster

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"testing"
)

func TestClusterStore(t *testing.T) {
	testStore(t, func(t *testing.T) Store {
		c := newTestCluster(t, Options{Durability: EachSecond, Shards: 2, Deadline: patience})
		return &anyNode{c: c}
	})
}

// anyNode is a cluster as one Store: each call goes to another node, but for
// writes to one topic or key, whose order only one node keeps.
type anyNode struct {
	c     *testCluster
	calls atomic.Uint64
}

var nodeSeed = maphash.MakeSeed()

func (a *anyNode) any() *JetStream { return a.c.nodeAnyway(int(a.calls.Add(1) % 3)) }

func (a *anyNode) of(name string) *JetStream {
	return a.c.nodeAnyway(int(maphash.String(nodeSeed, name) % 3))
}

func (a *anyNode) Append(m *Message, done func(Pos, error)) { a.of(m.Topic).Append(m, done) }

func (a *anyNode) Tail(ctx context.Context, shard int, seq uint64, f func(Pos, *Message), ready func()) error {
	return a.any().Tail(ctx, shard, seq, f, ready)
}

func (a *anyNode) Get(ctx context.Context, p Pos) (*Message, error) { return a.any().Get(ctx, p) }

func (a *anyNode) Bounds(ctx context.Context, shard int) (first, last uint64, err error) {
	return a.any().Bounds(ctx, shard)
}

func (a *anyNode) Trim(ctx context.Context, shard int, seq uint64) error {
	return a.any().Trim(ctx, shard, seq)
}

func (a *anyNode) Shards() int { return a.any().Shards() }

func (a *anyNode) SetRetained(m *Message, done func(Revision, error)) {
	a.of(m.Topic).SetRetained(m, done)
}

func (a *anyNode) Retained(ctx context.Context, f func(*Message, Revision), ready func()) error {
	return a.any().Retained(ctx, f, ready)
}

func (a *anyNode) SyncRetained(ctx context.Context) error {
	var errs [3]error
	var syncing sync.WaitGroup
	for i := range errs {
		syncing.Go(func() { errs[i] = a.c.nodeAnyway(i).SyncRetained(ctx) })
	}
	syncing.Wait()
	return errors.Join(errs[:]...)
}

func (a *anyNode) Records(b Bucket) Records {
	a.any().Records(b) // panics on what is none
	return &anyNodeRecords{a, b}
}

// Close lets what is under way come to an end before a node is missed.
func (a *anyNode) Close() error {
	var closing sync.WaitGroup
	for i := range 3 {
		for _, l := range a.c.nodeAnyway(i).lanes {
			closing.Go(l.close)
		}
	}
	closing.Wait()
	a.c.close()
	return nil
}

type anyNodeRecords struct {
	a *anyNode
	b Bucket
}

func (r *anyNodeRecords) Put(key string, value []byte, expected Revision, done func(Revision, error)) {
	r.a.of(key).Records(r.b).Put(key, value, expected, done)
}

func (r *anyNodeRecords) Delete(key string, expected Revision, done func(error)) {
	r.a.of(key).Records(r.b).Delete(key, expected, done)
}

func (r *anyNodeRecords) Get(ctx context.Context, key string) (Record, error) {
	return r.a.any().Records(r.b).Get(ctx, key)
}

func (r *anyNodeRecords) List(ctx context.Context, prefix string, f func(Record)) error {
	return r.a.any().Records(r.b).List(ctx, prefix, f)
}

func (r *anyNodeRecords) Watch(ctx context.Context, f func(Record), ready func()) error {
	return r.a.any().Records(r.b).Watch(ctx, f, ready)
}
