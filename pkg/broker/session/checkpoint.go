package session

import "slices"

// Urgency says how soon the session's record has to be written.
type Urgency int

const (
	// Saved: the last snapshot has all that matters.
	Saved Urgency = iota
	// Soon: within a few seconds, and when the connection ends. Lost in a crash,
	// QoS 1 messages are repeated.
	Soon
	// First: before anything is sent that the session gave since the last
	// snapshot.
	First
)

// Checkpoint says whether the record has to be written, and how soon:
//
//	before CONNACK                                      First
//	before SUBACK, UNSUBACK                             First
//	before PUBLISH with QoS 2: its packet identifier    First
//	before PUBREL: that PUBREC came                     First
//	before a will is published: that it is gone         First
//	PUBLISH with QoS 1, PUBACK, PUBCOMP, drops          Soon
//	retained messages queued, which no log keeps        Soon
//	the end of the connection                           Soon
//
// Subscriptions and messages of a session that ends with its connection never
// need to be written.
func (s *Session) Checkpoint() Urgency { return s.unsaved }

// Touch makes Checkpoint say at least u; for a snapshot that could not be
// written.
func (s *Session) Touch(u Urgency) { s.touch(u) }

func (s *Session) touch(u Urgency) { s.unsaved = max(s.unsaved, u) }

// changed is touch for what matters only if the session outlives its connection.
func (s *Session) changed(u Urgency) {
	if s.Persistent() {
		s.touch(u)
	}
}

// Snapshot gives the record of the session as it is, and lets Checkpoint start
// anew. tail is the last sequence number of each shard that this node has dealt
// with: what of them matched this session has been queued. It counts for nothing
// from [Restore] to [Session.CaughtUp]. Snapshots have to be written in their
// order.
func (s *Session) Snapshot(tail []uint64) Record {
	s.unsaved = Saved
	r := Record{
		ClientID:     s.clientID,
		Identity:     s.identity,
		Expiry:       s.expiry,
		Connected:    fromNanos(s.connectedAt),
		Disconnected: fromNanos(s.disconnected),
		Cursors:      s.Cursors(tail),
		Will:         s.will,
		Done:         s.Done(),
	}
	for _, b := range s.subs {
		r.Subscriptions = append(r.Subscriptions, b.at(r.Cursors))
	}
	for _, id := range s.flight.sorted() {
		r.Unacknowledged = append(r.Unacknowledged, s.recordOf(s.flight.find(id)))
	}
	for i, room := 0, s.roomForWaiting(); i < s.queued.n; i++ {
		it := s.queued.at(i)
		if it.seq != 0 || it.state == gone {
			continue
		}
		if room -= it.recordBytes(); room < 0 && s.limits.Record > 0 {
			break
		}
		r.Unacknowledged = append(r.Unacknowledged, s.recordOf(it))
	}
	return r
}

// Cursors gives for each shard the sequence number up to which the session has
// dealt with everything, but for what is in flight. Not a bound for trimming the
// log: that is [Record.Needs] of a record that is durable.
func (s *Session) Cursors(tail []uint64) []uint64 {
	c := make([]uint64, max(len(tail), len(s.shards)))
	if !s.behind {
		copy(c, tail)
	}
	held := 0
	for i, sh := range s.shards {
		c[i] = max(c[i], sh.dealt)
		if sh.held > 0 {
			held++
		}
	}
	for i := 0; held > 0; i++ {
		// The first of a shard in the queue is its lowest, and all that follow
		// are above the cursor that it leaves.
		if it := s.queued.at(i); it.holds() && it.seq <= c[it.shard] {
			c[it.shard] = it.seq - 1
			held--
		}
	}
	return c
}

// CaughtUp says that a restored session has been given what the log has for it,
// from its record's cursors to the place where this node reads on.
func (s *Session) CaughtUp() { s.behind = false }

// lags says that the cursor of some shard is behind what this node has dealt
// with.
func (s *Session) lags() bool {
	return s.behind || slices.ContainsFunc(s.shards, func(sh shard) bool { return sh.held > 0 })
}
