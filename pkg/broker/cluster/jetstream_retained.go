package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"
)

func (s *JetStream) SetRetained(m *Message, done func(Revision, error)) {
	p := &put{subject: subject(retainedPrefix, m.Topic), expected: Any}
	if now := time.Now(); len(m.Payload) == 0 || m.expired(now) {
		p.gone = true
	} else {
		p.body = appendMessage(appendPackHeader(make([]byte, 0, 8+encodedSize(m)), 1), m)
		p.ends = m.Expires
	}
	s.submit(s.retained.lane, &job{
		bytes: len(p.subject) + len(p.body), invalid: s.checkMessage(m),
		put: p, set: done,
	})
}

func (s *JetStream) Retained(ctx context.Context, f func(*Message, Revision), ready func()) error {
	return s.read(ctx, func(ctx context.Context) error {
		p := s.retained.readers.add()
		defer s.retained.readers.remove(p)
		return s.follow(ctx, s.retained.stream, followOptions{from: 1, ready: ready, progress: p}, func(m *stored) error {
			if !m.alive(time.Now()) {
				topic, err := parseSubject(strings.TrimPrefix(m.subject, retainedPrefix))
				if err != nil {
					return fmt.Errorf("stream %s, message %d: %w", retainedStream, m.seq, err)
				}
				f(&Message{Topic: topic, Retain: true, Time: m.taken}, Revision(m.seq))
				return nil
			}
			pack, err := parsePack(m.data, m.taken)
			if err != nil || len(pack) != 1 {
				return fmt.Errorf("stream %s, message %d: %w", retainedStream, m.seq, errPack)
			}
			f(&pack[0], Revision(m.seq))
			return nil
		})
	})
}

func (s *JetStream) SyncRetained(ctx context.Context) error {
	return s.read(ctx, func(ctx context.Context) error {
		end, err := s.retained.end.get(ctx, s.reading.Go, func() (uint64, error) {
			st, err := s.state(s.closing, retainedStream)
			return st.LastSeq, err
		})
		if err != nil {
			return err
		}
		return s.retained.readers.wait(ctx, end)
	})
}
