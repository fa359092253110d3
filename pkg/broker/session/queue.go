package session

import "time"

// Verdict is what became of a delivery that was queued.
type Verdict int

const (
	// Queued: it will be sent when its turn comes.
	Queued Verdict = iota
	// Known: the session has dealt with it, or has it in flight.
	Known
	// NotKept: QoS 0 for a client that is away.
	NotKept
	// Dropped: the queue is full, and it gave way. A message that a shared
	// subscription gave to this session may go to another member.
	Dropped
)

// Drops counts deliveries that the session gave up, by reason.
type Drops struct {
	Full     uint32 // the queue was full
	Expired  uint32 // [MQTT-3.3.2-5]
	TooLarge uint32 // for the client's Maximum Packet Size [MQTT-3.1.2-25]
	Offline  uint32 // QoS 0, client away
	Lost     uint32 // the store has the message no more
}

// TakeDrops gives the counts since the last call.
func (s *Session) TakeDrops() Drops {
	d := s.drops
	s.drops = Drops{}
	return d
}

// shard is the session's place in one shard of the log.
type shard struct {
	dealt uint64 // the last sequence number that was queued, dropped or taken over from a record
	held  int    // items in the queue that the cursor can't pass
}

func (s *Session) shard(i int) *shard {
	for len(s.shards) <= i {
		s.shards = append(s.shards, shard{})
	}
	return &s.shards[i]
}

// Queue takes in a delivery. Those of one shard come in the order of the log,
// shared ones and those without a [Ref] at any time; what the session knows
// already is ignored, so the log may be read again from any place. If the
// message of something in flight is missing since a restart, it is taken from d.
//
// When the bounds are reached, QoS 0 messages give way first, the oldest one
// first, then expired ones at the head, then [Overflow] decides. A QoS 0
// message never pushes out another QoS than its own. One message alone is never
// too much.
func (s *Session) Queue(d Delivery, now time.Time) Verdict {
	if d.Ref.Seq != 0 {
		if s.absent > 0 && s.supply(&d) {
			return Known
		}
		if !d.Shared {
			sh := s.shard(d.Ref.Shard)
			if d.Ref.Seq <= sh.dealt {
				return Known
			}
			sh.dealt = d.Ref.Seq
		}
	}
	it := s.itemOf(&d)
	if it.qos == 0 && s.conn == nil {
		s.drops.Offline++
		return NotKept
	}
	if !s.room(&it, now) {
		s.drops.Full++
		return Dropped
	}
	s.order++
	it.order = s.order
	s.push(it)
	return Queued
}

// Promise keeps room for a message of QoS 1 or 2, of so many bytes, that is about
// to be stored, and says whether there is any: if not, its publisher has to be
// told so (0x97) rather than the message stored. It is for [Refuse]. A promise is
// as good as a message in the queue, until [Session.Redeem] ends it.
func (s *Session) Promise(bytes int, now time.Time) bool {
	for s.queued.n > 0 && !s.hasRoom(bytes) {
		switch it := s.queued.at(0); {
		case it.state == gone:
			s.dropFront(&s.queued)
		case it.expired(now):
			s.dropFront(&s.queued)
			s.drops.Expired++
		default:
			return false
		}
	}
	if !s.hasRoom(bytes) {
		return false
	}
	s.promised++
	s.promisedBytes += int64(bytes)
	return true
}

// hasRoom leaves out QoS 0, which gives way.
func (s *Session) hasRoom(bytes int) bool {
	n, l := s.queued.n+s.promised, s.limits
	return n == 0 ||
		(l.Queued == 0 || n < l.Queued) &&
			(l.QueuedBytes == 0 || s.bytes-s.looseBytes+s.promisedBytes+int64(bytes) <= l.QueuedBytes)
}

// Redeem ends a promise of so many bytes: the message has been queued, or is not
// stored after all.
func (s *Session) Redeem(bytes int) {
	s.promised--
	s.promisedBytes -= int64(bytes)
}

// room makes it, and says whether it could.
func (s *Session) room(it *item, now time.Time) bool {
	for !s.fits(it, 1) {
		switch {
		case s.loose.n > 0 && (it.qos > 0 || s.limits.Overflow == DropOldest):
			s.dropFront(&s.loose)
			s.drops.Full++
		case it.qos == 0:
			return false
		case s.queued.at(0).state == gone:
			s.dropFront(&s.queued)
		case s.queued.at(0).expired(now):
			s.dropFront(&s.queued)
			s.drops.Expired++
		case s.limits.Overflow == DropOldest:
			s.dropFront(&s.queued)
			s.drops.Full++
		case s.limits.Overflow == Refuse: // restored, it had promised all that the log has for it
			return s.behind && it.seq != 0 || s.fits(it, 2)
		default:
			return false
		}
	}
	return true
}

// fits says that the queue with one item more is within so many times its
// bounds.
func (s *Session) fits(it *item, times int) bool {
	n := s.queued.n + s.loose.n
	l := s.limits
	return n == 0 ||
		(l.Queued == 0 || n+1 <= times*l.Queued) &&
			(l.QueuedBytes == 0 || s.bytes+int64(it.size) <= int64(times)*l.QueuedBytes)
}

// tally counts an item in or out, by 1 or -1: around everything that comes,
// changes or goes.
func (s *Session) tally(it *item, by int) {
	if it.flags.has(absent) {
		s.absent += by
	}
	if it.loaded() {
		s.loaded += by
	}
	if it.holds() {
		s.shard(int(it.shard)).held += by
	}
}

func (s *Session) push(it item) {
	s.bytes += int64(it.size)
	s.tally(&it, 1)
	if it.qos == 0 {
		s.looseBytes += int64(it.size)
		s.loose.push(it)
		return
	}
	s.queued.push(it)
	if it.seq == 0 { // not in the log: only the record keeps it
		s.changed(Soon)
	}
}

func (s *Session) pop(q *queue) item {
	it := q.pop()
	s.bytes -= int64(it.size)
	if it.qos == 0 {
		s.looseBytes -= int64(it.size)
	}
	s.tally(&it, -1)
	return it
}

func (s *Session) dropFront(q *queue) {
	if it := s.pop(q); it.qos > 0 {
		if it.state != gone {
			s.settle(&it)
		}
		s.changed(Soon) // the cursor moves
	}
}

// TakeShared removes what shared subscriptions gave to this session and what
// can go to other members: what was not sent, and, when the session has ended,
// QoS 1 that was not acknowledged. QoS 2 that was sent stays with this client
// [MQTT-4.8.2-4], [MQTT-4.8.2-5].
func (s *Session) TakeShared(ended bool) []Delivery {
	var taken []Delivery
	if ended {
		for _, id := range s.flight.sorted() {
			if it := s.flight.find(id); it.flags.has(shared) && it.qos == 1 {
				taken = append(taken, s.deliveryOf(it))
				it.share = 0 // it goes on, and is not at its end
				s.finish(id)
			}
		}
	}
	for range s.queued.n {
		switch it := s.pop(&s.queued); {
		case !it.flags.has(shared):
			s.push(it)
		case it.state != gone:
			taken = append(taken, s.deliveryOf(&it))
		}
	}
	return taken
}
