package broker

import (
	"encoding/binary"
	"maps"
	"slices"
	"sync"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
)

// sharesKey is the record of the place of shared subscriptions, among the
// sessions'. Theirs are in capital letters.
const sharesKey = "shares"

// shares is how far shared subscriptions are. What they give to a member does
// not hold that session's place in the log, for it may go on to another member.
// So there is one place for all of them: up to it, every message was given out,
// and its member, or the member's record, has it. After a restart what is behind
// is given out again, but for what records say is in flight. So a crash may
// repeat what was acknowledged within the last checkpoint's time, of QoS 2 as
// well.
type shares struct {
	from   []uint64                 // what the record said at the start
	flying map[session.Ref]struct{} // in flight in sessions then

	mu      sync.Mutex
	durable []uint64 // what the record says; nil: there is none
	writing bool
	passing int                  // messages between two members
	holders map[*client]struct{} // those with client.shared
}

// done says that a message of the log was given out before the start.
func (s *shares) done(r session.Ref) bool {
	if r.Seq == 0 {
		return false
	}
	if r.Shard < len(s.from) && r.Seq <= s.from[r.Shard] {
		return true
	}
	_, flies := s.flying[r]
	return flies
}

// remember takes what a session has in flight, while it is loaded.
func (s *shares) remember(r *session.Record) {
	for _, u := range r.Unacknowledged {
		if u.Shared && u.Ref.Seq != 0 {
			if s.flying == nil {
				s.flying = make(map[session.Ref]struct{})
			}
			s.flying[u.Ref] = struct{}{}
		}
	}
}

// needs gives for each shard where the log has to begin for the record.
func (s *shares) needs(tail []uint64) []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := make([]uint64, len(tail))
	for shard := range first {
		first[shard] = tail[shard] + 1
		if shard < len(s.durable) {
			first[shard] = min(first[shard], s.durable[shard]+1)
		}
	}
	return first
}

// holdShared notes that the session is about to get a shared message; cl.mu is
// held.
func (cl *client) holdShared(r session.Ref) {
	if cl.shared == nil {
		cl.shared = make([]uint64, len(cl.b.shards))
		s := &cl.b.shares
		s.mu.Lock()
		if s.holders == nil {
			s.holders = make(map[*client]struct{})
		}
		s.holders[cl] = struct{}{}
		s.mu.Unlock()
	}
	if at := &cl.shared[r.Shard]; *at == 0 || r.Seq < *at {
		*at = r.Seq
	}
}

// pass counts messages that are on their way from one member to another.
func (s *shares) pass(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passing += by
}

// sharedPlace gives for each shard the first message that the session, but not
// its record, has; 0 for none. cl.mu is held.
func (cl *client) sharedPlace() []uint64 {
	if cl.ses != nil {
		n, _ := cl.ses.Queued()
		saved := !cl.record.writing && !cl.record.unsure && cl.ses.Checkpoint() == session.Saved
		if n > 0 || cl.ses.Persistent() && !saved || !cl.ses.Persistent() && cl.ses.InFlight() > 0 {
			return cl.shared
		}
	}
	cl.shared = nil
	s := &cl.b.shares
	s.mu.Lock()
	delete(s.holders, cl)
	s.mu.Unlock()
	return nil
}

// saveShares writes the place of shared subscriptions if it has changed; while
// nobody holds anything it is the tail.
func (b *Broker) saveShares() {
	s := &b.shares
	place := b.tail() // before the sessions are looked at
	s.mu.Lock()
	skip := s.writing || s.passing > 0 || slices.Equal(place, s.durable)
	holders := slices.Collect(maps.Keys(s.holders))
	s.mu.Unlock()
	if skip {
		return
	}
	for _, cl := range holders {
		cl.mu.Lock()
		for shard, seq := range cl.sharedPlace() {
			if seq != 0 {
				place[shard] = min(place[shard], seq-1)
			}
		}
		cl.mu.Unlock()
	}
	var value []byte
	for _, seq := range place {
		value = binary.AppendUvarint(value, seq)
	}
	s.mu.Lock()
	if skip = s.passing > 0 || slices.Equal(place, s.durable); !skip {
		s.writing = true
	}
	s.mu.Unlock()
	if skip {
		return
	}
	b.writes.Add(1)
	b.store.Records(cluster.Sessions).Put(sharesKey, value, cluster.Any, 0, func(_ cluster.Revision, err error) {
		defer b.writes.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.writing = false
		if err == nil {
			s.durable = place
		}
	})
}

// load reads the record.
func (s *shares) load(value []byte) {
	for len(value) > 0 {
		seq, n := binary.Uvarint(value)
		if n <= 0 {
			return
		}
		s.durable = append(s.durable, seq)
		value = value[n:]
	}
	s.from = slices.Clone(s.durable)
}
