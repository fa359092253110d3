package cluster

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// recordWriter writes to a bucket, or the retained messages: each record is one
// message of the engine. Many of a wave go as an atomic batch, which the engine
// syncs at once. What the connection loses is sent again: to put a record twice
// is to put it once.
type recordWriter struct {
	l        *lane
	subjects map[string]struct{} // of the wave that gathers

	examined uint64 // the wave whose conflicts are looked into
	until    time.Time
}

func newRecordWriter(l *lane) *recordWriter {
	return &recordWriter{l: l, subjects: make(map[string]struct{})}
}

// A wave of records has at most so many engine messages and, if it has several,
// bytes.
const (
	waveFrames = 512
	waveBytes  = 512 << 10
)

// atomicFrom is from how many engine messages on an atomic batch is faster than
// one sync for each (docs/adr/0008-store.md). Without syncs it never is.
const atomicFrom = 24

const (
	headerOperation = "KV-Operation"
	operationPurge  = "PURGE"
)

var errRefused = errors.New("the engine has refused a batch")

// add leaves a second put to a subject to the next wave, since its outcome may
// depend on the first.
func (rw *recordWriter) add(w *wave, j *job) bool {
	if len(w.frames) == 0 {
		clear(rw.subjects)
	}
	_, taken := rw.subjects[j.put.subject]
	if taken || len(w.frames) == waveFrames || len(w.frames) > 0 && w.bytes+j.bytes > waveBytes {
		return false
	}
	rw.subjects[j.put.subject] = struct{}{}
	w.begin(j)
	return true
}

func (rw *recordWriter) write(w *wave, timer *time.Timer) bool {
	for i, f := range w.frames {
		f.encodePut(f.jobs[0].put, rw.l.writeID(i), rw.l.s.clustered())
	}
	unsure := false
	if rw.l.s.o.Durability == Always && len(w.frames) >= atomicFrom {
		switch rw.writeAtomic(w.frames, timer) {
		case nil:
			return true
		case ErrUnavailable:
			return false
		}
		unsure = true
	}
	return rw.writeEach(w.frames, timer, unsure)
}

// writeAtomic writes a wave as a whole. If the engine has refused it, or may
// have, writeAtomic gives errRefused, and the wave has to be written frame by
// frame.
func (rw *recordWriter) writeAtomic(frames []*frame, timer *time.Timer) error {
	l := rw.l
	wave := l.number.Add(1)
	id := l.writeID(0)
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
	silence := l.silence()
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
		case <-silence:
			return errRefused
		case <-timer.C:
			if l.overdue(timer) {
				l.fail(frames)
				return ErrUnavailable
			}
		}
	}
}

// writeEach writes a wave frame by frame, without waiting for one before the
// next, and finishes them in order. unsure is of frames that may have been
// written before.
func (rw *recordWriter) writeEach(frames []*frame, timer *time.Timer, unsure bool) bool {
	l := rw.l
	wave := l.number.Add(1)
	again := rw.send(wave, frames, unsure)
	for done := 0; ; {
		for ; done < len(frames) && frames[done].answered; done++ {
			l.finish(frames[done])
		}
		if done == len(frames) {
			return true
		}
		select {
		case a := <-l.answers:
			if a.wave == wave && !rw.take(frames[a.frame], a) {
				again = time.After(retryPause)
			}
		case <-l.reconnected:
			again = rw.send(wave, frames[done:], true)
		case <-again:
			again = rw.send(wave, frames[done:], true)
		case <-timer.C:
			if l.overdue(timer) {
				l.fail(frames[done:])
				return false
			}
		}
	}
}

// send sends those frames of a wave that are not answered, and gives when to do
// so again.
func (rw *recordWriter) send(wave uint64, frames []*frame, unsure bool) <-chan time.Time {
	for _, f := range frames {
		if !f.answered && unsure && !rw.ascertain(f) {
			break // the others are for the next time, too
		}
		if f.answered {
			continue
		}
		f.err = nil
		f.msg.Reply = rw.l.reply(wave, f.number)
		if err := rw.l.s.engine.write.PublishMsg(f.msg); err != nil {
			break // it will be sent when the connection is back
		}
	}
	return rw.l.silence()
}

