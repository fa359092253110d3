package broker

import (
	"sync"
	"sync/atomic"
	"time"
)

// shard is this node's place in one shard of the log.
type shard struct {
	begun atomic.Uint64 // the last message whose subscribers were looked for
	dealt atomic.Uint64 // the last message that was fanned out

	mu      sync.Mutex
	waiting []waiting // for their message to be fanned out, in the order of the log
}

// waiting is an answer to a publisher that is held until this node's sessions
// have its message.
type waiting struct {
	seq     uint64
	expires time.Time // when the message may have left the log unseen
	answer  func()
}

// whenDealt calls answer once this node has fanned out a message that the store
// has confirmed. A publisher that has its PUBACK can rely on it: who subscribes
// from then on gets what is retained, and not the same message again from the
// log. It also slows publishers down to the pace at which this node distributes.
func (s *shard) whenDealt(seq uint64, expires time.Time, answer func()) {
	s.mu.Lock()
	if seq > s.dealt.Load() && !expired(expires, time.Now()) {
		s.waiting = append(s.waiting, waiting{seq, expires, answer})
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	answer()
}

// deal notes that a message was fanned out, and gives the answers that waited
// for it.
func (s *shard) deal(seq uint64) {
	s.mu.Lock()
	s.dealt.Store(seq)
	n := 0
	for n < len(s.waiting) && s.waiting[n].seq <= seq {
		n++
	}
	due := s.waiting[:n:n]
	s.waiting = s.waiting[n:]
	s.mu.Unlock()
	for _, w := range due {
		w.answer()
	}
}

// lag is how many messages were stored by this node and are not fanned out yet:
// those whose answers wait. One that was stored again, under the same name, counts
// once.
func (s *shard) lag() (messages int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := uint64(0)
	for _, w := range s.waiting {
		if w.seq > last {
			messages++
			last = w.seq
		}
	}
	return messages
}

// sweep gives the answers for messages that have expired meanwhile: those may
// have left the log unseen.
func (s *shard) sweep() {
	now := time.Now()
	var due []waiting
	s.mu.Lock()
	kept := s.waiting[:0:0]
	for _, w := range s.waiting {
		if expired(w.expires, now) {
			due = append(due, w)
		} else {
			kept = append(kept, w)
		}
	}
	if len(due) > 0 {
		s.waiting = kept
	}
	s.mu.Unlock()
	for _, w := range due {
		w.answer()
	}
}

func expired(t, now time.Time) bool { return !t.IsZero() && !now.Before(t) }
