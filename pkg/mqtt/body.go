package mqtt

import "slices"

// body is a cursor over what stands behind a fixed header.
type body struct {
	cursor
	head
	v Version
}

// open reads the fixed header that b starts with, which has to be that of a
// packet in due, and gives the body behind it. The error is [ErrShort] or a
// *[PacketError].
func open(b []byte, v Version, due where) (body, error) {
	if len(b) > 0 {
		if t := PacketType(b[0] >> 4); due&(1<<t) == 0 {
			return body{}, &PacketError{t, ProtocolError, "came where " + due.String() + " was due"}
		}
	}
	h, err := readHead(b, v)
	if err != nil {
		return body{}, err
	}
	return body{
		cursor: cursor{b: b[:min(len(b), h.size)], pos: h.n, end: h.size, within: "packet"},
		head:   h,
		v:      v,
	}, nil
}

// result is what a parser gives beside the packet that it has read.
func (p *body) result() (n int, err error) {
	switch {
	case p.fault != nil:
		return 0, &PacketError{p.t, p.fault.reason, p.fault.detail}
	case p.short:
		return p.size, ErrShort
	}
	return p.size, nil
}

// left is how many bytes the packet still has.
func (p *body) left() int { return p.end - p.pos }

// packetID reads a Packet Identifier, which is never 0.
func (p *body) packetID() uint16 {
	id := uint16(p.uint("Packet Identifier", 2))
	if !p.stopped() && id == 0 {
		p.fail(protocolError("Packet Identifier is 0 [MQTT-2.2.1-3] (3.1.1 [MQTT-2.3.1-1])"))
	}
	return id
}

// reason reads a reason code, which has to be one of those allowed.
func (p *body) reason(allowed []Reason) Reason {
	r := Reason(p.uint("reason code", 1))
	if !p.stopped() && !slices.Contains(allowed, r) {
		p.fail(wrongReason(byte(r)))
	}
	return r
}

func wrongReason(code byte) *fault {
	return protocolError("0x%02x is not one of the packet's reason codes (5 §2.4)", code)
}

// section reads the length of the packet's property section.
func (p *body) section() section {
	return p.cursor.section("packet's properties", 1<<p.t)
}

// properties reads a property section of which nothing is looked at.
func (p *body) properties() Properties {
	s := p.section()
	for _, ok := s.next(); ok; _, ok = s.next() {
	}
	return p.leave(&s)
}

// codes reads the list of codes, one for each filter, that ends a packet. Those
// that are not allowed are refused as they come.
func (p *body) codes(allowed []Reason) []byte {
	if p.stopped() {
		return nil
	}
	for _, code := range p.b[p.pos:] {
		if !slices.Contains(allowed, Reason(code)) {
			p.fail(wrongReason(code))
			return nil
		}
	}
	return p.rest()
}

// rest reads all that the packet still has.
func (p *body) rest() []byte {
	if p.stopped() {
		return nil
	}
	if len(p.b) < p.end {
		p.short = true
		return nil
	}
	rest := p.b[p.pos:p.end:p.end]
	p.pos = p.end
	return rest
}
