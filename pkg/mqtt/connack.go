package mqtt

// AppendConnack appends a CONNACK with Session Present 0 and, in 5.0, no
// properties. It appends nothing where no CONNACK may be sent: for version 0,
// and in 3.x for a reason that has no return code (3.1.1 [MQTT-3.2.2-6]).
func AppendConnack(dst []byte, v Version, r Reason) []byte {
	return AppendConnackReason(dst, v, r, "")
}

// AppendConnackReason is AppendConnack with a Reason String for people, which
// 3.x has no place for. An empty string is left out, and so is one that MQTT
// cannot carry: not UTF-8, with U+0000, or over 65,535 bytes. The caller leaves
// it out too where it would make the packet larger than the client's Maximum
// Packet Size [MQTT-3.2.2-19].
func AppendConnackReason(dst []byte, v Version, r Reason, reasonString string) []byte {
	const head = byte(TypeConnack) << 4
	switch v {
	case V31, V311:
		code, ok := r.V3()
		if !ok {
			return dst
		}
		return append(dst, head, 2, 0, code)
	case V5:
		if reasonString == "" || !validText(reasonString) {
			return append(dst, head, 3, 0, byte(r), 0)
		}
		section := 1 + 2 + len(reasonString)
		dst = append(dst, head)
		dst = appendVarint(dst, 2+varintSize(section)+section)
		dst = append(dst, 0, byte(r))
		dst = appendVarint(dst, section)
		dst = append(dst, byte(PropReasonString))
		return appendField(dst, reasonString)
	default:
		return dst
	}
}

// Connack is a view of a CONNACK. Its byte fields alias the buffer that was
// parsed.
type Connack struct {
	SessionPresent bool
	Code           byte // as on the wire: a return code in 3.x, a reason code in 5.0

	// What follows is of 5.0 only.

	ServerKeepAlive    uint16 // seconds, instead of the client's where HasServerKeepAlive
	HasServerKeepAlive bool
	AssignedClientID   []byte
	ReasonString       []byte
	Properties         Properties
}

// Accepted says whether the server took the connection.
func (c Connack) Accepted() bool { return c.Code == 0 }

// Reason is the meaning of Code in both of its forms.
func (c Connack) Reason() Reason {
	if int(c.Code) < len(reasonOfV3) {
		return reasonOfV3[c.Code]
	}
	return Reason(c.Code)
}

// ParseConnack parses the CONNACK of version v that b starts with: n bytes. v
// is that of the CONNECT which it answers. A refusal in the form of 3.x is
// taken in answer to 5.0, too: a server that does not know 5.0 has no other.
//
// While b can still become a CONNACK, err is [ErrShort], and n is the length
// of the whole packet where that is known already, else 0. A *[PacketError]
// says that b starts with another packet or with a malformed CONNACK; in 5.0 an
// AUTH may lawfully come first (5 §4.12), and its Type tells. The caller bounds
// b: a CONNACK of 5.0 may be up to 256 MiB long.
func ParseConnack(b []byte, v Version) (c Connack, n int, err error) {
	if len(b) > 0 {
		switch t, flags := PacketType(b[0]>>4), b[0]&0x0F; {
		case t != TypeConnack:
			return c, 0, &PacketError{t, ProtocolError, "came where CONNACK was due [MQTT-3.2.0-1]"}
		case flags != 0:
			return c, 0, &PacketError{t, MalformedPacket, "reserved bits of the fixed header are set [MQTT-2.1.3-1]"}
		}
	}
	_, _, remaining, k, err := ParseFixedHeader(b)
	if err != nil {
		return c, 0, err
	}
	n = k + remaining
	p := cursor{b: b[:min(len(b), n)], pos: k, end: n, within: "packet"}
	c = p.connack(v, k)
	switch {
	case p.fault != nil:
		return Connack{}, 0, &PacketError{TypeConnack, p.fault.reason, p.fault.detail}
	case p.short:
		return Connack{}, n, ErrShort
	}
	return c, n, nil
}

// connack reads what stands behind a fixed header of head bytes.
func (p *cursor) connack(v Version, head int) (c Connack) {
	remaining := p.end - p.pos
	old := v != V5 || remaining == 2 // the form of 3.x
	switch {
	case old && remaining != 2:
		p.fail(malformed("remaining length is %d, has to be 2 in %s", remaining, v))
	case v == V5 && head > 1+varintSize(remaining):
		p.fail(malformed("remaining length is not in its shortest form [MQTT-1.5.5-1]"))
	case old:
		p.expect(1, 1)
	default:
		p.expect(1+1, 1+maxVarint)
	}
	flags := p.uint("acknowledge flags", 1)
	if !p.stopped() && v != V31 { // 3.1 calls the byte unused
		if flags&^1 != 0 {
			p.fail(malformed("acknowledge flags are 0x%02x: reserved bits are set [MQTT-3.2.2-1]", flags))
		}
		c.SessionPresent = flags == 1
	}
	p.take(1, 1)
	c.Code = byte(p.uint("reason code", 1))
	if p.stopped() {
		return c
	}
	switch {
	case c.SessionPresent && c.Code != 0:
		p.fail(protocolError("Session Present beside the refusal 0x%02x [MQTT-3.2.2-6] (3.1.1 [MQTT-3.2.2-4])", c.Code))
	case v == V5 && old && (c.Code == 0 || c.Code >= 0x80):
		p.fail(malformed("no property length (5 §3.2.2.3)"))
	case v == V5 && !old:
		p.connackProperties(&c)
	}
	return c
}

func (p *cursor) connackProperties(c *Connack) {
	p.take(1, maxVarint)
	s := p.section("properties of CONNACK", inConnack)
	for prop, ok := s.next(); ok; prop, ok = s.next() {
		switch prop.ID {
		case PropServerKeepAlive:
			c.ServerKeepAlive, c.HasServerKeepAlive = uint16(prop.Uint), true
		case PropAssignedClientIdentifier:
			c.AssignedClientID = prop.Value
		case PropReasonString:
			c.ReasonString = prop.Value
		}
	}
	c.Properties = p.leave(&s)
}
