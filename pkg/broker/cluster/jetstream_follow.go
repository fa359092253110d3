package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// heartbeat is how often the engine shows that it knows the reader, and silence
	// how long it may not do so.
	heartbeat = time.Second
	silence   = 3 * heartbeat
	// feedLife is how long the engine knows a reader that it does not reach.
	feedLife = 5 * time.Second
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
	progress    *progress // told how far f is; nil is fine

	patience time.Duration // for another message, while somebody waits
}

// behind says whether somebody waits for the reader to catch up.
func (o *followOptions) behind() bool { return o.ready != nil || o.progress.behind() }

// follow calls f with a stream's messages in order, until ctx ends or f fails.
// What the engine or its connection does meanwhile interrupts it, and no more.
func (s *JetStream) follow(ctx context.Context, stream jetstream.Stream, o followOptions, f func(*stored) error) error {
	o.from = max(o.from, 1)
	o.patience = stillness
	var fault error
	handle := func(m *stored) error {
		if fault = f(m); fault == nil {
			o.from = m.seq + 1
			o.progress.reached(m.seq)
		}
		return fault
	}
	interrupted := false
	for {
		from := o.from
		err := s.followOnce(ctx, stream, &o, handle)
		if ctx.Err() != nil || fault != nil {
			return err
		}
		switch {
		case errors.Is(err, errMoved):
			continue
		case errors.Is(err, errStill):
			if o.from == from {
				o.patience = min(2*o.patience, silence)
			}
			continue
		}
		if !interrupted || o.from > from { // not in vain, again and again
			s.o.Log.Warn("reading from the store was interrupted", "stream", stream.CachedInfo().Config.Name, "next", o.from, "err", err)
		}
		interrupted = true
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
	state, err := s.state(ctx, cfg.Name)
	if err != nil {
		return err
	}
	replaces := cfg.MaxMsgsPerSubject > 0
	in, err := s.feed(ctx, cfg.Name, o)
	if err != nil {
		return err
	}
	defer in.close()
	caughtUp := in.pending == 0
	for ctx.Err() == nil {
		if caughtUp {
			o.progress.reached(state.LastSeq)
			if o.ready != nil {
				o.ready()
				o.ready = nil
			}
			caughtUp = false
		}
		wait := silence
		if o.behind() {
			wait = o.patience
		}
		m, err := in.next(wait, o.behind)
		switch {
		case err != nil:
			return err
		case m != nil:
			if err := f(m); err != nil {
				return err
			}
			o.patience = stillness
			if o.ready == nil || m.seq < state.LastSeq {
				continue
			}
			if replaces {
				if state, err = s.state(ctx, cfg.Name); err != nil {
					return err
				}
			}
			caughtUp = m.seq >= state.LastSeq
		case o.behind(): // what was to come is no more, maybe: a new feed will tell
			return errStill
		default:
			return errors.New("the engine is silent")
		}
	}
	return ctx.Err()
}

// state gives a stream's state, with all that is confirmed.
func (s *JetStream) state(ctx context.Context, stream string) (server.StreamState, error) {
	return confirmed(ctx, s, func() (server.StreamState, error) { return s.engine.state(ctx, stream) })
}

var (
	errMissing = errors.New("a message is missing")
	errStill   = errors.New("nothing comes")
	errMoved   = errors.New("another node leads the stream")
)

// feed is a reader of a stream by a consumer of the engine, at the node that
// leads the stream, so that what it says of the end is true. Of the consumer,
// nobody else knows, and nothing is stored. It stops when it is bytes ahead, so a
// slow reader holds up nobody and fills no memory: 2 MiB at first, up to 32 MiB.
type feed struct {
	s       *JetStream
	sub     *nats.Subscription
	release []func() // what holds on to sub
	delete  string   // the subject that ends the consumer

	moved   atomic.Bool // another node leads the stream now
	pending uint64      // how many messages there were at the start
	seq     uint64      // the consumer's own count
}

func (s *JetStream) feed(ctx context.Context, stream string, o *followOptions) (*feed, error) {
	in := &feed{s: s}
	var err error
	if in.sub, err = s.engine.read.SubscribeSync(nats.NewInbox()); err != nil {
		return nil, err
	}
	// A connection that was lost may have lost messages that are the engine's last,
	// so that no gap would ever show.
	end := func() { _ = in.sub.Unsubscribe() }
	stop := context.AfterFunc(ctx, end)
	in.release = []func(){func() { stop() }, s.engine.readBack.add(end), end}
	if s.clustered() {
		// The one that has led it may be about to end, or may have.
		var elected *nats.Subscription
		elected, err = s.engine.read.Subscribe(server.JSAdvisoryStreamLeaderElectedPre+"."+stream, func(*nats.Msg) {
			in.moved.Store(true)
			end()
		})
		if err != nil {
			in.close()
			return nil, err
		}
		in.release = append(in.release, func() { _ = elected.Unsubscribe() })
	}
	// The engine bounds what it sends ahead.
	if err = in.sub.SetPendingLimits(-1, -1); err == nil {
		err = in.create(ctx, stream, o)
	}
	if err != nil {
		in.close()
		return nil, err
	}
	return in, nil
}

// create makes the consumer. It asks once: another one would feed it, too.
func (in *feed) create(ctx context.Context, stream string, o *followOptions) error {
	body, err := json.Marshal(server.CreateConsumerRequest{Stream: stream, Config: server.ConsumerConfig{
		DeliverPolicy:     server.DeliverByStartSequence,
		OptStartSeq:       o.from,
		AckPolicy:         server.AckNone,
		DeliverSubject:    in.sub.Subject,
		FlowControl:       true,
		Heartbeat:         heartbeat,
		InactiveThreshold: feedLife,
		HeadersOnly:       o.headersOnly,
		MemoryStorage:     true,
		Replicas:          1,
		Direct:            true,
	}})
	if err != nil {
		return err
	}
	m, err := in.s.engine.requestOnce(ctx, min(in.s.o.Deadline/3, silence), "$JS.API.CONSUMER.CREATE."+stream, body)
	if err != nil {
		return err
	}
	var answer server.JSApiConsumerCreateResponse
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return err
	}
	if err := answer.ToError(); err != nil {
		return err
	}
	if answer.ConsumerInfo == nil {
		return errors.New("the engine does not say what it feeds")
	}
	in.pending = answer.NumPending
	in.delete = "$JS.API.CONSUMER.DELETE." + stream + "." + answer.Name
	return nil
}

