package cluster

import (
	"sync"
	"time"
)

// job is one write that a caller waits for: a message for the log, or a put for
// a subject.
type job struct {
	began   time.Time // of the call
	bytes   int
	invalid error // why it can't be tried

	message  *Message
	appended func(Pos, error)
	shard    int

	// What of the log was written before, as its DedupID says, has a known place.
	// Of those that are written together the later is the twin of the first. All
	// others are entries of a pack.
	known uint64
	twin  *job
	entry int

	put *put
	set func(Revision, error)
}

// adds says whether the job needs room on the disk. A deletion does, too, but
// it makes more.
func (j *job) adds() bool { return j.put == nil || !j.put.gone }

// put replaces what a subject has.
type put struct {
	subject  string
	body     []byte
	ends     time.Time // zero is never
	gone     bool      // there is no body, but the mark of an end
	expected Revision
	yields   bool // a conflict is its end: nobody has to know with what
}

// done tells the caller; seq is the engine's number of what was written.
func (j *job) done(seq uint64, err error) {
	switch {
	case j.set != nil && err != nil:
		j.set(None, err)
	case j.set != nil:
		j.set(Revision(seq), nil)
	case j.known != 0:
		j.appended(Pos{j.shard, j.known}, nil)
	case err != nil:
		j.appended(Pos{}, err)
	case j.twin != nil:
		j.appended(Pos{j.shard, seqOf(seq, j.twin.entry)}, nil)
	default:
		j.appended(Pos{j.shard, seqOf(seq, j.entry)}, nil)
	}
}

// jobQueue holds what waits for its lane. The gate bounds it.
type jobQueue struct {
	mu     sync.Mutex
	jobs   []*job
	closed bool
	wake   chan struct{}
}

func newJobQueue() *jobQueue { return &jobQueue{wake: make(chan struct{}, 1)} }

func (q *jobQueue) put(j *job) {
	q.mu.Lock()
	q.jobs = append(q.jobs, j)
	q.mu.Unlock()
	q.signal()
}

func (q *jobQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.signal()
}

func (q *jobQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take waits for jobs and offers them, in order, until one is not accepted; that
// one and all behind it stay. It says false when the queue is closed and empty.
func (q *jobQueue) take(accept func(*job) bool) bool {
	for {
		q.mu.Lock()
		n := 0
		for n < len(q.jobs) && accept(q.jobs[n]) {
			n++
		}
		rest := copy(q.jobs, q.jobs[n:])
		clear(q.jobs[rest:])
		q.jobs = q.jobs[:rest]
		closed := q.closed
		q.mu.Unlock()
		if n > 0 || closed {
			return n > 0
		}
		<-q.wake
	}
}
