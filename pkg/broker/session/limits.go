package session

// Limits are the server's own. All sessions share one value, which does not
// change. The zero value bounds nothing and allows no topic aliases.
type Limits struct {
	// Towards the server, announced in CONNACK to 5.0 clients.

	ReceiveMaximum    uint16 // QoS 1 and 2 publications in the works per client; 0 is 65,535
	MaximumPacketSize uint32 // bytes; 0 is no limit of our own
	TopicAliasMaximum uint16 // aliases that a client may set; 0 is none
	KeepAlive         uint16 // seconds, the longest allowed; 0 is no limit
	SessionExpiry     uint32 // seconds, the longest allowed, in 3.x too; 0 is no limit

	// Towards the client.

	Inflight     uint16 // QoS 1 and 2 messages unacknowledged at once, whatever its Receive Maximum; 0 is 65,535
	TopicAliases uint16 // aliases that the server sets at most, where the client allows them

	// Record bounds the session's record, in bytes, beside what a CONNECT can
	// bring; 0 is no bound. Half of it is for subscriptions ([Session.RoomFor]).
	// A quarter is for what is in flight: beyond, no more is sent until something
	// is acknowledged. Retained messages that wait, and that do not fit, are sent
	// all the same, but not any more after a crash.
	Record int

	// The queue of one session: what is not sent yet.

	Queued      int   // messages; 0 is no bound
	QueuedBytes int64 // bytes of topics, payloads and properties; 0 is no bound
	Overflow    Overflow
}

// Overflow says what happens to QoS 1 and 2 messages when the queue is full.
// QoS 0 messages give way before any of them is touched.
type Overflow int

const (
	// DropNewest drops the message that does not fit.
	DropNewest Overflow = iota
	// DropOldest drops the messages that have waited longest.
	DropOldest
	// Refuse leaves it to the publisher: the broker asks for a [Session.Promise]
	// before it stores a message, and answers 0x97 (Quota exceeded) if there is
	// none. What comes without one, such as a will or what was stored before a
	// subscription was made, is taken up to twice the bounds, then dropped.
	Refuse
)

func (l *Limits) receiveMaximum() uint16 { return orMost(l.ReceiveMaximum) }
func (l *Limits) inflight() uint16       { return orMost(l.Inflight) }

func orMost(v uint16) uint16 {
	if v == 0 {
		return 65535
	}
	return v
}

// sessionExpiry applies the limit to what a client asks for, both in seconds.
func (l *Limits) sessionExpiry(asked uint32) uint32 {
	if l.SessionExpiry == 0 {
		return asked
	}
	return min(asked, l.SessionExpiry)
}
