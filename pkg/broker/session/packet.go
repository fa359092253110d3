package session

import (
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// Packet is a PUBLISH or PUBREL to be sent. Beside Type and PacketID, a PUBREL
// has nothing: its reason is Success.
type Packet struct {
	Type     mqtt.PacketType
	PacketID uint16 // 0 with QoS 0
	Dup      bool
	QoS      byte
	Retain   bool
	Ref      Ref
	Message  *Message

	// What follows is of 5.0 only, and zero in 3.x.

	SubscriptionIDs []uint32
	// Expiry is the Message Expiry Interval that is left, in seconds, if
	// HasExpiry.
	Expiry    uint32
	HasExpiry bool
	// Alias is the Topic Alias; 0 is none. With AliasKnown the client knows the
	// topic by it already, and the Topic Name is sent empty.
	Alias      uint16
	AliasKnown bool
}

// Topic is the Topic Name to send: empty if the client knows it by its alias.
func (p *Packet) Topic() string {
	if p.AliasKnown {
		return ""
	}
	return p.Message.Topic
}

// AppendProperties appends the properties of a 5.0 PUBLISH: first those that are
// this delivery's own, then those of the message.
func (p *Packet) AppendProperties(dst mqtt.Properties) mqtt.Properties {
	if p.HasExpiry {
		dst = dst.AppendUint(mqtt.PropMessageExpiryInterval, p.Expiry)
	}
	if p.Alias != 0 {
		dst = dst.AppendUint(mqtt.PropTopicAlias, uint32(p.Alias))
	}
	for _, id := range p.SubscriptionIDs {
		dst = dst.AppendUint(mqtt.PropSubscriptionIdentifier, id)
	}
	return append(dst, p.Message.Properties...)
}

// Size is the length of the whole PUBLISH in bytes.
func (p *Packet) Size(v mqtt.Version) int {
	n := 2 + len(p.Topic()) + len(p.Message.Payload)
	if p.QoS > 0 {
		n += 2
	}
	if v == mqtt.V5 {
		props := len(p.Message.Properties)
		if p.HasExpiry {
			props += expirySize
		}
		if p.Alias != 0 {
			props += aliasSize
		}
		for _, id := range p.SubscriptionIDs {
			props += 1 + varintSize(int(id))
		}
		n += varintSize(props) + props
	}
	return 1 + varintSize(n) + n
}

// Of properties with their identifier, in bytes.
const (
	expirySize = 1 + 4
	aliasSize  = 1 + 2
)

// varintSize is the length of a variable byte integer (5 §1.5.5).
func varintSize(v int) int {
	n := 1
	for ; v >= 1<<7; v >>= 7 {
		n++
	}
	return n
}

// publish makes the PUBLISH of an item; ok is false if it is too large for the
// client.
func (c *Connection) publish(it *item, now time.Time) (p Packet, ok bool) {
	p = c.bare(it, now)
	c.outbox.use(&p)
	if !c.small(&p) { // an alias for the next time has no room in it
		p.Alias, p.AliasKnown = 0, false
		return p, c.small(&p)
	}
	c.outbox.set(&p)
	return p, true
}

// fits says that publish will be able to.
func (c *Connection) fits(it *item, now time.Time) bool {
	if c.maxPacket == 0 {
		return true
	}
	p := c.bare(it, now)
	if c.small(&p) {
		return true
	}
	c.outbox.use(&p)
	return c.small(&p)
}

func (c *Connection) small(p *Packet) bool {
	return c.maxPacket == 0 || p.Size(c.version) <= c.maxPacket
}

// bare is the PUBLISH without a topic alias.
func (c *Connection) bare(it *item, now time.Time) Packet {
	p := Packet{
		Type: mqtt.TypePublish, PacketID: it.id, QoS: it.qos, Retain: it.flags.has(retain),
		Ref: it.ref(), Message: it.msg,
	}
	if c.version == mqtt.V5 {
		p.SubscriptionIDs = it.ids
		if p.HasExpiry = !it.msg.Expires.IsZero(); p.HasExpiry {
			p.Expiry = it.msg.remaining(now)
		}
	}
	return p
}
