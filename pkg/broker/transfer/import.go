package transfer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker"
	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
)

// ErrNotNew is a store that has sessions or messages of its own.
var ErrNotNew = errors.New("the store is not new")

// Target is the store that a file is brought into.
type Target struct {
	Store cluster.Store
	// Node is the name of the node whose store it is, and Clustered says whether it
	// is one of several.
	Node      string
	Clustered bool
}

// guardKey is among the places of shared subscriptions while messages are
// brought in: without it, nodes that run already would trim what no session of
// theirs needs.
const guardKey = "node/import"

// Import brings the file into a store that has nothing yet. After an error the
// store holds a part, and is of no use.
func Import(ctx context.Context, from io.Reader, t Target) (Head, Counts, error) {
	f, err := newReader(from)
	if err != nil {
		return Head{}, Counts{}, err
	}
	in := &importing{Target: t, ctx: ctx, places: make(places, f.Head.Shards)}
	if f.Head.Shards != t.Store.Shards() {
		return f.Head, in.n, fmt.Errorf("the file is of a log in %d shards, and the store has %d: topics would change their shard; open the store with %d",
			f.Head.Shards, t.Store.Shards(), f.Head.Shards)
	}
	if err := in.requireNew(); err != nil {
		return f.Head, in.n, err
	}
	return f.Head, in.n, in.all(f)
}

type importing struct {
	Target
	ctx    context.Context
	n      Counts
	places places
	moved  bool // all messages have their places
	shares []cluster.Record

	writes sync.WaitGroup // under way
	mu     sync.Mutex
	fault  error // the first
}

func (in *importing) requireNew() error {
	for shard := range in.Store.Shards() {
		first, last, err := in.Store.Bounds(in.ctx, shard)
		if err != nil {
			return fmt.Errorf("log %d: %w", shard, err)
		}
		if first <= last {
			return fmt.Errorf("%w: there are messages in its log; import into an empty folder of data, before any client has been there", ErrNotNew)
		}
	}
	for _, b := range []cluster.Bucket{cluster.Sessions, cluster.Inbound2} {
		records, err := readBucket(in.ctx, in.Store, b)
		if err != nil {
			return fmt.Errorf("%s: %w", b, err)
		}
		if len(records) > 0 {
			return fmt.Errorf("%w: it has %d %s; import into an empty folder of data, before any client has been there", ErrNotNew, len(records), b)
		}
	}
	return nil
}

func (in *importing) all(f *reader) error {
	if in.Clustered {
		if err := in.guard(); err != nil {
			return err
		}
	}
	for {
		kind, body, err := f.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = in.frame(kind, body)
		}
		if err == nil {
			err = in.failed()
		}
		if err == nil {
			err = in.ctx.Err()
		}
		if err != nil {
			in.writes.Wait()
			return err
		}
	}
	if err := in.settle(); err != nil {
		return err
	}
	return in.finish()
}

// guard keeps everything in the log until the records are there, too.
func (in *importing) guard() error {
	var value []byte
	for range in.places {
		value = binary.AppendUvarint(value, 0)
	}
	in.put(cluster.Shares, guardKey, value)
	return in.wait()
}

// finish writes how far shared subscriptions are, and takes the guard away.
func (in *importing) finish() error {
	shares, err := broker.MoveShares(in.shares, in.places)
	if err != nil {
		return err
	}
	if shares != nil {
		in.put(cluster.Shares, broker.SharesKey, shares)
	}
	if err := in.wait(); err != nil || !in.Clustered {
		return err
	}
	in.writes.Add(1)
	in.Store.Records(cluster.Shares).Delete(guardKey, cluster.Any, in.done)
	return in.wait()
}

func (in *importing) frame(kind byte, body []byte) error {
	switch kind {
	case kindMessage:
		return in.message(body)
	case kindRetained:
		m, err := cluster.ParseMessage(body)
		if err != nil {
			return fmt.Errorf("%w: a retained message: %w", ErrDamaged, err)
		}
		in.n.Retained++
		in.writes.Add(1)
		in.Store.SetRetained(m, func(_ cluster.Revision, err error) { in.done(err) })
		return nil
	case kindRecord:
		return in.record(body)
	default:
		return fmt.Errorf("%w: a frame of an unknown kind, %q", ErrDamaged, kind)
	}
}

