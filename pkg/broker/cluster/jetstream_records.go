package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

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

func (r *records) Put(key string, value []byte, expected Revision, ttl time.Duration, done func(Revision, error)) {
	p := &put{body: value, expected: expected}
	if ttl > 0 {
		p.ends = time.Now().Add(ttl)
	}
	r.put(key, p, done)
}

func (r *records) Delete(key string, expected Revision, done func(error)) {
	r.put(key, &put{gone: Deleted, expected: expected}, func(_ Revision, err error) { done(err) })
}

func (r *records) put(key string, p *put, done func(Revision, error)) {
	p.subject = subject(r.prefix, key)
	j := &job{bytes: len(p.subject) + len(p.body), put: p, set: done}
	if j.invalid = r.s.check(key, len(p.body)); j.invalid == nil && !p.ends.IsZero() && !r.bucket.mortal() {
		j.invalid = errImmortal
	}
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
	if !m.alive(time.Now()) {
		return Record{}, ErrNotFound
	}
	return Record{Key: key, Value: m.data, Revision: Revision(m.seq)}, nil
}

func (r *records) Watch(ctx context.Context, f func(Record), ready func()) error {
	return r.s.read(ctx, func(ctx context.Context) error {
		return r.s.follow(ctx, r.stream, followOptions{from: 1, ready: ready}, func(m *stored) error {
			key, err := parseSubject(strings.TrimPrefix(m.subject, r.prefix))
			if err != nil {
				return fmt.Errorf("stream %s, message %d: %w", r.name, m.seq, err)
			}
			rec := Record{Key: key, Revision: Revision(m.seq), Gone: gone(m.header)}
			if rec.Gone == Kept {
				rec.Value = m.data
			}
			f(rec)
			return nil
		})
	})
}
