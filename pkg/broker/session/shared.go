package session

import (
	"cmp"
	"slices"
)

// What shared subscriptions give to a session stays the group's business until
// the client has it: whoever keeps the group's place has to know how it ended.

// Shared names a message that a shared subscription gave to a session: one
// session may have the same message of several.
type Shared struct {
	Share string // the filter as in SUBSCRIBE, with $share
	Ref   Ref
}

func (a Shared) compare(b Shared) int {
	return cmp.Or(cmp.Compare(a.Share, b.Share), cmp.Compare(a.Ref.Shard, b.Ref.Shard), cmp.Compare(a.Ref.Seq, b.Ref.Seq))
}

// Holding is a shared message that the session has.
type Holding struct {
	Shared
	QoS  byte
	Sent bool // to the client, so it is this session's to finish
}

// Subscription gives the one with exactly this filter; nil if there is none.
func (s *Session) Subscription(filter string) *Subscription {
	if i, found := s.search(filter); found {
		return s.subs[i]
	}
	return nil
}

// TakeSettled gives the shared messages that have ended here since the last call:
// the client has them, or they were dropped.
func (s *Session) TakeSettled() []Shared {
	settled := s.settled
	s.settled = nil
	return settled
}

// Holdings gives the shared messages that the session has, but for QoS 0.
func (s *Session) Holdings() (all []Holding) {
	s.flight.each(func(it *item) {
		if it.isShared() {
			all = append(all, Holding{s.sharedOf(it), it.qos, true})
		}
	})
	for i := range s.queued.n {
		if it := s.queued.at(i); it.isShared() && it.state != gone {
			all = append(all, Holding{s.sharedOf(it), it.qos, false})
		}
	}
	return all
}

// Done gives the QoS 2 messages of shared subscriptions that the client has, and
// that the group's place is not known to be past. They are in the record, so that
// after a crash nobody gives them out again.
func (s *Session) Done() []Shared {
	if len(s.done) == 0 {
		return nil
	}
	done := make([]Shared, 0, len(s.done))
	for d := range s.done {
		done = append(done, d)
	}
	slices.SortFunc(done, Shared.compare)
	return done
}

// Passed says that the group's place is past a message that is done.
func (s *Session) Passed(d Shared) {
	if _, there := s.done[d]; there {
		delete(s.done, d)
		s.touch(Soon)
	}
}

// OwesShared says that even a session that ends with its connection needs its
// record now: it tells which QoS 2 messages of shared subscriptions its client
// may have, so that no other gets them [MQTT-4.8.2-5].
func (s *Session) OwesShared() bool {
	if len(s.done) > 0 {
		return true
	}
	owes := false
	s.flight.each(func(it *item) { owes = owes || it.isShared() && it.qos == 2 })
	return owes
}

func (it *item) isShared() bool { return it.flags.has(shared) && it.seq != 0 }

func (s *Session) sharedOf(it *item) Shared { return Shared{s.shareName(it), it.ref()} }

// settle notes the end of an item that leaves the session for good.
func (s *Session) settle(it *item) {
	if !it.isShared() || it.share == 0 {
		return
	}
	d := s.sharedOf(it)
	s.settled = append(s.settled, d)
	if it.qos == 2 {
		if s.done == nil {
			s.done = make(map[Shared]struct{})
		}
		s.done[d] = struct{}{}
		s.touch(Soon)
	}
}

// shareNumber gives an item's number for the name of a share, from 1 on.
func (s *Session) shareNumber(name string) uint16 {
	if name == "" {
		return 0
	}
	if i := slices.Index(s.shares, name); i >= 0 {
		return uint16(i + 1)
	}
	s.shares = append(s.shares, name)
	return uint16(len(s.shares))
}

func (s *Session) shareName(it *item) string {
	if it.share == 0 {
		return ""
	}
	return s.shares[it.share-1]
}
