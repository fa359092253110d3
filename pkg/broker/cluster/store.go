package cluster

import (
	"context"
	"errors"
	"time"
)

// Errors that callers decide on.
var (
	// ErrConflict is a record that is not at the revision that was expected.
	ErrConflict = errors.New("the record has changed meanwhile")
	// ErrNotFound is a record or message that does not exist, or not any more.
	ErrNotFound = errors.New("not found")
	// ErrUnavailable is a store that could not confirm in time: no quorum, or a
	// disk that does not answer. What was asked for may have happened or not.
	ErrUnavailable = errors.New("the store is not available")
	// ErrFull is a store that takes no more: the disk, or a configured bound.
	ErrFull = errors.New("the store is full")
	// ErrTooLarge is a message, topic or record beyond what the store was opened
	// for.
	ErrTooLarge = errors.New("too large for the store")
	// ErrClosed is a store after Close.
	ErrClosed = errors.New("the store is closed")
)

// Pos is the place of a message in the log. Within a shard, sequence numbers
// rise by the order of appends, with gaps; 0 is no message.
type Pos struct {
	Shard int
	Seq   uint64
}

// Message is a PUBLISH as it is stored: once, whoever will get it.
type Message struct {
	Topic   string
	Payload []byte
	QoS     byte // as published: 1 or 2 in the log, 0 to 2 retained
	Retain  bool // as published
	// Properties are those of a 5.0 PUBLISH that are passed on (payload format,
	// content type, response topic, correlation data, user properties), in the
	// order in which they came, encoded as in a packet without their length.
	Properties []byte
	// Publisher is the Client Identifier of who sent it, for No Local.
	Publisher string
	// Expires is when it must not be delivered any more, kept to the
	// millisecond; zero is never.
	Expires time.Time
	// Time is when the store took it; set by the store.
	Time time.Time
	// DedupID, if set, names this very publication: an Append with the same one
	// within the dedup window (two minutes at least) stores nothing more and
	// gives the position of the first. At most 256 bytes.
	DedupID string
}

// Store is all that the broker knows of the engine below it. It is safe for
// concurrent use.
//
// done functions are called exactly once each, from the store's own goroutines,
// soon after one another in the order of the calls where they belong to one
// shard or one bucket (failures may come early). They must not block, so they
// may not write to the store either: a write waits where too many are under way.
//
// Messages and values that the store hands out are not changed by anybody, and
// may be kept; one may hold up to 64 KiB of its neighbours in memory.
type Store interface {
	// Append stores m in the log. done gets its position once it is as durable
	// as the store promises: with durability "always", synced to disk (on a
	// quorum of nodes). m and what it points at must not change until then.
	// Appends of one goroutine to one topic keep their order. Many appends may
	// be under way at once; the store bounds them and makes Append wait.
	Append(m *Message, done func(Pos, error))
	// Tail calls f with each message of a shard from seq on (0: the oldest), in
	// order and leaving none out, as they become durable, until ctx ends; then it
	// gives ctx's error. Trimmed ones don't come. With no message f learns that
	// there is none to deliver at that place: it has expired, or another one with
	// its DedupID was before it. It calls ready, if not nil, once f has had all
	// that was there at the start.
	Tail(ctx context.Context, shard int, seq uint64, f func(Pos, *Message), ready func()) error
	// Get reads one message; ErrNotFound if it expired or was trimmed.
	Get(ctx context.Context, p Pos) (*Message, error)
	// Bounds are sequence numbers that enclose a shard's messages: none is below
	// first, and none that is there now is above last, all later ones are. first
	// is last+1 when the shard is empty.
	Bounds(ctx context.Context, shard int) (first, last uint64, err error)
	// Trim forgets a shard's messages before seq; a few of the last of these may
	// stay, and so may those whose DedupID still counts.
	Trim(ctx context.Context, shard int, seq uint64) error
	// Shards is how many logs there are; the topic decides which one takes a
	// message.
	Shards() int

	// SetRetained makes m the retained message of its topic; an empty payload
	// removes it [MQTT-3.3.1-6]. It expires with m.Expires. done gets the
	// revision of the change; of two changes of one topic, the later has the
	// higher one, on all nodes.
	SetRetained(m *Message, done func(Revision, error))
	// Retained calls f with each change of the retained messages of all nodes:
	// first all that there are, then ready, then changes as they come, until
	// ctx ends; then it gives ctx's error. A removed or expired one has a Topic
	// and no Payload; such may come before ready, too, for topics that never came.
	Retained(ctx context.Context, f func(*Message, Revision), ready func()) error

	// SyncRetained returns when every running Retained has told its f of all
	// changes that were confirmed before the call, on whatever node.
	SyncRetained(ctx context.Context) error

	// Records gives a bucket of small records. It panics on one that is not
	// among those below.
	Records(b Bucket) Records

	// Close refuses what comes from now on with ErrClosed, waits for what is
	// under way (the functions of Tail, Retained and Watch, too) and lets go of
	// everything. It is safe to repeat.
	Close() error
}

// Bucket names a kind of record.
type Bucket string

const (
	Sessions Bucket = "sessions" // by hashed client id
	Inbound2 Bucket = "inbound2" // by client and packet id: QoS 2 PUBLISHes whose PUBREL is still to come
	Shares   Bucket = "shares"   // by group: how far shared subscriptions are
)

// buckets are all that there are.
var buckets = []Bucket{Sessions, Inbound2, Shares}

// Revision numbers the changes of a record. Any matches whatever is there;
// None only what does not exist.
type Revision uint64

const (
	None Revision = 0
	Any  Revision = 1<<64 - 1
)

// Record is one small value under a key.
type Record struct {
	Key      string
	Value    []byte
	Revision Revision
	// Gone: it was deleted, and there is no Value.
	Gone bool
}

// Records is one bucket.
type Records interface {
	// Put writes a record if it is at the revision expected. value must not change
	// until done is called.
	Put(key string, value []byte, expected Revision, done func(Revision, error))
	// Delete removes a record if it is at the revision expected. One that does
	// not exist is no error with Any.
	Delete(key string, expected Revision, done func(error))
	// Get reads one record, never an older state than the last confirmed write.
	Get(ctx context.Context, key string) (Record, error)
	// List calls f with all records whose key is prefix, "/" and one level more,
	// as fresh as from Get.
	List(ctx context.Context, prefix string, f func(Record)) error
	// Watch calls f with all records, then ready, then each change as it
	// happens, until ctx ends: puts and deletions. Then it gives ctx's
	// error. A record that is Gone may come before ready, too, also one that never
	// came. Of changes in quick succession to one record only the last is sure to
	// come.
	Watch(ctx context.Context, f func(Record), ready func()) error
}
