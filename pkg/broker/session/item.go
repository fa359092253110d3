package session

import "time"

// item is a delivery inside a session: in a queue, or in flight. 64 bytes, and
// an offline session may hold very many.
type item struct {
	msg   *Message
	ids   []uint32
	seq   uint64 // of its Ref; 0: not in the log
	order uint64 // of queueing, or of PUBREC for one that is released
	size  uint32 // what it counts for in the queue's bytes
	shard uint16
	id    uint16 // packet identifier; 0: none
	share uint16 // of Session.shares, from 1 on; 0: none
	state state
	qos   byte
	flags flags
}

// state is how far an item is on its way.
type state byte

const (
	waiting  state = iota // queued
	sent                  // PUBLISH was given to be sent
	released              // QoS 2: PUBREC came, PUBREL was given to be sent
	gone                  // queued, but its message does not exist any more
)

type flags byte

const (
	retain flags = 1 << iota
	shared
	// absent: the message has to be fetched before the PUBLISH can be sent. msg
	// is nil, or of a retained message only the topic.
	absent
	// active: sent on this connection, so it counts towards Receive Maximum.
	active
)

func (f flags) has(x flags) bool { return f&x != 0 }

func (s *Session) itemOf(d *Delivery) item {
	it := item{share: s.shareNumber(d.Share), msg: d.Message, ids: d.SubscriptionIDs, seq: d.Ref.Seq, shard: uint16(d.Ref.Shard), qos: d.QoS}
	if d.Retain {
		it.flags |= retain
	}
	if d.Shared {
		it.flags |= shared
	}
	if d.Message == nil {
		it.flags |= absent
	} else {
		it.size = uint32(d.Message.size())
	}
	return it
}

func (s *Session) deliveryOf(it *item) Delivery {
	d := Delivery{
		Share: s.shareName(it),
		Ref:   it.ref(), Message: it.msg, QoS: it.qos, SubscriptionIDs: it.ids,
		Retain: it.flags.has(retain), Shared: it.flags.has(shared),
	}
	if it.flags.has(absent) {
		d.Message = nil
	}
	return d
}

// expired says that it is known to be.
func (it *item) expired(now time.Time) bool { return !it.flags.has(absent) && it.msg.expired(now) }

func (it *item) ref() Ref { return Ref{int(it.shard), it.seq} }

// holds says that the session's cursor in its shard can't pass the item.
func (it *item) holds() bool {
	return it.seq != 0 && it.qos > 0 && !it.flags.has(shared) && it.state == waiting
}

// loaded says that the item holds a message that the log has, too.
func (it *item) loaded() bool {
	return it.seq != 0 && it.qos > 0 && it.state <= sent && !it.flags.has(absent)
}

// queue is a ring of items, first in, first out. The zero value is empty.
type queue struct {
	ring []item // its length is a power of two
	head int
	n    int
}

const (
	smallest = 2  // items that a queue or a table of those in flight begins with
	keep     = 64 // items whose room is kept when the last of them goes
)

func (q *queue) at(i int) *item { return &q.ring[(q.head+i)&(len(q.ring)-1)] }

func (q *queue) push(it item) {
	if q.n == len(q.ring) {
		ring := make([]item, max(smallest, 2*q.n))
		for i := range q.n {
			ring[i] = *q.at(i)
		}
		q.ring, q.head = ring, 0
	}
	q.n++
	*q.at(q.n - 1) = it
}

// pop removes the first item. Room for a crowd is given back when all are gone.
func (q *queue) pop() item {
	first := q.at(0)
	it := *first
	*first = item{}
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
	if q.n == 0 && len(q.ring) > keep {
		*q = queue{}
	}
	return it
}
