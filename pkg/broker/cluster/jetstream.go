package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Durability is when a write counts as done.
type Durability string

const (
	// Always: when it is synced to the disk. Writes that come meanwhile share the
	// next sync.
	Always Durability = "always"
	// EachSecond: when the operating system has it, which syncs it within two
	// seconds. Nothing is lost with the process, up to that with the machine.
	EachSecond Durability = "1s"
)

// What a zero field of Options stands for.
const (
	DefaultMaxPayload      = 1 << 20
	DefaultMaxTopic        = 4 << 10
	DefaultMaxPending      = 8 << 10
	DefaultMaxPendingBytes = 32 << 20
	DefaultMinFree         = 128 << 20
	DefaultDeadline        = 3 * time.Second
)

// Options are a JetStream store's. Zero fields stand for the defaults.
type Options struct {
	// Dir is the folder that holds everything; it is made if it is not there. One
	// process at a time can have it open. Required.
	Dir string
	// Node names this node in the engine: "broker". In a cluster each node has
	// another name, and keeps it.
	Node       string
	Durability Durability // Always
	// Shards is how many logs there are: 1. It can't be changed later.
	Shards int
	// Cluster makes it one of several nodes; nil is a single one.
	Cluster *ClusterOptions

	// MaxBytes bounds the log, all shards together, and MaxRetainedBytes the
	// retained messages, as the engine stores them; beyond, writes get ErrFull. 0
	// leaves it to the disk.
	MaxBytes, MaxRetainedBytes int64
	// MaxAge ends messages of the log that are older; 0 is never, and else it is two
	// minutes at least.
	MaxAge time.Duration
	// MinFree is how many bytes the disk must have free for writes, deletions
	// aside, or they get ErrFull: an engine that has met a full disk does not write
	// again before it is started anew. Negative is no bound.
	MinFree int64

	// MaxPayload bounds what one message holds besides its Topic and its
	// Publisher, or a record; in bytes. MaxTopic bounds topics and keys.
	MaxPayload, MaxTopic int
	// MaxPending and MaxPendingBytes bound the writes under way, of each shard, of
	// each bucket and of the retained messages; beyond, the next one waits.
	MaxPending, MaxPendingBytes int
	// Deadline is how long the engine may take to answer a write before that gets
	// ErrUnavailable. Time in which it answers others does not count. In a cluster
	// with a quorum it may take up to [ElectionPatience], so that an election holds
	// writes up and does not fail them.
	Deadline time.Duration

	Log *slog.Logger // nil is silence
	// Observe is told of each write to the engine, when it is done. It is called
	// before the functions that wait for it, and must not block; nil is fine.
	Observe func(Write)
}

// Write is one write to the engine: what is synced together, for durability
// [Always].
type Write struct {
	What string // "log", "retained", or the bucket's name
	// Messages is how many messages or records it carried, Bytes their size.
	Messages, Bytes int
	// Took is the time from the call of the one that waited longest until now.
	Took time.Duration
	Err  error
}

// maxEngineMessage is how large one message of the engine may be: besides a
// payload with its properties, it holds the topic, the publisher (64 KiB at
// most), and headers.
func (o *Options) maxEngineMessage() int {
	return max(o.MaxPayload, packBytes) + o.MaxTopic + 68<<10
}

func (o Options) withDefaults() (Options, error) {
	o.Node = cmp.Or(o.Node, "broker")
	o.Durability = cmp.Or(o.Durability, Always)
	o.Shards = cmp.Or(o.Shards, 1)
	o.MinFree = cmp.Or(o.MinFree, DefaultMinFree)
	o.MaxPayload = cmp.Or(o.MaxPayload, DefaultMaxPayload)
	o.MaxTopic = cmp.Or(o.MaxTopic, DefaultMaxTopic)
	o.MaxPending = cmp.Or(o.MaxPending, DefaultMaxPending)
	o.MaxPendingBytes = cmp.Or(o.MaxPendingBytes, DefaultMaxPendingBytes)
	o.Deadline = cmp.Or(o.Deadline, DefaultDeadline)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Observe == nil {
		o.Observe = func(Write) {}
	}
	switch {
	case o.Dir == "":
		return o, errors.New("a store needs a folder")
	case o.Durability != Always && o.Durability != EachSecond:
		return o, fmt.Errorf("durability %q is neither %q nor %q", o.Durability, Always, EachSecond)
	case o.Shards < 1 || o.Shards > 64:
		return o, fmt.Errorf("%d shards: it takes 1 to 64", o.Shards)
	case o.MaxAge != 0 && o.MaxAge < dedupWindow:
		return o, fmt.Errorf("maximum age %v: it takes %v at least", o.MaxAge, dedupWindow)
	case o.Cluster != nil:
		c := *o.Cluster
		o.Cluster = &c
		return o, c.check(o.Node)
	}
	return o, nil
}

