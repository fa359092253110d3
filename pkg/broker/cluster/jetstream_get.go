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

// gone says whether the record has ended whose last message has these headers.
func gone(h nats.Header) bool { return len(h[headerOperation]) > 0 }

// alive says whether a record or a retained message is there: the latter may
// have ended with nobody having marked that yet.
func (m *stored) alive(now time.Time) bool {
	at, mortal := endOf(m.header)
	return !gone(m.header) && (!mortal || now.Before(at))
}

// last gives the last message of a subject, never an older one than the last
// confirmed.
func (s *JetStream) last(ctx context.Context, stream, subject string) (*stored, error) {
	if s.clustered() {
		return s.fromLeader(ctx, stream, fmt.Appendf(nil, `{"last_by_subj":%q}`, subject))
	}
	return s.direct(ctx, stream+"."+subject, nil)
}

// message gives the message with a sequence number.
func (s *JetStream) message(ctx context.Context, stream string, seq uint64) (*stored, error) {
	query := fmt.Appendf(nil, `{"seq":%d}`, seq)
	m, err := s.direct(ctx, stream, query)
	if errors.Is(err, ErrNotFound) && s.clustered() { // the node that answered may be behind
		return s.fromLeader(ctx, stream, query)
	}
	return m, err
}

// next gives the first message of a subject from a sequence number on, as fresh
// as last.
func (s *JetStream) next(ctx context.Context, stream, subject string, seq uint64) (*stored, error) {
	return s.fresh(ctx, stream, fmt.Appendf(nil, `{"seq":%d,"next_by_subj":%q}`, seq, subject))
}

// since gives the first message of a subject from a time on, as fresh as last.
func (s *JetStream) since(ctx context.Context, stream, subject string, at time.Time) (*stored, error) {
	return s.fresh(ctx, stream, fmt.Appendf(nil, `{"start_time":%q,"next_by_subj":%q}`, at.UTC().Format(time.RFC3339Nano), subject))
}

func (s *JetStream) fresh(ctx context.Context, stream string, query []byte) (*stored, error) {
	if s.clustered() {
		return s.fromLeader(ctx, stream, query)
	}
	return s.direct(ctx, stream, query)
}

// direct asks a node that has the stream, this one if it does: what that has may
// be older than what another one has confirmed.
func (s *JetStream) direct(ctx context.Context, of string, query []byte) (*stored, error) {
	m, err := s.engine.request(ctx, "$JS.API.DIRECT.GET."+of, query)
	if err != nil {
		return nil, err
	}
	return parseStored(m)
}

// fromLeader asks the node that leads the stream, which has all that is
// confirmed.
func (s *JetStream) fromLeader(ctx context.Context, stream string, query []byte) (*stored, error) {
	answer, err := confirmed(ctx, s, func() (*server.JSApiMsgGetResponse, error) {
		return call[server.JSApiMsgGetResponse](ctx, s.engine, "$JS.API.STREAM.MSG.GET."+stream, query)
	})
	if err != nil {
		return nil, err
	}
	m := answer.Message
	if m == nil {
		return nil, errNoMessage
	}
	var h nats.Header
	if len(m.Header) > 0 {
		if h, err = nats.DecodeHeadersMsg(m.Header); err != nil {
			return nil, fmt.Errorf("stream %s, message %d: %w", stream, m.Sequence, err)
		}
	}
	return &stored{m.Subject, m.Sequence, m.Time, h, m.Data}, nil
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
