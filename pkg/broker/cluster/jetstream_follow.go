package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// followBatch is how many messages a reader asks for at a time; it asks again
	// when half of them have come.
	followBatch = 512
	// followLife is how long the engine keeps such a request.
	followLife = 30 * time.Second
	// heartbeat is how often the engine shows that it knows the reader.
	heartbeat = 2 * time.Second
	// stillness is how long a reader that has not caught up waits for another
	// message before it asks whether there will be one.
	stillness = 100 * time.Millisecond
	// followPause is how long a reader waits after an interruption.
	followPause = 100 * time.Millisecond
)

type followOptions struct {
	from        uint64 // a sequence number
	ready       func() // called when f has had all that were there at the start; nil is fine
	headersOnly bool
}

// follow calls f with a stream's messages in order, until ctx ends or f fails.
// What the engine or its connection does meanwhile interrupts it, and no more.
func (s *JetStream) follow(ctx context.Context, stream jetstream.Stream, o followOptions, f func(*stored) error) error {
	o.from = max(o.from, 1)
	var fault error
	handle := func(m *stored) error {
		if fault = f(m); fault == nil {
			o.from = m.seq + 1
		}
		return fault
	}
	for {
		err := s.followOnce(ctx, stream, &o, handle)
		if ctx.Err() != nil || fault != nil {
			return err
		}
		s.o.Log.Warn("reading from the store was interrupted", "stream", stream.CachedInfo().Config.Name, "next", o.from, "err", err)
		select {
		case <-time.After(followPause):
		case <-ctx.Done():
		}
	}
}

// followOnce is follow until the first interruption. When o.ready was called it
// is nil.
//
// That everything has come is not easy to tell where messages replace others. To
// have reached what was last at the start is not enough: what was replaced
// before it was read may come later. The engine's count of what is pending is
// not exact while there are writes. So the reader has to be at the very end, if
// only for a moment.
func (s *JetStream) followOnce(ctx context.Context, stream jetstream.Stream, o *followOptions, f func(*stored) error) error {
	cfg := stream.CachedInfo().Config
	state, err := s.engine.state(ctx, cfg.Name)
	if err != nil {
		return err
	}
	replaces := cfg.MaxMsgsPerSubject > 0
	p, err := s.pull(ctx, stream, o)
	if err != nil {
		return err
	}
	defer p.close()
	caughtUp := p.pending == 0
	for ctx.Err() == nil {
		if caughtUp && o.ready != nil {
			o.ready()
			o.ready = nil
		}
		wait := 2 * heartbeat
		if o.ready != nil {
			wait = stillness
		}
		m, err := p.next(wait)
		switch {
		case err != nil:
			return err
		case m != nil:
			if err := f(m); err != nil {
				return err
			}
			if o.ready == nil || m.seq < state.LastSeq {
				continue
			}
			if replaces {
				if state, err = s.engine.state(ctx, cfg.Name); err != nil {
					return err
				}
			}
			caughtUp = m.seq >= state.LastSeq
		case o.ready != nil: // what was to come is no more, maybe
			info, err := p.consumer.Info(ctx)
			if err != nil {
				return err
			}
			caughtUp = info.NumPending == 0
		default:
			return errors.New("the engine is silent")
		}
	}
	return ctx.Err()
}

var errMissing = errors.New("a message is missing")

// puller reads a stream by a consumer of the engine. It asks for a bounded
// number of messages and bytes ahead, so a slow reader holds up nobody and
// fills no memory.
type puller struct {
	s        *JetStream
	consumer jetstream.Consumer
	subject  string // for requests
	request  []byte
	sub      *nats.Subscription
	release  []func() // what holds on to sub

	pending uint64 // how many there were at the start
	asked   int    // for so many more
	seq     uint64 // the consumer's own count
}

func (s *JetStream) pull(ctx context.Context, stream jetstream.Stream, o *followOptions) (*puller, error) {
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       o.from,
		AckPolicy:         jetstream.AckNonePolicy,
		InactiveThreshold: 2 * followLife,
		HeadersOnly:       o.headersOnly,
		MemoryStorage:     true,
		Replicas:          1,
	})
	if err != nil {
		return nil, err
	}
	info := consumer.CachedInfo()
	p := &puller{
		s:        s,
		consumer: consumer,
		subject:  fmt.Sprintf("$JS.API.CONSUMER.MSG.NEXT.%s.%s", info.Stream, info.Name),
		pending:  info.NumPending,
	}
	if p.request, err = json.Marshal(map[string]int64{
		"batch":          followBatch,
		"max_bytes":      int64(2 * s.o.maxEngineMessage()),
		"expires":        int64(followLife),
		"idle_heartbeat": int64(heartbeat),
	}); err != nil {
		return nil, err
	}
	if p.sub, err = s.engine.read.SubscribeSync(nats.NewInbox()); err != nil {
		return nil, err
	}
	// What is asked for bounds it.
	if err = p.sub.SetPendingLimits(-1, -1); err != nil {
		return nil, errors.Join(err, p.sub.Unsubscribe())
	}
	// A connection that was lost may have lost messages that are the engine's last,
	// so that no gap would ever show.
	end := func() { _ = p.sub.Unsubscribe() }
	stop := context.AfterFunc(ctx, end)
	p.release = []func(){func() { stop() }, s.engine.readBack.add(end), end}
	return p, nil
}

func (p *puller) close() {
	for _, f := range p.release {
		f()
	}
	// If that does not reach the engine, it forgets the consumer by itself.
	info := p.consumer.CachedInfo()
	_ = p.s.engine.read.Publish(fmt.Sprintf("$JS.API.CONSUMER.DELETE.%s.%s", info.Stream, info.Name), nil)
}

// next gives the next message; none if there is no sign of the engine for so
// long.
func (p *puller) next(wait time.Duration) (*stored, error) {
	for {
		if p.asked <= followBatch/2 {
			if err := p.s.engine.read.PublishRequest(p.subject, p.sub.Subject, p.request); err != nil {
				return nil, err
			}
			p.asked += followBatch
		}
		m, err := p.sub.NextMsg(wait)
		switch {
		case errors.Is(err, nats.ErrTimeout):
			return nil, nil
		case err != nil:
			return nil, err
		case len(m.Header["Status"]) > 0 && len(m.Data) == 0:
			if err := p.status(m); err != nil {
				return nil, err
			}
			continue
		}
		md, err := m.Metadata()
		if err != nil {
			return nil, err
		}
		if md.Sequence.Consumer != p.seq+1 {
			return nil, errMissing
		}
		p.seq++
		p.asked--
		return &stored{m.Subject, md.Sequence.Stream, md.Timestamp, m.Header, m.Data}, nil
	}
}

// status takes a message of the engine about a request.
func (p *puller) status(m *nats.Msg) error {
	status, description := m.Header.Get("Status"), m.Header.Get("Description")
	if status == "100" { // a heartbeat
		if m.Header.Get(server.JSLastConsumerSeq) != strconv.FormatUint(p.seq, 10) {
			return errMissing
		}
		return nil
	}
	// A request has ended, with its time or its bytes.
	left, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
	if err != nil || status != "408" && status != "409" {
		return fmt.Errorf("the engine says %s %s", status, description)
	}
	p.asked -= left
	return nil
}
