package cluster

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// writeAgain writes a message of the log that may be stored and may be not, since
// the connection was lost. It does so on the condition that the stream has got
// none but those known; if it has, the message is looked for among them. (It
// would be easier to give each message an id. The engine keeps ids for the dedup
// window, at some 130 bytes each: more memory than a busy log may cost.)
func (l *lane) writeAgain(f *frame, timer *time.Timer) bool {
	for !f.answered {
		a, ok := l.ask(f, timer)
		switch {
		case !ok:
			l.fail([]*frame{f})
			return false
		case errors.Is(a.err, ErrConflict):
			l.search(f)
		default:
			f.answered, f.seq, f.err = true, a.seq, a.err
			l.last = max(l.last, a.seq)
		}
	}
	l.finish(f)
	return true
}

// ask sends a message on that condition, until it is answered or the time is
// up.
func (l *lane) ask(f *frame, timer *time.Timer) (a answer, ok bool) {
	wave := l.number.Add(1)
	f.msg.Reply = l.reply(wave, 0)
	f.msg.Header[server.JSExpectedLastSeq] = []string{strconv.FormatUint(l.last, 10)}
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-again.C:
			if err := l.s.engine.write.PublishMsg(f.msg); err != nil {
				again.Reset(retryPause)
			}
		case <-l.reconnected:
			again.Reset(0)
		case a := <-l.answers:
			switch {
			case a.wave != wave:
			case errors.Is(a.err, errRetry):
				again.Reset(retryPause)
			default:
				return a, true
			}
		case <-timer.C:
			return answer{}, false
		}
	}
}

// search looks for a message among what the stream has got since the last known
// sequence number. What it can't find out now, it will when it is called again.
func (l *lane) search(f *frame) {
	ctx, cancel := context.WithTimeout(context.Background(), l.s.o.Deadline)
	defer cancel()
	info, err := l.stream.Info(ctx)
	if err != nil {
		return
	}
	for l.last < info.State.LastSeq {
		m, err := l.s.next(ctx, l.name, l.subject, l.last+1)
		if errors.Is(err, ErrNotFound) { // trimmed
			l.last = info.State.LastSeq
			return
		}
		if err != nil {
			return
		}
		if m.header.Get(headerOp) == f.msg.Header.Get(headerOp) {
			f.answered, f.seq = true, m.seq
		}
		l.last = m.seq
	}
}
