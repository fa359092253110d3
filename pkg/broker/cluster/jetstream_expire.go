package cluster

import (
	"container/heap"
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// expirer ends retained messages at their time.
//
// The engine could do that, and leave a marker for those who watch. But it
// decides under one lock and marks under another: a message that is written anew
// in between is acknowledged, and then removed by the marker (v2.15.3; with
// durability "always" one of some thousand writes that hit the moment). Here the
// removal is a compare-and-swap like any other, and the engine's times to live
// only clear away the markers. It also means that what ended while the store was
// closed ends, visibly, when it is open again.
type expirer struct {
	s      *JetStream
	lane   *lane
	stream jetstream.Stream

	mu        sync.Mutex
	bySubject map[string]*ending
	next      endings
	wake      chan struct{} // the next one is another
}

// ending is when a subject's last message ends.
type ending struct {
	at      time.Time
	subject string
	seq     uint64
	index   int // in the heap; -1 if it is not there
}

// expireAgain is when to try again what the store could not do, or what another
// node was to do.
const expireAgain = time.Second

func newExpirer(s *JetStream, l *lane, stream jetstream.Stream) *expirer {
	return &expirer{s: s, lane: l, stream: stream, bySubject: make(map[string]*ending), wake: make(chan struct{}, 1)}
}

// run works until ctx ends.
func (e *expirer) run(ctx context.Context) {
	var watching sync.WaitGroup
	watching.Go(func() {
		err := e.s.follow(ctx, e.stream, followOptions{from: 1, headersOnly: true}, e.see)
		if err != nil && ctx.Err() == nil {
			e.s.o.Log.Error("retained messages are not ended any more", "err", err)
		}
	})
	defer watching.Wait()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, wait := e.due(time.Now())
		for _, d := range due {
			if e.mine() {
				e.end(d)
			} else {
				e.later(d)
			}
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-e.wake:
		case <-ctx.Done():
			return
		}
	}
}

// see takes what is written to the stream.
func (e *expirer) see(m *stored) error {
	at, mortal := endOf(m.header)
	e.mu.Lock()
	defer e.mu.Unlock()
	d := e.bySubject[m.subject]
	switch {
	case d == nil && !mortal:
	case d == nil:
		d = &ending{at: at, subject: m.subject, seq: m.seq}
		e.bySubject[m.subject] = d
		heap.Push(&e.next, d)
		e.first(d)
	case !mortal:
		e.forget(d)
	default:
		d.at, d.seq = at, m.seq
		if d.index < 0 {
			heap.Push(&e.next, d)
		} else {
			heap.Fix(&e.next, d.index)
		}
		e.first(d)
	}
	return nil
}

func (e *expirer) first(d *ending) {
	if d.index == 0 {
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
}

func (e *expirer) forget(d *ending) {
	if d.index >= 0 {
		heap.Remove(&e.next, d.index)
	}
	delete(e.bySubject, d.subject)
}

// due takes what has to end now out of the heap, and says how long the next one
// has.
func (e *expirer) due(now time.Time) (due []ending, wait time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.next) > 0 {
		d := e.next[0]
		if wait := d.at.Sub(now); wait > 0 {
			return due, wait
		}
		heap.Pop(&e.next)
		due = append(due, *d)
	}
	return due, time.Hour
}

// end removes what has ended, unless it was written anew.
func (e *expirer) end(d ending) {
	e.s.submit(e.lane, &job{
		bytes: len(d.subject),
		put:   &put{subject: d.subject, gone: true, expected: Revision(d.seq), yields: true},
		set: func(_ Revision, err error) {
			if err == nil || errors.Is(err, ErrConflict) || errors.Is(err, ErrClosed) {
				return
			}
			e.later(d)
		},
	})
}

// mine says whether it is this node's turn to end what is due. Any may do it, but
// one is enough: the one that leads the stream.
func (e *expirer) mine() bool {
	return !e.s.clustered() || e.s.engine.server.JetStreamIsStreamLeader(account, e.lane.name)
}

// later looks again at what is due, if it is still there then.
func (e *expirer) later(d ending) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if is := e.bySubject[d.subject]; is != nil && is.seq == d.seq && is.index < 0 {
		is.at = time.Now().Add(expireAgain)
		heap.Push(&e.next, is)
		e.first(is)
	}
}

// headerEnds is when a retained message ends, in milliseconds since 1970.
const headerEnds = "Mq-Ends"

func endHeader(at time.Time) []string { return []string{strconv.FormatInt(at.UnixMilli(), 10)} }

// endOf gives when the message ends that has these headers, and whether it does.
func endOf(h nats.Header) (at time.Time, mortal bool) {
	v := h[headerEnds]
	if len(v) == 0 {
		return time.Time{}, false
	}
	ms, err := strconv.ParseInt(v[0], 10, 64)
	return time.UnixMilli(ms), err == nil
}

// endings is a heap, the next one first.
type endings []*ending

func (h endings) Len() int           { return len(h) }
func (h endings) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h endings) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *endings) Push(x any) {
	d := x.(*ending)
	d.index = len(*h)
	*h = append(*h, d)
}

func (h *endings) Pop() any {
	old := *h
	d := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	d.index = -1
	return d
}
