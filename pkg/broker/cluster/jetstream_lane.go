package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// lane writes to one stream. While one wave of writes is under way the next one
// gathers; so with durability "always" all that come during a sync share the
// next one. A wave of the log is one message of the engine, a pack. A wave of a
// bucket is one message for each record, and many of these go as an atomic
// batch, which the engine syncs at once.
//
// One wave at a time keeps the order. What the connection to the engine loses is
// sent again: records as they are, since to put one twice is to put it once; of
// the log, see writeAgain.
type lane struct {
	s       *JetStream
	what    string // for Observe
	name    string // of the stream
	stream  jetstream.Stream
	subject string // of messages for the log
	gate    *gate
	queue   *jobQueue
	id      string // begins the names of its writes, at this start and no other
	inbox   string // answers come to inbox.<wave>.<frame>
	sub     *nats.Subscription

	number      atomic.Uint64 // of the current wave
	last        uint64        // the highest sequence number that is known
	answers     chan answer
	reconnected chan struct{}
	forget      func() // ends telling reconnected
	stopped     chan struct{}
}

var errRefused = errors.New("the engine has refused a batch")

// atomicFrom is from how many engine messages on an atomic batch is faster than
// one sync for each (docs/adr/0008-store.md). Without syncs it never is.
const atomicFrom = 24

// retryPause is how long to wait when the engine asks for another try.
const retryPause = 20 * time.Millisecond

// newLane starts a lane to a stream: the log's, if subject is not empty.
func newLane(s *JetStream, what string, stream jetstream.Stream, subject string) (*lane, error) {
	info := stream.CachedInfo()
	l := &lane{
		s: s, what: what, name: info.Config.Name, stream: stream, subject: subject,
		last:        info.State.LastSeq,
		gate:        newGate(s.o.MaxPending, s.o.MaxPendingBytes),
		queue:       newJobQueue(),
		id:          rand.Text()[:12],
		inbox:       nats.NewInbox(),
		answers:     make(chan answer, 2*waveFrames),
		reconnected: make(chan struct{}, 1),
		stopped:     make(chan struct{}),
	}
	var err error
	if l.sub, err = s.engine.write.Subscribe(l.inbox+".*.*", l.receive); err != nil {
		return nil, fmt.Errorf("write to %s: %w", l.name, err)
	}
	l.forget = s.engine.writeBack.add(func() {
		select {
		case l.reconnected <- struct{}{}:
		default:
		}
	})
	s.lanes = append(s.lanes, l)
	go l.run()
	return l, nil
}

// receive takes an answer, in the connection's goroutine.
func (l *lane) receive(m *nats.Msg) {
	a, err := parseAnswer(l.inbox, m)
	switch {
	case err != nil:
		l.s.o.Log.Error("an answer of the store's engine makes no sense", "stream", l.name, "err", err)
	case a.wave != l.number.Load(): // it comes too late
	default:
		select {
		case l.answers <- a:
		case <-l.stopped:
		}
	}
}

// close refuses what comes, waits for what is under way and ends the lane.
func (l *lane) close() {
	l.gate.close()
	l.queue.close()
	<-l.stopped
	_ = l.sub.Unsubscribe()
	l.forget()
}

func (l *lane) run() {
	defer close(l.stopped)
	silent := false // the engine has not answered the last wave
	for {
		var w wave
		var tooLate time.Time
		if silent {
			tooLate = time.Now().Add(-l.s.o.Deadline)
		}
		// The disk is looked at when there is something to write: an answer from
		// before a long wait would be about another day.
		if !l.queue.take(func(j *job) bool { return w.add(j, tooLate, l.s.disk.isFull()) }) {
			return
		}
		for _, f := range w.refused {
			l.finish(f)
		}
		if len(w.frames) == 0 {
			continue
		}
		begin := time.Now()
		if silent {
			begin = w.began // who waited for that wave has waited
		}
		l.s.disk.wrote(w.bytes)
		silent = !l.write(w.frames, begin.Add(l.s.o.Deadline))
	}
}

// finish tells those who wait for a frame.
func (l *lane) finish(f *frame) {
	l.s.o.Observe(Write{
		What: l.what, Messages: len(f.jobs), Bytes: f.bytes,
		Took: time.Since(f.jobs[0].began), Err: f.err,
	})
	for i, j := range f.jobs {
		j.done(f.seq, i, f.err)
		l.gate.leave(j.bytes)
	}
}

// write writes a wave and finishes its frames. It says false if not everything
// was answered in time.
func (l *lane) write(frames []*frame, expires time.Time) bool {
	select {
	case <-l.reconnected: // of before
	default:
	}
	n := strconv.FormatUint(l.number.Load(), 36)
	now := time.Now()
	for i, f := range frames {
		f.encode(l.subject, l.id+n+"."+strconv.Itoa(i), now)
	}
	timer := time.NewTimer(time.Until(expires))
	defer timer.Stop()
	if l.s.o.Durability == Always && l.subject == "" && len(frames) >= atomicFrom {
		switch l.writeAtomic(frames, timer) {
		case nil:
			return true
		case ErrUnavailable:
			return false
		}
	}
	return l.writeEach(frames, timer)
}

