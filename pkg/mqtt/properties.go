package mqtt

import (
	"encoding/binary"
	"fmt"
	"iter"
)

// Properties is the inside of a property section as it goes over the wire,
// without the length before it. Nil is no properties. Those of a parsed packet
// are valid and alias its buffer. New ones are made by appending:
//
//	mqtt.Properties(nil).AppendUint(mqtt.PropReceiveMaximum, 20)
type Properties []byte

// Property is one property, decoded. Which fields it uses is told beside the
// constants of [PropertyID].
type Property struct {
	ID    PropertyID
	Uint  uint32
	Key   []byte
	Value []byte
}

// All gives the properties in their order, up to the first bytes that are
// none, which the Properties of a parsed packet do not have.
func (p Properties) All() iter.Seq[Property] {
	return func(yield func(Property) bool) {
		c := cursor{b: p, end: len(p), hi: maxVarint}
		for c.pos < c.end {
			id := PropertyID(c.uint("property identifier", 1))
			if prop := c.property(id); c.stopped() || !yield(prop) {
				return
			}
		}
	}
}

// section is a cursor over properties that stand in a packet or its will.
type section struct {
	cursor
	in    where
	seen  uint64 // a bit for each property met
	start int
}

// next reads the next property, or gives false at the section's end and where
// the cursor stops.
func (s *section) next() (Property, bool) {
	if s.stopped() || s.pos == s.end {
		return Property{}, false
	}
	s.expect(1, 0) // no property is a bare identifier
	id := PropertyID(s.uint("property identifier", 1))
	s.take(1, 0)
	if s.stopped() {
		return Property{}, false
	}
	switch r := id.rule(); {
	case r.in&s.in == 0:
		s.fail(malformed("%s (0x%02x) is not one of the %s (5 §2.2.2.2)", id, byte(id), s.within))
	case s.seen&(1<<id) != 0 && !id.mayRepeat(s.in):
		s.fail(protocolError("%s (0x%02x) comes twice", id, byte(id)))
	}
	s.seen |= 1 << id
	p := s.property(id)
	return p, !s.stopped()
}

// mayRepeat says whether a section may hold the property more than once. A
// PUBLISH has an identifier for each subscription that it matches (5 §3.3.2.3.8).
func (id PropertyID) mayRepeat(in where) bool {
	return id == PropUserProperty || id == PropSubscriptionIdentifier && in == inPublish
}

// property reads the value of a property behind its identifier.
func (c *cursor) property(id PropertyID) Property {
	p, r := Property{ID: id}, id.rule()
	switch r.kind {
	case kindByte:
		p.Uint = c.uint(r.name, 1)
	case kindUint16:
		p.Uint = c.uint(r.name, 2)
	case kindUint32:
		p.Uint = c.uint(r.name, 4)
	case kindVarint:
		p.Uint = c.varint(r.name)
	case kindText:
		p.Value = c.field(r.name, textFault)
	case kindTopic:
		p.Value = c.field(r.name, topicFault)
	case kindBinary:
		p.Value = c.field(r.name, nil)
	case kindPair:
		c.expect(2, 0)
		p.Key = c.field(r.name, textFault)
		c.take(2, 0)
		p.Value = c.field(r.name, textFault)
	default:
		c.fail(malformed("%s is unknown", id))
	}
	if c.stopped() {
		return Property{}
	}
	switch {
	case r.values == notZero && p.Uint == 0:
		c.fail(protocolError("%s is 0", id))
	case r.values == notZeroAlias && p.Uint == 0:
		c.fail(&fault{TopicAliasInvalid, "Topic Alias is 0 [MQTT-3.3.2-8] (5 §3.3.4)"})
	case r.values == zeroOrOne && p.Uint > 1:
		c.fail(protocolError("%s is %d, neither 0 nor 1", id, p.Uint))
	}
	return p
}

// Append appends any property, as All gives it: so are some of a packet's
// properties taken over into another's. It panics where AppendUint or
// AppendText would.
func (p Properties) Append(q Property) Properties {
	switch q.ID.rule().kind {
	case kindText, kindTopic, kindBinary:
		return appendField(append(p, byte(q.ID)), q.Value)
	case kindPair:
		return appendField(appendField(append(p, byte(q.ID)), q.Key), q.Value)
	}
	return p.AppendUint(q.ID, q.Uint)
}

// AppendUint appends an integer property, in the width that id has. It panics
// if id is no integer property or v is too large for it.
func (p Properties) AppendUint(id PropertyID, v uint32) Properties {
	p = append(p, byte(id))
	switch k := id.rule().kind; {
	case k == kindByte && v < 1<<8:
		return append(p, byte(v))
	case k == kindUint16 && v < 1<<16:
		return binary.BigEndian.AppendUint16(p, uint16(v))
	case k == kindUint32:
		return binary.BigEndian.AppendUint32(p, v)
	case k == kindVarint && v <= maxVarint:
		return appendVarint(p, int(v))
	}
	panic(fmt.Sprintf("mqtt: %s does not hold the integer %d", id, v))
}

// AppendText appends a text or binary property. It panics if id is neither or
// v is longer than 65,535 bytes; what v says is the caller's to get right.
func (p Properties) AppendText(id PropertyID, v string) Properties {
	switch id.rule().kind {
	case kindText, kindTopic, kindBinary:
		return appendField(append(p, byte(id)), v)
	}
	panic(fmt.Sprintf("mqtt: %s does not hold text", id))
}

// AppendUser appends a User Property. It panics if a part of it is longer than
// 65,535 bytes.
func (p Properties) AppendUser(key, value string) Properties {
	return appendField(appendField(append(p, byte(PropUserProperty)), key), value)
}
