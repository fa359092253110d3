package session

import (
	"slices"
	"time"
)

// Record is all of a session that outlives the process: what [Session.Snapshot]
// gives, [Record.Append] writes, [ParseRecord] reads and [Restore] takes.
//
// Inbound QoS 2 is not in it: it has small records of its own, one for each
// packet identifier, so that a PUBREC costs no rewriting of this one. See
// [Session.Remember].
type Record struct {
	ClientID     string
	Identity     string
	Expiry       uint32    // seconds; [NeverExpires], or 0: ends with its connection
	Connected    time.Time // of the latest connection; to the millisecond
	Disconnected time.Time // zero: was connected; to the millisecond

	Subscriptions []Subscription // by filter, each once

	// Cursors: everything of a shard up to and with this sequence number is dealt
	// with, except what is unacknowledged.
	Cursors        []uint64
	Unacknowledged []Unacknowledged

	// Done are QoS 2 messages of shared subscriptions, in order: the client has
	// them, whatever the group's place says.
	Done []Shared

	Will *Will
}

// Unacknowledged is a message that is in flight, or that no log keeps. They are
// in the order in which they are to be sent again.
type Unacknowledged struct {
	Ref             Ref
	Topic           string // of a retained message, which has no Ref; else empty
	PacketID        uint16 // 0: a retained message that was not sent yet
	QoS             byte   // 1 or 2
	Released        bool   // QoS 2: PUBREC came
	Retain          bool
	Shared          bool
	Share           string // the filter of that subscription
	SubscriptionIDs []uint32
}

// Needs gives for each shard the sequence number from which on the log is needed
// to restore the session from this record: what is above the cursor, and what
// is in flight and may have to be sent again. While the record is the last one
// that is durable, the log must not be trimmed beyond it. It only ever rises
// from one snapshot to the next.
func (r *Record) Needs() []uint64 {
	needs := make([]uint64, len(r.Cursors))
	for i, seq := range r.Cursors {
		needs[i] = seq + 1
	}
	for _, u := range r.Unacknowledged {
		if u.Ref.Seq != 0 && !u.Released && u.Ref.Shard < len(needs) {
			needs[u.Ref.Shard] = min(needs[u.Ref.Shard], u.Ref.Seq)
		}
	}
	return needs
}

func (s *Session) recordOf(it *item) Unacknowledged {
	u := Unacknowledged{
		Ref:             it.ref(),
		PacketID:        it.id,
		QoS:             it.qos,
		Released:        it.state == released,
		Retain:          it.flags.has(retain),
		Shared:          it.flags.has(shared),
		Share:           s.shareName(it),
		SubscriptionIDs: it.ids,
	}
	if it.seq == 0 && it.msg != nil {
		u.Topic = it.msg.Topic
	}
	return u
}

func (u *Unacknowledged) item() item {
	it := item{ids: u.SubscriptionIDs, seq: u.Ref.Seq, shard: uint16(u.Ref.Shard), id: u.PacketID, qos: u.QoS}
	if u.Retain {
		it.flags |= retain
	}
	if u.Shared {
		it.flags |= shared
	}
	switch {
	case u.Released:
		it.state = released
		return it
	case u.PacketID != 0:
		it.state = sent
	}
	it.flags |= absent
	if u.Ref.Seq == 0 {
		it.msg = &Message{Topic: u.Topic}
	}
	return it
}

// at is the subscription as a record with these cursors has it.
func (b *Subscription) at(cursors []uint64) Subscription {
	r := *b
	r.id = [1]uint32{}
	for i, seq := range r.since {
		if seq > cursors[i] {
			return r
		}
	}
	r.since = nil
	return r
}

// Restore gives the session of a record, which [ParseRecord] found well-formed.
// One that was connected when its server went down counts as disconnected from
// now on (5 §3.1.2.5), so [Session.Due] may have its will at once. The messages
// in flight are missing: the broker attaches them ([Session.Missing]), or they
// come by as it reads the log again, from the cursors on. Until
// [Session.CaughtUp] nothing else of the log may be queued. QoS 2 from the
// client is remembered separately.
func Restore(r Record, l *Limits, now time.Time) *Session {
	s := New(Options{ClientID: r.ClientID, Identity: r.Identity, Limits: l, Tail: r.Cursors})
	s.behind = true
	s.expiry = r.Expiry
	s.connectedAt, s.disconnected = toNanos(r.Connected), toNanos(r.Disconnected)
	s.will = r.Will
	if r.Disconnected.IsZero() {
		s.disconnected = now.UnixNano()
		s.touch(Soon)
	}
	for _, d := range r.Done {
		if s.done == nil {
			s.done = make(map[Shared]struct{})
		}
		s.done[d] = struct{}{}
	}
	for _, b := range r.Subscriptions {
		n := b
		n.id[0] = n.ID
		n.since = slices.Clone(b.since)
		s.subs = append(s.subs, &n)
		s.filterBytes += len(n.Filter)
	}
	for _, u := range r.Unacknowledged {
		it := u.item()
		it.share = s.shareNumber(u.Share)
		s.order++
		it.order = s.order
		if it.id == 0 {
			s.push(it)
			continue
		}
		s.lastID = it.id
		s.flight.put(it)
		s.flightBytes += it.recordBytes()
		s.tally(&it, 1)
	}
	return s
}