// writeAtomic writes a wave of records as a whole. If the engine has refused it,
// or may have, writeAtomic gives errRefused, and the wave has to be written frame
// by frame.
//
// The log's waves are not written like that: the engine lets readers have a
// batch before it has synced it, and a session's place in the log must not be
// ahead of the disk.
func (l *lane) writeAtomic(frames []*frame, timer *time.Timer) error {
	wave := l.number.Add(1)
	id := l.id + strconv.FormatUint(wave, 36)
	for i, f := range frames {
		f.msg.Header[server.JSBatchId] = []string{id}
		f.msg.Header[server.JSBatchSeq] = []string{strconv.Itoa(i + 1)}
	}
	last := frames[len(frames)-1].msg
	last.Header[server.JSBatchCommit] = []string{"1"}
	last.Reply = l.reply(wave, 0)
	defer func() {
		for _, f := range frames {
			for _, h := range []string{server.JSBatchId, server.JSBatchSeq, server.JSBatchCommit} {
				delete(f.msg.Header, h)
			}
		}
	}()
	for _, f := range frames {
		if err := l.s.engine.write.PublishMsg(f.msg); err != nil {
			return errRefused
		}
	}
	for {
		select {
		case a := <-l.answers:
			switch {
			case a.wave != wave:
				continue
			case a.err != nil:
				return errRefused
			}
			for i, f := range frames {
				f.seq = a.seq - uint64(len(frames)-1-i)
				l.finish(f)
			}
			return nil
		case <-l.reconnected:
			return errRefused
		case <-timer.C:
			l.fail(frames)
			return ErrUnavailable
		}
	}
}

func (l *lane) reply(wave uint64, frame int) string {
	return l.inbox + "." + strconv.FormatUint(wave, 10) + "." + strconv.Itoa(frame)
}

// writeEach writes a wave frame by frame, without waiting for one before the
// next, and finishes them in order.
func (l *lane) writeEach(frames []*frame, timer *time.Timer) bool {
	wave := l.number.Add(1)
	l.send(wave, frames)
	retry := time.NewTimer(0)
	retry.Stop()
	defer retry.Stop()
	for done := 0; ; {
		for ; done < len(frames) && frames[done].answered; done++ {
			l.finish(frames[done])
		}
		if done == len(frames) {
			return true
		}
		select {
		case a := <-l.answers:
			if a.wave == wave && !l.take(frames[a.frame], a) {
				retry.Reset(retryPause)
			}
		case <-l.reconnected:
			retry.Reset(0)
		case <-retry.C:
			if l.subject != "" {
				return l.writeAgain(frames[0], timer)
			}
			l.send(wave, frames)
		case <-timer.C:
			l.fail(frames[done:])
			return false
		}
	}
}

// send sends those frames of a wave that are not answered.
func (l *lane) send(wave uint64, frames []*frame) {
	for i, f := range frames {
		if f.answered {
			continue
		}
		f.msg.Reply = l.reply(wave, i)
		switch err := l.s.engine.write.PublishMsg(f.msg); {
		case err == nil:
		case errors.Is(err, nats.ErrMaxPayload):
			f.answered, f.err = true, ErrTooLarge
		default: // it will be sent when the connection is back
			return
		}
	}
}

// take takes an answer to a frame. It says false if that is to be sent again.
func (l *lane) take(f *frame, a answer) bool {
	if f.answered {
		return true
	}
	f.seq, f.err = a.seq, a.err
	if errors.Is(f.err, ErrConflict) && l.subject == "" && l.examine(f) {
		f.err = errRetry
	}
	if errors.Is(f.err, errRetry) {
		return false
	}
	f.answered = true
	l.last = max(l.last, f.seq)
	return true
}

// examine looks into a conflict. It may be with the very same write, which the
// engine has got before the connection broke. And a record that must not exist
// may be in the way only as what is left of it: then examine says true, and the
// frame can be tried again.
func (l *lane) examine(f *frame) bool {
	ctx, cancel := context.WithTimeout(context.Background(), l.s.o.Deadline)
	defer cancel()
	is, err := l.s.last(ctx, l.name, f.msg.Subject)
	switch {
	case errors.Is(err, ErrNotFound): // it has ended just now
		return f.jobs[0].put.expected == None
	case err != nil:
		f.err = err
	case is.header.Get(headerOp) == f.msg.Header[headerOp][0]:
		f.seq, f.err = is.seq, nil
	case f.jobs[0].put.expected == None && !is.alive(time.Now()):
		f.msg.Header[server.JSExpectedLastSubjSeq] = []string{strconv.FormatUint(is.seq, 10)}
		return true
	}
	return false
}

// fail ends frames whose answer has not come in time.
func (l *lane) fail(frames []*frame) {
	l.s.o.Log.Error("the store's engine does not answer", "stream", l.name, "after", l.s.o.Deadline)
	for _, f := range frames {
		if !f.answered {
			f.err = fmt.Errorf("%w: no answer within %v", ErrUnavailable, l.s.o.Deadline)
		}
		l.finish(f)
	}
}
