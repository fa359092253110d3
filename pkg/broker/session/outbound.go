package session

import (
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// Step is what [Connection.Next] has.
type Step int

const (
	// Idle: nothing may be sent until the client acknowledges something or
	// something is queued.
	Idle Step = iota
	// Send: the packet is to be sent, after all that Next gave before it.
	Send
	// Fetch: the message at the head has to be fetched first; see
	// [Session.Missing]. Next may be called again meanwhile: QoS 0 messages
	// don't wait for it.
	Fetch
)

// Next gives the packet that the client may get now. Order: what the last
// connection left unacknowledged, in its original order [MQTT-4.4.0-1]; then
// what was queued, in that order. Receive Maximum holds up QoS 1 and 2
// [MQTT-3.3.4-9], and then only them: QoS 0 messages pass, for nothing promises
// an order between different QoS (5 §4.6).
//
// Expired messages [MQTT-3.3.2-5] and those too large for the client
// [MQTT-3.1.2-25] are dropped as if they had been sent.
//
// A packet that Next gave has to be sent: it may set a topic alias that later
// ones rely on. If [Session.Checkpoint] says [First] now, the record has to be
// durable before.
func (c *Connection) Next(now time.Time) (Packet, Step) {
	if !c.Current() {
		return Packet{}, Idle
	}
	step := Idle
	if len(c.again) > 0 {
		var p Packet
		if p, step = c.resend(now); step == Send {
			return p, Send
		}
	}
	if len(c.again) == 0 {
		step = c.headReady(now)
	}
	s := c.session
	for s.loose.n > 0 && (step != Send || s.loose.at(0).order < s.queued.at(0).order) {
		it := s.pop(&s.loose)
		switch {
		case it.expired(now):
			s.drops.Expired++
		default:
			if p, ok := c.publish(&it, now); ok {
				return p, Send
			}
			s.drops.TooLarge++
		}
	}
	if step != Send {
		return Packet{}, step
	}
	return c.first(now), Send
}

// headReady drops what can't be sent from the head of the queue, and says
// whether the head then can.
func (c *Connection) headReady(now time.Time) Step {
	s := c.session
	for s.queued.n > 0 {
		it := s.queued.at(0)
		switch {
		case it.state == gone:
			s.dropFront(&s.queued)
		case c.active >= c.window || !s.roomInFlight(it):
			return Idle
		case it.flags.has(absent):
			return Fetch
		case it.expired(now):
			s.dropFront(&s.queued)
			s.drops.Expired++
		case !c.fits(it, now):
			s.dropFront(&s.queued)
			s.drops.TooLarge++
		default:
			return Send
		}
	}
	return Idle
}

// first sends the head of the queue for the first time.
func (c *Connection) first(now time.Time) Packet {
	s := c.session
	it := s.pop(&s.queued)
	it.id, it.state = s.freeID(), sent
	it.flags |= active
	c.active++
	s.flight.put(it)
	s.flightBytes += it.recordBytes()
	s.tally(&it, 1)
	// Without its identifier in the record, a QoS 2 message would get another
	// after a crash, and the client would take it for a new one.
	switch {
	case it.qos == 2 && it.isShared():
		s.touch(First) // also without a session that goes on: see OwesShared
	case it.qos == 2:
		s.changed(First)
	default:
		s.changed(Soon)
	}
	p, _ := c.publish(&it, now)
	return p
}

// freeID gives a packet identifier that is not in use towards this client
// [MQTT-2.2.1-4]. It goes through all of them in turn, so that an
// acknowledgement that comes twice does not hit the next message. There is one:
// all that is in flight counts towards the window, which is at most 65,535.
func (s *Session) freeID() uint16 {
	for {
		s.lastID++
		if s.lastID != 0 && s.flight.find(s.lastID) == nil {
			return s.lastID
		}
	}
}

// resend gives the next of them. Idle with c.again not empty: Receive Maximum
// holds it up, which is the new connection's and may be smaller.
func (c *Connection) resend(now time.Time) (Packet, Step) {
	s := c.session
	for len(c.again) > 0 {
		it := s.flight.find(c.again[0])
		if it == nil { // acknowledged on this connection before it was sent on it
			c.again = c.again[1:]
			continue
		}
		if it.state == sent {
			switch {
			case c.active >= c.window:
				return Packet{}, Idle
			case it.flags.has(absent):
				return Packet{}, Fetch
			case !c.fits(it, now):
				s.drops.TooLarge++
				s.abandon(it)
				continue
			}
		}
		it.flags |= active
		c.active++
		c.again = c.again[1:]
		if it.state == released {
			return Packet{Type: mqtt.TypePubrel, PacketID: it.id}, Send
		}
		p, _ := c.publish(it, now)
		p.Dup = true // [MQTT-3.3.1-1]
		return p, Send
	}
	c.again = nil
	return Packet{}, Idle
}

// abandon is for what is in flight and can't be sent again. QoS 1 counts as
// delivered. Of QoS 2 the client may hold the identifier, and would take the
// next message that gets it for this one: it is released instead, which the
// client answers whether it knows it or not.
func (s *Session) abandon(it *item) {
	if it.qos < 2 {
		s.finish(it.id)
		return
	}
	s.release(it)
}

// release goes over from PUBLISH to PUBREL. The record has to be durable before
// that goes out: after a crash PUBLISH must not come again [MQTT-4.3.3-6], for
// by then the client may have forgotten the identifier.
func (s *Session) release(it *item) {
	s.tally(it, -1)
	s.flightBytes -= it.recordBytes()
	it.flags &^= absent
	it.state, it.msg, it.ids = released, nil, nil
	s.flightBytes += it.recordBytes()
	s.order++
	it.order = s.order
	s.changed(First)
}

// finish forgets what is in flight: the identifier is free.
func (s *Session) finish(id uint16) {
	it := s.flight.find(id)
	s.settle(it)
	s.tally(it, -1)
	if it.flags.has(active) && s.conn != nil {
		s.conn.active--
	}
	s.flightBytes -= it.recordBytes()
	s.flight.remove(id)
	s.changed(Soon)
}