func (in *importing) message(body []byte) error {
	shard, n := binary.Uvarint(body)
	if n <= 0 || shard >= uint64(len(in.places)) || in.moved {
		return fmt.Errorf("%w: a message without a shard, or out of order", ErrDamaged)
	}
	seq, k := binary.Uvarint(body[n:])
	if k <= 0 {
		return fmt.Errorf("%w: a message without a place", ErrDamaged)
	}
	m, err := cluster.ParseMessage(body[n+k:])
	if err != nil {
		return fmt.Errorf("%w: a message: %w", ErrDamaged, err)
	}
	if !m.Expires.IsZero() && !time.Now().Before(m.Expires) {
		in.n.Expired++
		return nil
	}
	in.n.Messages++
	in.writes.Add(1)
	in.Store.Append(m, func(p cluster.Pos, err error) {
		if err == nil {
			err = in.took(int(shard), seq, p)
		}
		in.done(err)
	})
	return nil
}

// took notes where a message is now. Cursors stand for all that is below them, so
// the order must be what it was.
func (in *importing) took(shard int, seq uint64, p cluster.Pos) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if p.Shard != shard {
		return fmt.Errorf("a message of log %d went into log %d", shard, p.Shard)
	}
	all := in.places[shard]
	if n := len(all); n > 0 && (all[n-1].old >= seq || all[n-1].new >= p.Seq) {
		return fmt.Errorf("log %d does not keep the order of messages: %d and %d became %d and %d; import again, into an empty folder of data",
			shard, all[n-1].old, seq, all[n-1].new, p.Seq)
	}
	in.places[shard] = append(all, place{seq, p.Seq})
	return nil
}

// settle waits for all messages to have their places.
func (in *importing) settle() error {
	if in.moved {
		return nil
	}
	in.moved = true
	return in.wait()
}

func (in *importing) record(body []byte) error {
	if err := in.settle(); err != nil {
		return err
	}
	bucket, rest, ok := takeText(body)
	key, value, ok2 := takeText(rest)
	if !ok || !ok2 {
		return fmt.Errorf("%w: a record without a bucket or a key", ErrDamaged)
	}
	r := cluster.Record{Key: key, Value: value}
	switch b := cluster.Bucket(bucket); b {
	case cluster.Shares:
		in.shares = append(in.shares, r)
	case cluster.Sessions:
		moved, gone, err := broker.MoveSession(r, in.places)
		if err != nil {
			return err
		}
		in.n.count(b)
		in.n.Gone += gone
		in.put(b, key, moved)
	case cluster.Inbound2:
		in.n.count(b)
		in.put(b, key, value)
	default:
		return fmt.Errorf("%w: a record of an unknown kind, %q", ErrDamaged, bucket)
	}
	return nil
}

func (in *importing) put(b cluster.Bucket, key string, value []byte) {
	expected := cluster.None
	if b == cluster.Shares { // a node that runs has written its own
		expected = cluster.Any
	}
	in.writes.Add(1)
	in.Store.Records(b).Put(key, value, expected, func(_ cluster.Revision, err error) {
		if errors.Is(err, cluster.ErrConflict) {
			err = fmt.Errorf("%w: somebody has written %s %s meanwhile; keep clients away until the import is over", ErrNotNew, b, key)
		}
		in.done(err)
	})
}

// done takes the outcome of a write.
func (in *importing) done(err error) {
	if err != nil {
		in.mu.Lock()
		if in.fault == nil {
			in.fault = err
		}
		in.mu.Unlock()
	}
	in.writes.Done()
}

func (in *importing) failed() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.fault
}

// wait waits for the writes under way.
func (in *importing) wait() error {
	in.writes.Wait()
	return in.failed()
}
