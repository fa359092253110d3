package mqtt

import "encoding/binary"

// Ack is a PUBACK, PUBREC, PUBREL or PUBCOMP. Parsed, it is a view: its
// Properties alias the buffer.
type Ack struct {
	Type     PacketType
	PacketID uint16

	// What follows is of 5.0 only.

	Reason     Reason // below 0x80: all is well
	Properties Properties
}

// ParseAck parses the PUBACK, PUBREC, PUBREL or PUBCOMP of version v that b
// starts with: n bytes. n and err are as with [ParsePublish].
func ParseAck(b []byte, v Version) (a Ack, n int, err error) {
	p, err := open(b, v, inPublishAck)
	if err != nil {
		return Ack{}, 0, err
	}
	a.Type = p.t
	// A reason without properties, or neither, may be all there is (5 §3.4.2.1,
	// §3.4.2.2.1).
	hasReason, hasProperties := p.left() > 2, p.left() > 3
	a.PacketID = p.packetID()
	if hasReason {
		a.Reason = p.reason(ackReasons(p.t))
	}
	if hasProperties {
		a.Properties = p.properties()
	}
	if n, err = p.result(); err != nil {
		return Ack{}, n, err
	}
	return a, n, nil
}

func ackReasons(t PacketType) []Reason {
	if t == TypePuback || t == TypePubrec {
		return publishReasons
	}
	return releaseReasons
}

// AppendAck appends a in version v, in the shortest form that says it. It
// checks nothing and panics only at what cannot be written.
//
// In 3.x Reason and Properties are left out, so that whatever Reason is, the
// other side reads an acceptance. Where that would be wrong, the caller closes
// the connection instead (3.1.1 [MQTT-3.3.5-2]).
func AppendAck(dst []byte, v Version, a Ack) []byte {
	var flags byte
	if a.Type == TypePubrel {
		flags = 1 << shiftQoS
	}
	size := 2
	hasProperties := v == V5 && len(a.Properties) > 0
	hasReason := v == V5 && (a.Reason != Success || hasProperties)
	if hasReason {
		size++
	}
	if hasProperties {
		size += sectionSize(a.Properties)
	}
	dst = appendHead(dst, a.Type, flags, size)
	dst = binary.BigEndian.AppendUint16(dst, a.PacketID)
	if hasReason {
		dst = append(dst, byte(a.Reason))
	}
	if hasProperties {
		dst = appendSection(dst, a.Properties)
	}
	return dst
}
