package mqtt

import "encoding/binary"

// Suback is a SUBACK. Parsed, it is a view: its byte fields alias the buffer.
type Suback struct {
	PacketID uint16
	// Codes has one for each filter of the SUBSCRIBE, in the same order: the
	// granted QoS, or from 0x80 on why there is no subscription. In 5.0 each is
	// a [Reason]; 3.x has only 0x80.
	Codes      []byte
	Properties Properties // of 5.0 only
}

// ParseSuback parses the SUBACK of version v that b starts with: n bytes. n and
// err are as with [ParsePublish].
func ParseSuback(b []byte, v Version) (s Suback, n int, err error) {
	p, err := open(b, v, 1<<TypeSuback)
	if err != nil {
		return Suback{}, 0, err
	}
	allowed := subscribeReasons3
	p.expect(1, maxVarint) // Codes
	if v == V5 {
		allowed = subscribeReasons
		p.expect(1, maxVarint)
	}
	s.PacketID = p.packetID()
	if v == V5 {
		p.take(1, maxVarint)
		s.Properties = p.properties()
	}
	s.Codes = p.codes(allowed)
	if n, err = p.result(); err != nil {
		return Suback{}, n, err
	}
	return s, n, nil
}

// AppendSuback appends the SUBACK s in version v. It checks nothing and panics
// only at what cannot be written. In 3.x Properties are left out, and codes
// from 0x80 on become 0x80 (3.1.1 [MQTT-3.9.3-2]).
func AppendSuback(dst []byte, v Version, s Suback) []byte {
	size := 2 + len(s.Codes)
	if v == V5 {
		size += sectionSize(s.Properties)
	}
	dst = appendHead(dst, TypeSuback, 0, size)
	dst = binary.BigEndian.AppendUint16(dst, s.PacketID)
	if v == V5 {
		return append(appendSection(dst, s.Properties), s.Codes...)
	}
	for _, code := range s.Codes {
		dst = append(dst, min(code, byte(UnspecifiedError)))
	}
	return dst
}
