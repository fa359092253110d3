package session

import (
	"encoding/binary"
	"slices"
	"time"
)

// recordVersion is the first byte of a record. A change of what follows gets
// another, and [ParseRecord] goes on reading the older ones.
const recordVersion = 1

// The flags of a record, in its second byte.
const (
	recordWill      = 1 << iota // has a will
	recordConnected             // has the time of a connection
	recordOffline               // has the time of its end
	recordShares                // names shared subscriptions
)

// Options of a subscription: those of SUBSCRIBE (5 §3.8.3.1), and one more.
const (
	subQoS            = 3 << 0
	subNoLocal        = 1 << 2
	subAsPublished    = 1 << 3
	subRetainHandling = 3 << 4
	subSince          = 1 << 6

	shiftRetainHandling = 4
)

// Flags of an unacknowledged message; the lowest two bits are its QoS.
const (
	unackedQoS      = 3 << 0
	unackedRetain   = 1 << 2
	unackedShared   = 1 << 3
	unackedReleased = 1 << 4
	unackedUnsent   = 1 << 5 // has no packet identifier
	unackedUnlogged = 1 << 6 // has a topic, and no place in the log
)

// Flags of a will; the lowest two bits are its QoS.
const (
	willQoS      = 3 << 0
	willRetain   = 1 << 2
	willLifetime = 1 << 3
)

// Append appends the record. Integers are unsigned varints of
// encoding/binary, byte strings and lists have their length before them:
//
//	version, flags, client id, identity, expiry,
//	connected and disconnected (milliseconds since 1970), if there,
//	cursors: sequence number,
//	subscriptions: filter, options, identifier, since (as cursors), if there,
//	unacknowledged: flags, packet identifier, if there, topic, or shard and
//	sequence number, subscription identifiers,
//	will, if there: flags, topic, payload, properties, delay, lifetime, if there,
//	shares, if there: names, by order; for each unacknowledged that is shared, the
//	number of its name from 1 on, or 0; done: number, shard and sequence number
func (r *Record) Append(dst []byte) []byte {
	e := encoder{dst}
	e.byte(recordVersion)
	var flags byte
	if r.Will != nil {
		flags |= recordWill
	}
	if !r.Connected.IsZero() {
		flags |= recordConnected
	}
	if !r.Disconnected.IsZero() {
		flags |= recordOffline
	}
	shares := r.shares()
	if len(shares) > 0 {
		flags |= recordShares
	}
	e.byte(flags)
	e.text(r.ClientID)
	e.text(r.Identity)
	e.uint(uint64(r.Expiry))
	e.time(r.Connected)
	e.time(r.Disconnected)
	e.list(r.Cursors)
	e.uint(uint64(len(r.Subscriptions)))
	for i := range r.Subscriptions {
		e.subscription(&r.Subscriptions[i])
	}
	e.uint(uint64(len(r.Unacknowledged)))
	for i := range r.Unacknowledged {
		e.unacknowledged(&r.Unacknowledged[i])
	}
	if r.Will != nil {
		e.will(r.Will)
	}
	if len(shares) > 0 {
		e.shares(shares, r)
	}
	return e.b
}

// shares are the names of shared subscriptions that the record needs, in order.
func (r *Record) shares() (names []string) {
	for i := range r.Unacknowledged {
		if u := &r.Unacknowledged[i]; u.Share != "" {
			names = append(names, u.Share)
		}
	}
	for _, d := range r.Done {
		names = append(names, d.Share)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (e *encoder) shares(names []string, r *Record) {
	e.uint(uint64(len(names)))
	for _, name := range names {
		e.text(name)
	}
	number := func(name string) uint64 {
		i, found := slices.BinarySearch(names, name)
		if !found {
			return 0
		}
		return uint64(i) + 1
	}
	for i := range r.Unacknowledged {
		if u := &r.Unacknowledged[i]; u.Shared {
			e.uint(number(u.Share))
		}
	}
	e.uint(uint64(len(r.Done)))
	for _, d := range r.Done {
		e.uint(number(d.Share))
		e.uint(uint64(d.Ref.Shard))
		e.uint(d.Ref.Seq)
	}
}

type encoder struct{ b []byte }

func (e *encoder) byte(v byte)   { e.b = append(e.b, v) }
func (e *encoder) uint(v uint64) { e.b = binary.AppendUvarint(e.b, v) }

func (e *encoder) text(v string) {
	e.uint(uint64(len(v)))
	e.b = append(e.b, v...)
}

func (e *encoder) time(t time.Time) {
	if !t.IsZero() {
		e.uint(uint64(t.UnixMilli()))
	}
}

func (e *encoder) list(v []uint64) {
	e.uint(uint64(len(v)))
	for _, x := range v {
		e.uint(x)
	}
}

func (e *encoder) subscription(b *Subscription) {
	options := b.QoS | byte(b.RetainHandling)<<shiftRetainHandling
	if b.NoLocal {
		options |= subNoLocal
	}
	if b.RetainAsPublished {
		options |= subAsPublished
	}
	if b.since != nil {
		options |= subSince
	}
	e.text(b.Filter)
	e.byte(options)
	e.uint(uint64(b.ID))
	if b.since != nil {
		e.list(b.since)
	}
}

func (e *encoder) unacknowledged(u *Unacknowledged) {
	flags := u.QoS
	if u.Retain {
		flags |= unackedRetain
	}
	if u.Shared {
		flags |= unackedShared
	}
	if u.Released {
		flags |= unackedReleased
	}
	if u.PacketID == 0 {
		flags |= unackedUnsent
	}
	if u.Ref.Seq == 0 {
		flags |= unackedUnlogged
	}
	e.byte(flags)
	if u.PacketID != 0 {
		e.uint(uint64(u.PacketID))
	}
	if u.Ref.Seq == 0 {
		e.text(u.Topic)
	} else {
		e.uint(uint64(u.Ref.Shard))
		e.uint(u.Ref.Seq)
	}
	e.uint(uint64(len(u.SubscriptionIDs)))
	for _, id := range u.SubscriptionIDs {
		e.uint(uint64(id))
	}
}

func (e *encoder) will(w *Will) {
	flags := w.QoS
	if w.Retain {
		flags |= willRetain
	}
	if w.HasLifetime {
		flags |= willLifetime
	}
	e.byte(flags)
	e.text(w.Topic)
	e.text(string(w.Payload))
	e.text(string(w.Properties))
	e.uint(uint64(w.Delay))
	if w.HasLifetime {
		e.uint(uint64(w.Lifetime))
	}
}