// JetStream is a [Store] on a NATS server in this process, with JetStream on
// files.
//
// The log of shard k is the stream MQ_MSG_<k>, in packs (see encode.go). Each
// bucket is a key-value stream, KV_MQ_<…>, with one message per key, and MQ_RET
// the like with one per topic: written by compare-and-swap on the sequence
// number of the last. A marker tells of a deletion, or of a retained message's end
// (see expirer), and stays for [markerTTL].
type JetStream struct {
	o        Options
	lock     *dirLock
	disk     *disk
	engine   *engine
	peers    *peers // nil for a single node
	logs     []*shardLog
	retained struct {
		stream  jetstream.Stream
		lane    *lane
		readers readers
		end     fresh // the last sequence number
	}
	records  map[Bucket]*records
	lanes    []*lane        // all of them
	refusing sync.WaitGroup // calls to done for what was not let in

	closeOnce sync.Once
	leaving   atomic.Bool // Close has begun
	closing   context.Context
	stop      context.CancelFunc
	mu        sync.Mutex     // guards adding to reading against Close
	reading   sync.WaitGroup // Tail, Retained, Watch
	expiring  sync.WaitGroup
}

const (
	logStream      = "MQ_MSG_"
	retainedStream = "MQ_RET"
	retainedPrefix = "mq.r."
)

// logPrefix begins the subjects of a shard. Each node writes to one of its own
// below, so that a condition on what was last written there concerns it alone.
func logPrefix(shard int) string { return fmt.Sprint("mq.m.", shard, ".") }

// bucketNames are what the engine calls them. They are laid out as key-value
// buckets of NATS, so that its tools can show them.
var bucketNames = map[Bucket]string{
	Sessions: "MQ_SESS",
	Inbound2: "MQ_Q2",
	Shares:   "MQ_SHARE",
}

// markerTTL is how long the marker of a deletion or an expiry stays. A reader
// that was cut off for longer may miss one.
const markerTTL = time.Minute

// openTimeout bounds what opening asks of the engine: a disk may be slow.
const openTimeout = time.Minute

// OpenJetStream opens the store in o.Dir, or makes one there. ctx bounds that;
// reading back what a large store holds takes seconds, and can't be interrupted.
func OpenJetStream(ctx context.Context, o Options) (*JetStream, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	s := &JetStream{o: o, records: make(map[Bucket]*records)}
	s.closing, s.stop = context.WithCancel(context.Background())
	if s.lock, err = lockDir(filepath.Join(o.Dir, "lock")); err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	s.disk = &disk{dir: o.Dir, minFree: o.MinFree}
	if err = mark(&s.o); err == nil {
		s.engine, err = startEngine(&s.o)
	}
	if err != nil {
		s.lock.unlock()
		return nil, fmt.Errorf("open the store in %s: %w", o.Dir, err)
	}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open the store in %s: %w", o.Dir, err), s.Close())
	}
	return s, nil
}

// open makes the streams, or finds them, and starts to write to them.
func (s *JetStream) open(ctx context.Context) error {
	if s.clustered() {
		if err := s.meet(ctx); err != nil {
			return err
		}
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, openTimeout)
		defer cancel()
	}
	if err := s.again(ctx, "look for its streams", s.checkShards); err != nil {
		return err
	}
	for k := range s.o.Shards {
		name := fmt.Sprint(logStream, k)
		cfg := jetstream.StreamConfig{
			Name:     name,
			Subjects: []string{logPrefix(k) + ">"},
			MaxBytes: perShard(s.o.MaxBytes, s.o.Shards),
			MaxAge:   s.o.MaxAge,
		}
		stream, err := s.stream(ctx, cfg)
		if err != nil {
			return err
		}
		l, err := newShardLog(ctx, s, k, stream)
		if err != nil {
			return err
		}
		s.logs = append(s.logs, l)
	}
	var err error
	s.retained.stream, err = s.stream(ctx, jetstream.StreamConfig{
		Name:              retainedStream,
		Subjects:          []string{retainedPrefix + ">"},
		MaxBytes:          perShard(s.o.MaxRetainedBytes, 1),
		MaxMsgsPerSubject: 1,
	})
	if err != nil {
		return err
	}
	if s.retained.lane, err = newLane(s, "retained", retainedStream); err != nil {
		return err
	}
	s.retained.lane.start(newRecordWriter(s.retained.lane))
	s.expiring.Go(func() { newExpirer(s, s.retained.lane, s.retained.stream).run(s.closing) })
	for _, b := range buckets {
		r := &records{s: s, bucket: b, name: "KV_" + bucketNames[b], prefix: "$KV." + bucketNames[b] + "."}
		r.stream, err = s.stream(ctx, jetstream.StreamConfig{
			Name:              r.name,
			Subjects:          []string{r.prefix + ">"},
			MaxBytes:          -1,
			MaxMsgsPerSubject: 1,
			DenyDelete:        true,
		})
		if err != nil {
			return err
		}
		if r.lane, err = newLane(s, string(b), r.name); err != nil {
			return err
		}
		r.lane.start(newRecordWriter(r.lane))
		s.records[b] = r
	}
	return nil
}

