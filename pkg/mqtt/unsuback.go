package mqtt

import "encoding/binary"

// Unsuback is an UNSUBACK. Parsed, it is a view: its byte fields alias the
// buffer.
type Unsuback struct {
	PacketID uint16

	// What follows is of 5.0 only.

	Codes      []byte // a [Reason] for each filter of the UNSUBSCRIBE, in the same order
	Properties Properties
}

// ParseUnsuback parses the UNSUBACK of version v that b starts with: n bytes. n
// and err are as with [ParsePublish].
func ParseUnsuback(b []byte, v Version) (u Unsuback, n int, err error) {
	p, err := open(b, v, 1<<TypeUnsuback)
	if err != nil {
		return Unsuback{}, 0, err
	}
	if v == V5 {
		p.expect(1+1, 2*maxVarint) // Properties, Codes
	}
	u.PacketID = p.packetID()
	if v == V5 {
		p.take(1, maxVarint)
		u.Properties = p.properties()
		u.Codes = p.codes(unsubscribeReasons)
	}
	if n, err = p.result(); err != nil {
		return Unsuback{}, n, err
	}
	return u, n, nil
}

// AppendUnsuback appends the UNSUBACK u in version v. It checks nothing and
// panics only at what cannot be written. In 3.x there is the Packet Identifier
// and nothing else.
func AppendUnsuback(dst []byte, v Version, u Unsuback) []byte {
	if v != V5 {
		dst = appendHead(dst, TypeUnsuback, 0, 2)
		return binary.BigEndian.AppendUint16(dst, u.PacketID)
	}
	dst = appendHead(dst, TypeUnsuback, 0, 2+sectionSize(u.Properties)+len(u.Codes))
	dst = binary.BigEndian.AppendUint16(dst, u.PacketID)
	return append(appendSection(dst, u.Properties), u.Codes...)
}
