package cluster

import (
	"math"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// A wave of records has at most so many engine messages and, if it has several,
// bytes.
const (
	waveFrames = 512
	waveBytes  = 512 << 10
)

// wave is what a lane writes together: one message of the engine for the log, or
// any number of records.
type wave struct {
	frames   []*frame
	bytes    int
	subjects map[string]struct{} // that are put to
	refused  []*frame            // jobs that are not tried
	began    time.Time           // the first call
}

// frame is one engine message and those who wait for it.
type frame struct {
	jobs  []*job
	bytes int
	msg   *nats.Msg

	answered bool
	seq      uint64
	err      error
}

// add takes a job into the wave, if there is room for it. What began before
// tooLate is refused, and, if the disk is full, all but deletions.
func (w *wave) add(j *job, tooLate time.Time, full bool) bool {
	switch {
	case len(w.frames)+len(w.refused) > 0 && w.bytes+j.bytes > waveBytes:
		return false
	case j.began.Before(tooLate):
		w.refuse(j, ErrUnavailable)
		return true
	case full && (j.put == nil || j.put.gone == Kept):
		w.refuse(j, errDiskFull)
		return true
	case w.pack(j):
	case len(w.frames) == waveFrames || !w.mayBegin(j):
		return false
	default:
		w.frames = append(w.frames, &frame{jobs: []*job{j}, bytes: j.bytes})
	}
	if w.began.IsZero() {
		w.began = j.began
	}
	w.bytes += j.bytes
	return true
}

func (w *wave) refuse(j *job, err error) {
	w.refused = append(w.refused, &frame{jobs: []*job{j}, bytes: j.bytes, err: err})
}

// pack adds a message of the log to the frame that there is. One with a name by
// which the engine knows it again stays alone.
func (w *wave) pack(j *job) bool {
	if j.message == nil || j.message.DedupID != "" || len(w.frames) == 0 {
		return false
	}
	f := w.frames[0]
	if f.jobs[0].message.DedupID != "" || len(f.jobs) == maxPack || f.bytes+j.bytes > packBytes {
		return false
	}
	f.jobs = append(f.jobs, j)
	f.bytes += j.bytes
	return true
}

// mayBegin says whether the wave takes another frame, for that job. The log's
// next message waits: if one were lost with the connection and the next one not,
// the order would be. So does a second put to a subject, since its outcome may
// depend on the first.
func (w *wave) mayBegin(j *job) bool {
	if j.put == nil {
		return len(w.frames) == 0
	}
	if _, ok := w.subjects[j.put.subject]; ok {
		return false
	}
	if w.subjects == nil {
		w.subjects = make(map[string]struct{})
	}
	w.subjects[j.put.subject] = struct{}{}
	return true
}

const (
	headerOp        = "Mq-Op" // names a write, to know it again
	headerOperation = "KV-Operation"
	operationPurge  = "PURGE"
	headerReason    = "Mq-Gone"
	reasonExpired   = "expired"
)

// encode makes the engine message of a frame. id is unlike any other frame's.
func (f *frame) encode(subject, id string, now time.Time) {
	f.msg = &nats.Msg{Subject: subject, Header: make(nats.Header)}
	if p := f.jobs[0].put; p != nil {
		f.encodePut(p, id)
		return
	}
	f.msg.Header[headerOp] = []string{id}
	if dedup := f.jobs[0].message.DedupID; dedup != "" {
		f.msg.Header[server.JSMsgId] = []string{dedup}
	}
	f.msg.Data = appendPackHeader(make([]byte, 0, 8+f.bytes), len(f.jobs))
	ends := time.Time{} // of the one that lives longest
	for i, j := range f.jobs {
		f.msg.Data = appendMessage(f.msg.Data, j.message)
		if e := j.message.Expires; i == 0 || e.IsZero() || !ends.IsZero() && e.After(ends) {
			ends = e
		}
	}
	if !ends.IsZero() {
		f.msg.Header[server.JSMessageTTL] = []string{seconds(ends.Sub(now))}
	}
}

func (f *frame) encodePut(p *put, id string) {
	h := f.msg.Header
	f.msg.Subject, f.msg.Data = p.subject, p.body
	if p.expected != Any {
		h[server.JSExpectedLastSubjSeq] = []string{strconv.FormatUint(uint64(p.expected), 10)}
		h[headerOp] = []string{id}
	}
	if !p.ends.IsZero() {
		h[headerEnds] = endHeader(p.ends)
	}
	if p.gone == Kept {
		return
	}
	h[headerOperation] = []string{operationPurge}
	if p.gone == Expired {
		h[headerReason] = []string{reasonExpired}
	}
	h[server.JSMessageTTL] = []string{seconds(markerTTL)}
}

// seconds is a time to live for the engine: whole seconds, one at least.
func seconds(d time.Duration) string {
	s := max(1, math.Ceil(d.Seconds()))
	return strconv.FormatInt(int64(s), 10)
}
