package cluster

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// lane writes to one stream. While one wave of writes is under way the next one
// gathers; so with durability "always" all that come during a sync share the
// next one. What a wave is, and how it is written, is up to the writer: one for
// the log, one for records.
type lane struct {
	s      *JetStream
	what   string // for Observe
	name   string // of the stream
	writer writer
	gate   *gate
	queue  *jobQueue
	id     string // begins the names of its writes, at this start and no other
	inbox  string // answers come to inbox.<wave>.<frame>
	sub    *nats.Subscription

	number      atomic.Uint64 // of the current wave
	answers     chan answer
	reconnected chan struct{}
	forget      func()    // ends telling reconnected
	begun       time.Time // of the current wave
	stopped     chan struct{}
}

// writer is a lane's way to write. It is used by the lane's goroutine only.
type writer interface {
	// add takes a job into the wave, if there is room for it.
	add(w *wave, j *job) bool
	// write writes a wave and finishes its frames. It says false if the engine had
	// not answered everything when the timer fired.
	write(w *wave, timer *time.Timer) bool
}

// wave is what a lane writes together.
type wave struct {
	frames  []*frame
	bytes   int
	refused []*frame  // jobs that are not tried
	began   time.Time // the first call
}

// frame is one engine message and those who wait for it.
type frame struct {
	number int // in its wave
	jobs   []*job
	bytes  int
	msg    *nats.Msg

	answered bool
	seq      uint64 // of the engine
	err      error
}

// begin begins a frame.
func (w *wave) begin(j *job) {
	w.frames = append(w.frames, &frame{number: len(w.frames), jobs: []*job{j}, bytes: j.bytes})
}

func (w *wave) refuse(j *job, err error) {
	w.refused = append(w.refused, &frame{jobs: []*job{j}, bytes: j.bytes, err: err})
}

const (
	// retryPause is how long to wait when the engine asks for another try.
	retryPause = 20 * time.Millisecond
	// busyPause is the like when the engine is busy with the same subject. It
	// forgets a write a moment after it has answered.
	busyPause = time.Millisecond / 2
	// silencePause is when to ask again in a cluster: the node that was to answer
	// may be no more.
	silencePause = time.Second / 2
)

// ElectionPatience is how long a write may wait in a cluster that has a quorum.
// The engine elects another leader within 4 to 10 s.
const ElectionPatience = 15 * time.Second

// maxAnswers is how many answers can wait for their lane.
const maxAnswers = 2 * waveFrames

func newLane(s *JetStream, what, stream string) (*lane, error) {
	l := &lane{
		s: s, what: what, name: stream,
		gate:        newGate(s.o.MaxPending, s.o.MaxPendingBytes),
		queue:       newJobQueue(),
		id:          rand.Text()[:12],
		inbox:       nats.NewInbox(),
		answers:     make(chan answer, maxAnswers),
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
	return l, nil
}

// start lets a lane write.
func (l *lane) start(w writer) {
	l.writer = w
	l.s.lanes = append(l.s.lanes, l)
	go l.run()
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
		if !l.queue.take(func(j *job) bool { return l.add(&w, j, silent) }) {
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
		silent = !l.write(&w, begin.Add(l.s.o.Deadline))
	}
}

// add takes a job into the wave, if there is room for it.
func (l *lane) add(w *wave, j *job, silent bool) bool {
	switch {
	case silent && time.Since(j.began) > l.s.o.Deadline:
		w.refuse(j, ErrUnavailable)
		return true
	case j.adds() && l.s.disk.isFull():
		w.refuse(j, errDiskFull)
		return true
	case !l.writer.add(w, j):
		return false
	}
	if w.began.IsZero() {
		w.began = j.began
	}
	w.bytes += j.bytes
	return true
}

func (l *lane) write(w *wave, expires time.Time) bool {
	select {
	case <-l.reconnected: // of before
	default:
	}
	l.begun = expires.Add(-l.s.o.Deadline)
	timer := time.NewTimer(time.Until(expires))
	defer timer.Stop()
	return l.writer.write(w, timer)
}

// overdue says whether a wave has failed whose timer has fired. It has not while
// there is hope; then the timer fires again.
func (l *lane) overdue(timer *time.Timer) bool {
	if !l.s.patient(l.begun) {
		return true
	}
	timer.Reset(retryPause)
	return false
}

// silence fires when it is time to ask again, in a cluster.
func (l *lane) silence() <-chan time.Time {
	if !l.s.clustered() {
		return nil
	}
	return time.After(silencePause)
}

// writeID names a write like no other.
func (l *lane) writeID(frame int) string {
	return l.id + strconv.FormatUint(l.number.Load(), 36) + "." + strconv.Itoa(frame)
}

func (l *lane) reply(wave uint64, frame int) string {
	return l.inbox + "." + strconv.FormatUint(wave, 10) + "." + strconv.Itoa(frame)
}

// finish tells those who wait for a frame.
func (l *lane) finish(f *frame) {
	l.s.o.Observe(Write{
		What: l.what, Messages: len(f.jobs), Bytes: f.bytes,
		Took: time.Since(f.jobs[0].began), Err: f.err,
	})
	for _, j := range f.jobs {
		j.done(f.seq, f.err)
		l.gate.leave(j.bytes)
	}
}

// fail ends frames whose answer has not come in time.
func (l *lane) fail(frames []*frame) {
	l.s.o.Log.Error("the store's engine does not answer", "stream", l.name, "after", time.Since(l.begun).Round(time.Millisecond))
	for _, f := range frames {
		if !f.answered {
			f.err = fmt.Errorf("%w: no answer within %v", ErrUnavailable, time.Since(l.begun).Round(time.Millisecond))
		}
		l.finish(f)
	}
}