func (in *feed) close() {
	for _, f := range in.release {
		f()
	}
	// A node that is one of several does not hear this. It forgets the consumer by
	// itself.
	if in.delete != "" && !in.s.clustered() {
		_ = in.s.engine.read.Publish(in.delete, nil)
	}
}

// next gives the next message; none if there is no sign of the engine for so
// long, or when it shows that there is none for somebody who waits.
func (in *feed) next(wait time.Duration, waits func() bool) (*stored, error) {
	for {
		m, err := in.sub.NextMsg(wait)
		switch {
		case errors.Is(err, nats.ErrTimeout):
			return nil, nil
		case err != nil && in.moved.Load():
			return nil, errMoved
		case err != nil:
			return nil, err
		case len(m.Header["Status"]) > 0 && len(m.Data) == 0:
			if err := in.status(m); err != nil {
				return nil, err
			}
			if m.Reply == "" && waits() {
				return nil, nil
			}
			continue
		}
		md, err := m.Metadata()
		if err != nil {
			return nil, err
		}
		if md.Sequence.Consumer != in.seq+1 {
			return nil, errMissing
		}
		in.seq++
		return &stored{m.Subject, md.Sequence.Stream, md.Timestamp, m.Header, m.Data}, nil
	}
}

// status takes a message of the engine about the feed: whether the reader has
// come so far, or a heartbeat.
func (in *feed) status(m *nats.Msg) error {
	if status := m.Header.Get("Status"); status != "100" {
		return fmt.Errorf("the engine says %s %s", status, m.Header.Get("Description"))
	}
	reply := m.Reply
	if reply == "" {
		if m.Header.Get(server.JSLastConsumerSeq) != strconv.FormatUint(in.seq, 10) {
			return errMissing
		}
		reply = m.Header.Get(server.JSConsumerStalled) // that question was lost
	}
	if reply == "" {
		return nil
	}
	return in.s.engine.read.Publish(reply, nil)
}
