package session

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// inbound is a QoS 2 publication from the client that is not at its end.
// Their packet identifiers are the client's own and have nothing to do with
// those that the server assigns.
type inbound struct {
	id    uint16
	stage stage
	// counted: towards the Receive Maximum of this connection, on which the
	// client has sent a packet of it and waits for the answer.
	counted bool
}

type stage byte

const (
	storing    stage = iota // PUBLISH came, the store has not confirmed it
	unsure                  // known from before a restart; whether it was stored nobody knows
	received                // stored: PUBREC may be sent
	forgetting              // PUBREL came, its record is being removed
)

// Receipt says what to do with a PUBLISH from the client.
type Receipt int

const (
	// Fresh: store and distribute it. For QoS 1 PUBACK follows
	// ([Connection.Acked]), for QoS 2 PUBREC ([Session.Stored]).
	Fresh Receipt = iota
	// Redo: a QoS 2 message from before a restart, of which a record is left.
	// Store it again under the DedupID of that record, which makes nothing of it
	// if it was stored; then as Fresh.
	Redo
	// Repeat: a QoS 2 message that is stored. Send PUBREC at once, and nothing
	// to anyone else [MQTT-4.3.3-10].
	Repeat
	// Wait: do nothing. The message is in the works, and its PUBREC comes in its
	// own time; or the connection is not the session's any more, and the client
	// sends QoS 1 and 2 again on the one that is.
	Wait
)

// Publish takes a PUBLISH from the client, DUP or not: DUP says nothing of what
// the server has seen (§3.3.1.1), only the packet identifiers of QoS 2 do.
//
// The error is a *[mqtt.PacketError] with 0x93: a 5.0 client has more QoS 1 and
// 2 publications without answer than the server's Receive Maximum
// [MQTT-3.3.4-7]. 3.x has no such bound: see [Connection.Pending].
func (c *Connection) Publish(qos byte, id uint16) (Receipt, error) {
	s := c.session
	if !c.Current() {
		return Wait, nil
	}
	if qos == 0 {
		return Fresh, nil
	}
	i, known := 0, false
	if qos == 2 {
		i, known = s.searchInbound(id)
	}
	if most := s.limits.receiveMaximum(); c.version == mqtt.V5 && c.pending >= int(most) && !(known && s.inbound[i].counted) {
		return 0, &mqtt.PacketError{Type: mqtt.TypePublish, Reason: mqtt.ReceiveMaximumExceeded,
			Detail: fmt.Sprintf("more than %d QoS 1 and 2 publications wait for their answer [MQTT-3.3.4-7]", most)}
	}
	if qos == 1 {
		c.pending++
		return Fresh, nil
	}
	if !known {
		s.inbound = slices.Insert(s.inbound, i, inbound{id: id})
	}
	in := &s.inbound[i]
	c.count(in)
	switch {
	case !known:
		return Fresh, nil
	case in.stage == unsure:
		in.stage = storing
		return Redo, nil
	case in.stage == storing:
		return Wait, nil
	default: // while it is being forgotten, too: the client has not seen PUBCOMP
		return Repeat, nil
	}
}

// Pending is how many QoS 1 and 2 publications of this connection have no answer
// yet. The server may stop reading from a client that has too many; for 3.x that
// is the only way.
func (c *Connection) Pending() int { return c.pending }

// Acked says that a QoS 1 publication is done with, stored or refused. Answer it
// with PUBACK if this gives true: not if its connection is another by now, whose
// packet identifiers mean other things.
func (c *Connection) Acked() bool {
	c.pending--
	return c.Current()
}

// Stored says how storing a QoS 2 publication went. PUBREC with this reason is
// owed to the connection that it gives; nil if its client has not asked on the
// present one.
//
// A reason of 0x80 or above refuses it, and frees the identifier. 3.x has no
// word for that: close the connection, and the client will try again.
func (s *Session) Stored(id uint16, reason mqtt.Reason) *Connection {
	i, known := s.searchInbound(id)
	if !known || s.inbound[i].stage != storing {
		return nil
	}
	if reason < mqtt.UnspecifiedError {
		s.inbound[i].stage = received
		if s.inbound[i].counted {
			return s.conn
		}
		return nil
	}
	return s.endInbound(i)
}

// Release says what to do with a PUBREL from the client.
type Release int

const (
	// Forget the record of this identifier; then [Session.Forgotten].
	Forget Release = iota
	// Unknown: send PUBCOMP at once, in 5.0 with reason 0x92. No error while a
	// client recovers (5 §3.7.2.1).
	Unknown
	// Forgetting: do nothing. That is in the works, and PUBCOMP comes in its own
	// time; or the connection is not the session's any more.
	Forgetting
)

// Pubrel takes the client's PUBREL. The error is a *[mqtt.PacketError]: PUBREL
// before PUBREC is a Protocol Error.
func (c *Connection) Pubrel(id uint16) (Release, error) {
	s := c.session
	if !c.Current() {
		return Forgetting, nil
	}
	i, known := s.searchInbound(id)
	if !known {
		return Unknown, nil
	}
	in := &s.inbound[i]
	switch in.stage {
	case storing:
		return 0, &mqtt.PacketError{Type: mqtt.TypePubrel, Reason: mqtt.ProtocolError,
			Detail: fmt.Sprintf("packet identifier %d has had no PUBREC yet [MQTT-4.3.3-11]", id)}
	case forgetting:
		c.count(in)
		return Forgetting, nil
	}
	c.count(in)
	in.stage = forgetting
	return Forget, nil
}

// Forgotten says that the record of a released QoS 2 publication is gone: its
// identifier is free. PUBCOMP is owed to the connection that it gives; nil if
// its client has not asked on the present one.
func (s *Session) Forgotten(id uint16) *Connection {
	i, known := s.searchInbound(id)
	if !known || s.inbound[i].stage != forgetting {
		return nil
	}
	return s.endInbound(i)
}

// Remember adds QoS 2 publications of which records are left from before a
// restart or on another node, by packet identifier. A PUBLISH of theirs is
// [Redo].
func (s *Session) Remember(ids ...uint16) {
	for _, id := range ids {
		if i, known := s.searchInbound(id); !known {
			s.inbound = slices.Insert(s.inbound, i, inbound{id: id, stage: unsure})
		}
	}
}

// Inbound gives the packet identifiers of the client's QoS 2 publications that
// are not at their end, in rising order.
func (s *Session) Inbound() []uint16 {
	ids := make([]uint16, len(s.inbound))
	for i, in := range s.inbound {
		ids[i] = in.id
	}
	return ids
}

// count counts a publication once a connection. A PUBREL counts as well, where
// only that came on this one, so that its end can be told by the same rule.
func (c *Connection) count(in *inbound) {
	if !in.counted {
		in.counted = true
		c.pending++
	}
}

// endInbound frees the identifier, and gives who waits for the answer.
func (s *Session) endInbound(i int) *Connection {
	var c *Connection
	if s.inbound[i].counted {
		c = s.conn
		c.pending--
	}
	s.inbound = slices.Delete(s.inbound, i, i+1)
	return c
}

func (s *Session) searchInbound(id uint16) (int, bool) {
	return slices.BinarySearchFunc(s.inbound, id, func(in inbound, id uint16) int { return cmp.Compare(in.id, id) })
}
