package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// records is one bucket.
type records struct {
	s      *JetStream
	bucket Bucket
	name   string // of the stream
	stream jetstream.Stream
	prefix string // of the subjects
	lane   *lane
}

func (r *records) Put(key string, value []byte, expected Revision, done func(Revision, error)) {
	r.put(key, &put{body: value, expected: expected}, done)
}

func (r *records) Delete(key string, expected Revision, done func(error)) {
	r.put(key, &put{gone: true, expected: expected}, func(_ Revision, err error) { done(err) })
}

func (r *records) put(key string, p *put, done func(Revision, error)) {
	p.subject = subject(r.prefix, key)
	j := &job{bytes: len(p.subject) + len(p.body), put: p, set: done}
	j.invalid = r.s.check(key, len(p.body))
	r.s.submit(r.lane, j)
}

func (r *records) Get(ctx context.Context, key string) (Record, error) {
	if r.s.closing.Err() != nil {
		return Record{}, ErrClosed
	}
	m, err := r.s.last(ctx, r.name, subject(r.prefix, key))
	if err != nil {
		return Record{}, err
	}
	if gone(m.header) {
		return Record{}, ErrNotFound
	}
	return Record{Key: key, Value: m.data, Revision: Revision(m.seq)}, nil
}

// List reads one record after another. One that is written meanwhile comes again
// further back, so that f is told of all when all have been read.
func (r *records) List(ctx context.Context, prefix string, f func(Record)) error {
	if r.s.closing.Err() != nil {
		return ErrClosed
	}
	var order []string
	byKey := make(map[string]Record)
	for seq, filter := uint64(1), subject(r.prefix, prefix)+".*"; ; {
		m, err := r.s.next(ctx, r.name, filter, seq)
		if errors.Is(err, ErrNotFound) {
			break
		}
		if err != nil {
			return err
		}
		rec, err := r.record(m)
		if err != nil {
			return err
		}
		if _, ok := byKey[rec.Key]; !ok {
			order = append(order, rec.Key)
		}
		byKey[rec.Key] = rec
		seq = m.seq + 1
	}
	for _, key := range order {
		if rec := byKey[key]; !rec.Gone {
			f(rec)
		}
	}
	return nil
}

func (r *records) record(m *stored) (Record, error) {
	key, err := parseSubject(strings.TrimPrefix(m.subject, r.prefix))
	if err != nil {
		return Record{}, fmt.Errorf("stream %s, message %d: %w", r.name, m.seq, err)
	}
	rec := Record{Key: key, Revision: Revision(m.seq), Gone: gone(m.header)}
	if !rec.Gone {
		rec.Value = m.data
	}
	return rec, nil
}

func (r *records) Watch(ctx context.Context, f func(Record), ready func()) error {
	return r.s.read(ctx, func(ctx context.Context) error {
		return r.s.follow(ctx, r.stream, followOptions{from: 1, ready: ready}, func(m *stored) error {
			rec, err := r.record(m)
			if err == nil {
				f(rec)
			}
			return err
		})
	})
}
