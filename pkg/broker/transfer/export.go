package transfer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
)

// Counts are what was moved.
type Counts struct {
	Messages, Retained, Sessions, Inbound2 int
	// Expired are messages that were in the file and not worth storing any more;
	// Gone are those in flight to a client that were not there, for the same reason
	// or because they had been trimmed.
	Expired, Gone int
}

// buckets are those of a store, in the order in which they stand in a file.
var buckets = []cluster.Bucket{cluster.Shares, cluster.Sessions, cluster.Inbound2}

// Export writes all that a store holds. Nothing may change meanwhile, or a part
// of what changes may be missing.
func Export(ctx context.Context, s cluster.Store, h Head, to io.Writer) (Counts, error) {
	var n Counts
	h.Shards = s.Shards()
	f, err := newWriter(to, h)
	if err != nil {
		return n, err
	}
	for shard := range s.Shards() {
		if err := exportLog(ctx, s, shard, f, &n); err != nil {
			return n, fmt.Errorf("log %d: %w", shard, err)
		}
	}
	if err := exportRetained(ctx, s, f, &n); err != nil {
		return n, fmt.Errorf("retained messages: %w", err)
	}
	for _, b := range buckets {
		if err := exportRecords(ctx, s, b, f, &n); err != nil {
			return n, fmt.Errorf("%s: %w", b, err)
		}
	}
	return n, f.end()
}

// all runs a reader of the store until it has had what is there: read is given
// what it has to call then, and fails with the first error of a write.
func all(parent context.Context, read func(ctx context.Context, ready func()) error, fault *error) error {
	ctx, enough := context.WithCancel(parent)
	defer enough()
	had := false
	err := read(ctx, func() {
		had = true
		enough()
	})
	switch {
	case *fault != nil:
		return *fault
	case had && errors.Is(err, context.Canceled):
		return nil
	case err == nil:
		return parent.Err()
	default:
		return err
	}
}

func exportLog(ctx context.Context, s cluster.Store, shard int, f *writer, n *Counts) error {
	var fault error
	var body []byte
	over := false // what comes after ready is none of ours
	return all(ctx, func(ctx context.Context, ready func()) error {
		return s.Tail(ctx, shard, 0, func(p cluster.Pos, m *cluster.Message) {
			if fault != nil || m == nil || over {
				return
			}
			body = binary.AppendUvarint(body[:0], uint64(p.Shard))
			body = binary.AppendUvarint(body, p.Seq)
			body = cluster.AppendMessage(body, m)
			if fault = f.frame(kindMessage, body); fault == nil {
				n.Messages++
			}
		}, func() { over = true; ready() })
	}, &fault)
}

// exportRetained writes what there is in the end: before it is known to be all, a
// topic may come more than once.
func exportRetained(ctx context.Context, s cluster.Store, f *writer, n *Counts) error {
	var fault error
	now := make(map[string]*cluster.Message)
	over := false
	err := all(ctx, func(ctx context.Context, ready func()) error {
		return s.Retained(ctx, func(m *cluster.Message, _ cluster.Revision) {
			switch {
			case over:
			case len(m.Payload) == 0:
				delete(now, m.Topic)
			default:
				now[m.Topic] = m
			}
		}, func() { over = true; ready() })
	}, &fault)
	if err != nil {
		return err
	}
	for _, topic := range sorted(now) {
		if err := f.frame(kindRetained, cluster.AppendMessage(nil, now[topic])); err != nil {
			return err
		}
		n.Retained++
	}
	return nil
}

func exportRecords(ctx context.Context, s cluster.Store, b cluster.Bucket, f *writer, n *Counts) error {
	now, err := readBucket(ctx, s, b)
	if err != nil {
		return err
	}
	for _, key := range sorted(now) {
		body := append(appendText(appendText(nil, string(b)), key), now[key]...)
		if err := f.frame(kindRecord, body); err != nil {
			return err
		}
		n.count(b)
	}
	return nil
}

// readBucket gives the values of a bucket by key.
func readBucket(ctx context.Context, s cluster.Store, b cluster.Bucket) (map[string][]byte, error) {
	var fault error
	now := make(map[string][]byte)
	over := false
	err := all(ctx, func(ctx context.Context, ready func()) error {
		return s.Records(b).Watch(ctx, func(r cluster.Record) {
			switch {
			case over:
			case r.Gone:
				delete(now, r.Key)
			default:
				now[r.Key] = r.Value
			}
		}, func() { over = true; ready() })
	}, &fault)
	return now, err
}

func (n *Counts) count(b cluster.Bucket) {
	switch b {
	case cluster.Sessions:
		n.Sessions++
	case cluster.Inbound2:
		n.Inbound2++
	}
}
