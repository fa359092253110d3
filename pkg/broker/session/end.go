package session

import (
	"fmt"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// Disconnect takes the client's DISCONNECT, the connection's last packet. Its
// Session Expiry Interval replaces that of CONNECT. Reason 0x00, the only one of
// 3.x, removes the will [MQTT-3.14.4-3]; any other leaves it to come
// (5 §3.1.2.5).
//
// A session that was to end with its connection can't be kept by then. To ask
// for it is a Protocol Error, a *[mqtt.PacketError]: the packet counts as not
// sent, and the connection still has to be ended, with [Connection.Lost]
// (5 §3.14.2.2.2).
func (c *Connection) Disconnect(d mqtt.Disconnect, now time.Time) error {
	s := c.session
	if !c.Current() {
		return nil
	}
	if d.HasSessionExpiry {
		if c.asked.expiry == 0 && d.SessionExpiry != 0 {
			return &mqtt.PacketError{Type: mqtt.TypeDisconnect, Reason: mqtt.ProtocolError,
				Detail: fmt.Sprintf("Session Expiry Interval %d after one of 0 in CONNECT (5 §3.14.2.2.2)", d.SessionExpiry)}
		}
		s.expiry = s.limits.sessionExpiry(d.SessionExpiry)
	}
	if d.Reason == mqtt.Success {
		s.will = nil
	}
	s.offline(now)
	return nil
}

// Lost ends a connection that was closed without DISCONNECT, whoever closed it
// and why. The will is to be published [MQTT-3.1.2-8].
//
// A server that shuts down does not call it and leaves the session's record as
// it is: [Restore] finds a session that was connected and counts from then on,
// as 5 §3.1.2.5 allows.
func (c *Connection) Lost(now time.Time) {
	if c.Current() {
		c.session.offline(now)
	}
}

// TakenOver ends a connection for the sake of another with the same Client
// Identifier [MQTT-3.1.4-3]. What the new one says of Clean Start decides over
// session and will (5 §3.1.3.2.2, §3.1.4):
//
//	will delay 0, as always in 3.x      published
//	session expiry 0                    published: the session ends here
//	Clean Start 1                       published: the session ends here
//	else                                not published [MQTT-3.1.3-9]
//
// [Session.Due] gives the will and tells whether the session is over: then the
// new connection starts one of its own, with Session Present 0.
func (c *Connection) TakenOver(cleanStart bool, now time.Time) {
	s := c.session
	if !c.Current() {
		return
	}
	s.offline(now)
	s.over = cleanStart
	if s.will != nil && s.will.Delay > 0 && !s.ended(now) {
		s.will = nil
	}
}

// Discard ends the session at once, and its connection, if there is one: for a
// CONNECT with Clean Start 1 [MQTT-3.1.2-4] while it is offline, or as an
// operator wants it. [Session.Due] gives the will that still waited.
func (s *Session) Discard(now time.Time) {
	if s.conn != nil {
		s.offline(now)
	}
	s.over = true
	s.touch(First)
}

// offline lets go of all that belonged to the connection.
func (s *Session) offline(now time.Time) {
	s.conn = nil
	s.disconnected = now.UnixNano()
	for s.loose.n > 0 { // QoS 0 is not kept for a client that is away
		s.dropFront(&s.loose)
		s.drops.Offline++
	}
	s.loose = queue{}
	s.flight.each(func(it *item) { it.flags &^= active })
	if s.flight.n == 0 {
		s.flight = flight{}
	}
	for i := range s.inbound {
		s.inbound[i].counted = false
	}
	s.touch(Soon)
}

// Deadline is when to ask [Session.Due] next, while the session stays offline;
// zero is never.
func (s *Session) Deadline() time.Time {
	if s.conn != nil || s.disconnected == 0 {
		return time.Time{}
	}
	at, ends := s.endsAt()
	if s.will != nil {
		if w := s.willAt(); !ends || w < at {
			at, ends = w, true
		}
	}
	if !ends {
		return time.Time{}
	}
	return fromNanos(at)
}

// Due gives what an offline session owes by now. A will is given once, and
// published by who gets it, at its delay's or the session's end, whichever
// comes first; the record without it has to be durable before, so that it is
// not published twice. over says that the session has ended and is to be
// forgotten [MQTT-4.1.0-2].
func (s *Session) Due(now time.Time) (will *Will, over bool) {
	over = s.ended(now)
	if s.will != nil && s.conn == nil && (over || s.disconnected != 0 && s.willAt() <= now.UnixNano()) {
		will, s.will = s.will, nil
		s.touch(First)
	}
	return will, over
}

func (s *Session) ended(now time.Time) bool {
	if s.over {
		return true
	}
	if s.conn != nil || s.disconnected == 0 {
		return false
	}
	at, ends := s.endsAt()
	return ends && at <= now.UnixNano()
}

// endsAt is when an offline session ends, if it does.
func (s *Session) endsAt() (nanos int64, ends bool) {
	if s.over {
		return s.disconnected, true
	}
	return s.disconnected + int64(s.expiry)*int64(time.Second), s.expiry != NeverExpires
}

func (s *Session) willAt() int64 {
	return s.disconnected + int64(s.will.Delay)*int64(time.Second)
}
