package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// stored is an engine message as it is read back.
type stored struct {
	subject string
	seq     uint64
	taken   time.Time
	header  nats.Header
	data    []byte
}

// gone says how the record ended whose last message has these headers.
func gone(h nats.Header) Gone {
	switch {
	case len(h[headerOperation]) == 0:
		return Kept
	case len(h[headerReason]) > 0:
		return Expired
	}
	return Deleted
}

// alive says whether a record is there: it may have ended with nobody having
// marked that yet.
func (m *stored) alive(now time.Time) bool {
	at, mortal := endOf(m.header)
	return gone(m.header) == Kept && (!mortal || now.Before(at))
}

// last gives the last message of a subject, without asking other nodes: there
// are none. (With several, a follower may answer, with an older state.)
func (s *JetStream) last(ctx context.Context, stream, subject string) (*stored, error) {
	m, err := s.engine.request(ctx, "$JS.API.DIRECT.GET."+stream+"."+subject, nil)
	if err != nil {
		return nil, err
	}
	return parseStored(m)
}

// message gives the message with a sequence number.
func (s *JetStream) message(ctx context.Context, stream string, seq uint64) (*stored, error) {
	m, err := s.engine.request(ctx, "$JS.API.DIRECT.GET."+stream, fmt.Appendf(nil, `{"seq":%d}`, seq))
	if err != nil {
		return nil, err
	}
	return parseStored(m)
}

// next gives the first message of a subject from a sequence number on.
func (s *JetStream) next(ctx context.Context, stream, subject string, seq uint64) (*stored, error) {
	m, err := s.engine.request(ctx, "$JS.API.DIRECT.GET."+stream, fmt.Appendf(nil, `{"seq":%d,"next_by_subj":%q}`, seq, subject))
	if err != nil {
		return nil, err
	}
	return parseStored(m)
}

// since gives the first message of a subject from a time on.
func (s *JetStream) since(ctx context.Context, stream, subject string, at time.Time) (*stored, error) {
	m, err := s.engine.request(ctx, "$JS.API.DIRECT.GET."+stream,
		fmt.Appendf(nil, `{"start_time":%q,"next_by_subj":%q}`, at.UTC().Format(time.RFC3339Nano), subject))
	if err != nil {
		return nil, err
	}
	return parseStored(m)
}

var errNoMessage = errors.New("the engine's answer is not a message")

func parseStored(m *nats.Msg) (*stored, error) {
	if status := m.Header.Get("Status"); status != "" {
		if status == "404" {
			return nil, ErrNotFound
		}
		return nil, fmt.Errorf("%w: %s %s", ErrUnavailable, status, m.Header.Get("Description"))
	}
	seq, err := strconv.ParseUint(m.Header.Get(server.JSSequence), 10, 64)
	if err != nil {
		return nil, errNoMessage
	}
	taken, err := time.Parse(time.RFC3339Nano, m.Header.Get(server.JSTimeStamp))
	if err != nil {
		return nil, errNoMessage
	}
	return &stored{m.Header.Get(server.JSSubject), seq, taken, m.Header, m.Data}, nil
}
