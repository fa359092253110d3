package mqtt

import "encoding/binary"

// Publish is a PUBLISH. Parsed, it is a view: its byte fields alias the buffer.
type Publish struct {
	Dup      bool
	QoS      byte // 0, 1 or 2
	Retain   bool
	Topic    []byte // empty only in 5.0 with a Topic Alias
	PacketID uint16 // not 0; at QoS 0 there is none
	Payload  []byte

	// What follows is of 5.0 only.

	Properties Properties

	// These are read out of Properties. AppendPublish does not look at them.

	PayloadFormat    byte // 1: Payload is said to be UTF-8, which nobody has checked yet
	HasPayloadFormat bool
	MessageExpiry    uint32 // seconds
	HasMessageExpiry bool
	TopicAlias       uint16 // 0: none
	ResponseTopic    []byte
	CorrelationData  []byte
	ContentType      []byte
	// HasSubscriptionID says that there are Subscription Identifiers, one or
	// more. A client must not send any [MQTT-3.3.4-6]: Protocol Error.
	HasSubscriptionID bool
}

// ParsePublish parses the PUBLISH of version v that b starts with: n bytes.
//
// While b can still become an acceptable PUBLISH, err is [ErrShort], and n is
// the length of the whole packet where that is known already, else 0. Anything
// else that is wrong is a *[PacketError], as early as the bytes allow. The
// caller bounds b, as with [NextFromClient].
//
// A Topic Alias is judged by itself, not against the maximum that was agreed,
// and Payload not against its format.
func ParsePublish(b []byte, v Version) (m Publish, n int, err error) {
	p, err := open(b, v, inPublish)
	if err != nil {
		return Publish{}, 0, err
	}
	m.QoS = p.flags & flagQoS >> shiftQoS
	m.Dup = p.flags&flagDup != 0 && m.QoS > 0
	m.Retain = p.flags&flagRetain != 0

	p.expect(0, maxVarint) // Payload
	if v == V5 {
		p.expect(1, maxVarint)
	}
	if m.QoS > 0 {
		p.expect(2, 2)
	}
	m.Topic = p.field("Topic Name", topicFault)
	if !p.stopped() && len(m.Topic) == 0 && v != V5 {
		p.fail(protocolError("Topic Name is empty [MQTT-4.7.3-1]"))
	}
	if m.QoS > 0 {
		p.take(2, 2)
		m.PacketID = p.packetID()
	}
	if v == V5 {
		p.take(1, maxVarint)
		p.publishProperties(&m)
	}
	m.Payload = p.rest()
	if n, err = p.result(); err != nil {
		return Publish{}, n, err
	}
	return m, n, nil
}

// publishProperties reads the properties of a PUBLISH (5 §3.3.2.3).
func (p *body) publishProperties(m *Publish) {
	s := p.section()
	for prop, ok := s.next(); ok; prop, ok = s.next() {
		switch prop.ID {
		case PropPayloadFormatIndicator:
			m.PayloadFormat, m.HasPayloadFormat = byte(prop.Uint), true
		case PropMessageExpiryInterval:
			m.MessageExpiry, m.HasMessageExpiry = prop.Uint, true
		case PropTopicAlias:
			m.TopicAlias = uint16(prop.Uint)
		case PropResponseTopic:
			m.ResponseTopic = prop.Value
		case PropCorrelationData:
			m.CorrelationData = prop.Value
		case PropContentType:
			m.ContentType = prop.Value
		case PropSubscriptionIdentifier:
			m.HasSubscriptionID = true
		}
	}
	if !s.stopped() && len(m.Topic) == 0 && m.TopicAlias == 0 {
		s.fail(protocolError("Topic Name is empty, and there is no Topic Alias (5 §3.3.2.1)"))
	}
	m.Properties = p.leave(&s)
}

// AppendPublish appends the PUBLISH m in version v. Like [AppendConnect], it
// checks nothing and panics only at what cannot be written. Properties are left
// out in 3.x, Dup and PacketID at QoS 0.
func AppendPublish(dst []byte, v Version, m Publish) []byte {
	flags := m.QoS << shiftQoS & flagQoS
	size := 2 + len(m.Topic) + len(m.Payload)
	if m.Retain {
		flags |= flagRetain
	}
	if m.QoS > 0 {
		size += 2
		if m.Dup {
			flags |= flagDup
		}
	}
	if v == V5 {
		size += sectionSize(m.Properties)
	}
	dst = appendHead(dst, TypePublish, flags, size)
	dst = appendField(dst, m.Topic)
	if m.QoS > 0 {
		dst = binary.BigEndian.AppendUint16(dst, m.PacketID)
	}
	if v == V5 {
		dst = appendSection(dst, m.Properties)
	}
	return append(dst, m.Payload...)
}