// ascertain finds out, in a cluster, whether a frame without a condition has been
// written; then it is answered. Else it goes again on the condition that nothing
// has come in between: it must not replace what was written since. ascertain says
// false if it can't find out now.
func (rw *recordWriter) ascertain(f *frame) bool {
	l, p := rw.l, f.jobs[0].put
	if !l.s.clustered() || p.expected != Any || errors.Is(f.err, errRetry) && !errors.Is(f.err, errBusy) {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.s.o.Deadline/3)
	defer cancel()
	is, err := l.s.last(ctx, l.name, p.subject)
	switch {
	case errors.Is(err, ErrNotFound):
		f.msg.Header[server.JSExpectedLastSubjSeq] = []string{"0"}
	case err != nil:
		return false
	case is.header.Get(headerOp) == f.msg.Header.Get(headerOp):
		f.seq, f.err, f.answered = is.seq, nil, true
	default:
		f.msg.Header[server.JSExpectedLastSubjSeq] = []string{strconv.FormatUint(is.seq, 10)}
	}
	return true
}

// take takes an answer to a frame. It says false if that is to be sent again.
func (rw *recordWriter) take(f *frame, a answer) bool {
	if f.answered {
		return true
	}
	f.seq, f.err = a.seq, a.err
	if errors.Is(f.err, ErrConflict) && !f.jobs[0].put.yields && rw.examine(f) {
		f.err = errRetry
	}
	f.answered = !errors.Is(f.err, errRetry)
	return f.answered
}

// examine looks into a conflict. It may be with the very same write, which the
// engine has got before the connection broke. And a record that must not exist
// may be in the way only as what is left of it: then examine says true, and the
// frame can be tried again.
func (rw *recordWriter) examine(f *frame) bool {
	l, p := rw.l, f.jobs[0].put
	// All of a wave have one deadline.
	ctx, cancel := context.WithDeadline(context.Background(), rw.examining())
	defer cancel()
	is, err := l.s.last(ctx, l.name, p.subject)
	switch {
	case errors.Is(err, ErrNotFound): // it has ended just now
		f.msg.Header[server.JSExpectedLastSubjSeq] = []string{"0"}
		return p.expected == None || p.expected == Any
	case err != nil:
		f.err = err
	case p.expected == Any && is.header.Get(headerOp) != f.msg.Header.Get(headerOp):
		f.msg.Header[server.JSExpectedLastSubjSeq] = []string{strconv.FormatUint(is.seq, 10)}
		return true
	case is.header.Get(headerOp) == f.msg.Header.Get(headerOp):
		f.seq, f.err = is.seq, nil
	case p.expected == None && !is.alive(time.Now()):
		f.msg.Header[server.JSExpectedLastSubjSeq] = []string{strconv.FormatUint(is.seq, 10)}
		return true
	}
	return false
}

// examining gives until when the conflicts of this wave may be looked into.
func (rw *recordWriter) examining() time.Time {
	if n := rw.l.number.Load(); n != rw.examined {
		rw.examined, rw.until = n, time.Now().Add(rw.l.s.o.Deadline)
	}
	return rw.until
}

// encodePut makes the engine message of a record. id is unlike any other's; named
// says that it is to be known again in any case.
func (f *frame) encodePut(p *put, id string, named bool) {
	h := make(nats.Header)
	f.msg = &nats.Msg{Subject: p.subject, Header: h, Data: p.body}
	if p.expected != Any {
		h[server.JSExpectedLastSubjSeq] = []string{strconv.FormatUint(uint64(p.expected), 10)}
	}
	if p.expected != Any || named {
		h[headerOp] = []string{id}
	}
	if !p.ends.IsZero() {
		h[headerEnds] = endHeader(p.ends)
	}
	if !p.gone {
		return
	}
	h[headerOperation] = []string{operationPurge}
	h[server.JSMessageTTL] = []string{seconds(markerTTL)}
}