// perShard is a stream's part of a bound; -1 is none.
func perShard(bytes int64, shards int) int64 {
	if bytes <= 0 {
		return -1
	}
	return max(1, bytes/int64(shards))
}

func (s *JetStream) stream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	cfg.Storage = jetstream.FileStorage
	cfg.Replicas = s.o.replicas()
	cfg.Discard = jetstream.DiscardNew // what is stored is never lost to what comes
	cfg.MaxConsumers, cfg.MaxMsgs, cfg.MaxMsgSize = -1, -1, -1
	cfg.AllowDirect = true
	cfg.AllowMsgTTL = true
	cfg.AllowAtomicPublish = true
	var stream jetstream.Stream
	err := s.again(ctx, "make or find stream "+cfg.Name, func(ctx context.Context) (err error) {
		if s.clustered() {
			stream, err = s.sharedStream(ctx, cfg)
		} else {
			stream, err = s.engine.js.CreateOrUpdateStream(ctx, cfg)
		}
		return err
	})
	return stream, err
}

// sharedStream makes a stream of a cluster, or finds it. The node that leads the
// cluster makes it, the others wait for it: of several requests at a time the
// engine answers one at most (v2.15.3).
func (s *JetStream) sharedStream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	stream, err := s.engine.js.Stream(ctx, cfg.Name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound) && s.engine.server.JetStreamIsLeader():
		return s.engine.js.CreateStream(ctx, cfg)
	case err != nil:
		return nil, err
	}
	is := stream.CachedInfo().Config
	if is.MaxBytes == cfg.MaxBytes && is.MaxAge == cfg.MaxAge && is.Replicas == cfg.Replicas {
		return stream, nil
	}
	return s.engine.js.UpdateStream(ctx, cfg)
}

// checkShards refuses another number of shards than the store was made with:
// topics would change their shard, and sessions lose their place.
func (s *JetStream) checkShards(ctx context.Context) error {
	names := s.engine.js.StreamNames(ctx)
	n, made := 0, false
	for name := range names.Name() {
		switch {
		case strings.HasPrefix(name, logStream):
			n++
		case name == retainedStream: // is made when all logs are
			made = true
		}
	}
	if err := names.Err(); err != nil {
		return fmt.Errorf("list the streams: %w", err)
	}
	if n != s.o.Shards && (made || n > s.o.Shards) {
		return permanent{fmt.Errorf("it was made with %d shards and can't be opened with %d", n, s.o.Shards)}
	}
	return nil
}

func (s *JetStream) Shards() int { return len(s.logs) }

func (s *JetStream) log(shard int) (*shardLog, error) {
	if shard < 0 || shard >= len(s.logs) {
		return nil, fmt.Errorf("shard %d of %d: %w", shard, len(s.logs), ErrNotFound)
	}
	return s.logs[shard], nil
}

// Records gives one of the buckets.
func (s *JetStream) Records(b Bucket) Records {
	r, ok := s.records[b]
	if !ok {
		panic(fmt.Sprintf("cluster: there is no bucket %q", b))
	}
	return r
}

// submit lets a job into a lane, when there is room.
func (s *JetStream) submit(l *lane, j *job) {
	j.began = time.Now()
	err := j.invalid
	if err == nil {
		err = l.gate.enter(j.bytes)
	}
	if err != nil {
		s.refusing.Go(func() { j.done(0, err) })
		return
	}
	l.queue.put(j)
}

// read runs a reader, which ends with ctx or with the store.
func (s *JetStream) read(ctx context.Context, f func(context.Context) error) error {
	s.mu.Lock()
	if s.closing.Err() != nil {
		s.mu.Unlock()
		return ErrClosed
	}
	s.reading.Add(1)
	s.mu.Unlock()
	defer s.reading.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.closing, func() { cancel(ErrClosed) })()
	err := f(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Close waits for the writes under way, which takes the deadline twice at most.
func (s *JetStream) Close() error {
	s.closeOnce.Do(func() {
		s.leaving.Store(true)
		for _, l := range s.lanes {
			l.close()
		}
		s.mu.Lock()
		s.stop()
		s.mu.Unlock()
		s.reading.Wait()
		s.expiring.Wait()
		s.refusing.Wait()
		if s.peers != nil {
			s.leave()
			s.peers.close()
		}
		s.engine.stop()
		s.lock.unlock()
	})
	return nil
}
