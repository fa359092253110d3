package cluster

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// logWriter writes a shard of the log: each wave is one message of the engine, a
// pack. Not several, since if one were lost with the connection and the next one
// not, the order would be; and not an atomic batch, since the engine lets
// readers have that before it has synced it, and a session's place in the log
// must not be ahead of the disk.
//
// Nobody else writes to this node's subject. So after a lost connection or a
// missing answer, a pack is written on the condition that the subject has no
// message but those known, until it is clear what it has. In a cluster each pack
// is: what a node has kept while it was stopped may come late.
type logWriter struct {
	l      *lane
	log    *shardLog
	last   uint64 // the subject's last sequence number, as far as is known
	unsure bool   // there may be more

	ids map[string]*job // of the wave that gathers, by DedupID
}

const (
	headerOp = "Mq-Op" // names a write, to know it again
	// headerIDs says that the pack has messages with a DedupID.
	headerIDs = "Mq-Ids"
)

func (lw *logWriter) add(w *wave, j *job) bool {
	if len(w.frames) > 0 {
		f := w.frames[0]
		if len(f.jobs) == maxPack || f.bytes+j.bytes > packBytes {
			return false
		}
		f.jobs = append(f.jobs, j)
		f.bytes += j.bytes
	} else {
		w.begin(j)
		clear(lw.ids)
	}
	if id := j.message.DedupID; id != "" {
		j.known, _ = lw.log.known.get(id, time.Now())
		if j.twin = lw.ids[id]; j.twin == nil {
			lw.ids[id] = j
		}
	}
	return true
}

func (lw *logWriter) write(w *wave, timer *time.Timer) bool {
	f, l := w.frames[0], lw.l
	id := l.writeID(0)
	for f.encodePack(lw.log.subject, id, time.Now()) {
		a, ok := lw.ask(f, timer)
		switch {
		case !ok:
			lw.unsure = true
			l.fail(w.frames)
			return false
		case errors.Is(a.err, ErrConflict):
			if lw.search(f) {
				lw.finish(f)
				return true
			}
			continue // without what is known by now
		case a.err == nil:
			lw.unsure = false
			lw.last = a.seq
		}
		f.seq, f.err = a.seq, a.err
		lw.finish(f)
		return true
	}
	lw.finish(f)
	return true
}

// ask sends a pack until it is answered or the time is up. It asks again when
// the connection was lost, or the engine was not ready.
func (lw *logWriter) ask(f *frame, timer *time.Timer) (a answer, ok bool) {
	l := lw.l
	wave := l.number.Add(1)
	f.msg.Reply = l.reply(wave, 0)
	var again <-chan time.Time
	busy := busyPause
	send := func() {
		if lw.unsure || l.s.clustered() {
			f.msg.Header[server.JSExpectedLastSubjSeq] = []string{strconv.FormatUint(lw.last, 10)}
		}
		again = l.silence()
		if err := l.s.engine.write.PublishMsg(f.msg); err != nil {
			again = time.After(retryPause)
		}
	}
	send()
	for {
		select {
		case <-again:
			send()
		case <-l.reconnected:
			lw.unsure = true
			send()
		case a := <-l.answers:
			switch {
			case a.wave != wave:
			case errors.Is(a.err, errBusy): // with this pack, or it has not forgotten the last one yet
				again = time.After(busy)
				busy = min(2*busy, silencePause)
			case errors.Is(a.err, errRetry):
				again = time.After(retryPause)
			default:
				return a, true
			}
		case <-timer.C:
			if l.overdue(timer) {
				return answer{}, false
			}
		}
	}
}

// search reads what the stream has got from this node behind the last known
// message, and says whether f is among it; if not, some of its messages may be.
// What it can't find out now, it will when it is called again.
func (lw *logWriter) search(f *frame) (found bool) {
	s, l := lw.l.s, lw.log
	ctx, cancel := context.WithTimeout(context.Background(), s.o.Deadline)
	defer cancel()
	last, err := l.written(ctx)
	if err != nil {
		return false
	}
	if last < lw.last { // what was last is trimmed
		lw.last = last
	}
	for lw.last < last {
		m, err := s.next(ctx, l.name, l.subject, lw.last+1)
		if errors.Is(err, ErrNotFound) { // trimmed
			lw.last = last
			break
		}
		if err != nil {
			return false
		}
		if m.header.Get(headerOp) == f.msg.Header.Get(headerOp) {
			found, f.seq = true, m.seq
		}
		if pack, err := parsePack(m.data, m.taken); err == nil {
			l.known.addPack(m.seq, pack)
		}
		lw.last = m.seq
	}
	for _, j := range f.jobs {
		if !found && j.message.DedupID != "" {
			j.known, _ = lw.log.known.get(j.message.DedupID, time.Now())
		}
	}
	return found
}

func (lw *logWriter) finish(f *frame) {
	if f.err == nil {
		now := time.Now()
		for _, j := range f.jobs {
			if j.packed() {
				lw.log.known.add(j.message.DedupID, seqOf(f.seq, j.entry), now)
			}
		}
	}
	lw.l.finish(f)
}

// encodePack makes the engine message of a pack; id is unlike any other's. It
// says false if there is nothing to write.
func (f *frame) encodePack(subject, id string, now time.Time) bool {
	n := 0
	for _, j := range f.jobs {
		if j.packed() {
			j.entry = n
			n++
		}
	}
	if n == 0 {
		return false
	}
	f.msg = &nats.Msg{Subject: subject, Header: nats.Header{headerOp: {id}}}
	f.msg.Data = appendPackHeader(make([]byte, 0, 8+f.bytes), n)
	var ends time.Time // of the one that lives longest
	mortal := true
	for _, j := range f.jobs {
		if !j.packed() {
			continue
		}
		m := j.message
		f.msg.Data = appendMessage(f.msg.Data, m)
		mortal = mortal && !m.Expires.IsZero()
		if m.Expires.After(ends) {
			ends = m.Expires
		}
		if m.DedupID != "" {
			f.msg.Header[headerIDs] = []string{"1"}
		}
	}
	if mortal {
		f.msg.Header[server.JSMessageTTL] = []string{seconds(ends.Sub(now))}
	}
	return true
}

// packed says whether a job is an entry of its pack.
func (j *job) packed() bool { return j.known == 0 && j.twin == nil }

// seconds is a time to live for the engine: whole seconds, one at least.
func seconds(d time.Duration) string {
	s := max(1, math.Ceil(d.Seconds()))
	return strconv.FormatInt(int64(s), 10)
}
