package mqtt

// Disconnect is a DISCONNECT. Parsed, it is a view: its byte fields alias the
// buffer. That of 3.x says nothing, and the zero value stands for it.
type Disconnect struct {
	Reason     Reason
	Properties Properties

	// These are read out of Properties. AppendDisconnectPacket does not look at
	// them.

	// SessionExpiry replaces what CONNECT said, in seconds. Whether it may do so
	// depends on CONNECT (5 §3.14.2.2.2) and is left to the caller.
	SessionExpiry    uint32
	HasSessionExpiry bool
	ReasonString     []byte
	ServerReference  []byte
}

// ParseDisconnect parses the DISCONNECT of version v that b starts with: n
// bytes. n and err are as with [ParsePublish]. In 5.0 the reason codes are held
// to those of the sender, and a server must not send a Session Expiry Interval
// [MQTT-3.14.2-2]. That in 3.x only a client sends a DISCONNECT is not judged.
func ParseDisconnect(b []byte, v Version, from Sender) (d Disconnect, n int, err error) {
	p, err := open(b, v, inDisconnect)
	if err != nil {
		return Disconnect{}, 0, err
	}
	// A reason without properties, or neither, may be all there is (5 §3.14.2.1,
	// §3.14.2.2.1).
	hasReason, hasProperties := p.left() > 0, p.left() > 1
	if hasReason {
		d.Reason = p.reason(disconnectReasons[from])
	}
	if hasProperties {
		p.disconnectProperties(&d, from)
	}
	if n, err = p.result(); err != nil {
		return Disconnect{}, n, err
	}
	return d, n, nil
}

func (p *body) disconnectProperties(d *Disconnect, from Sender) {
	s := p.section()
	for prop, ok := s.next(); ok; prop, ok = s.next() {
		switch prop.ID {
		case PropSessionExpiryInterval:
			if from == FromServer {
				s.fail(protocolError("Session Expiry Interval from a server [MQTT-3.14.2-2]"))
			}
			d.SessionExpiry, d.HasSessionExpiry = prop.Uint, true
		case PropReasonString:
			d.ReasonString = prop.Value
		case PropServerReference:
			d.ServerReference = prop.Value
		}
	}
	d.Properties = p.leave(&s)
}

// AppendDisconnect appends a DISCONNECT. In 5.0 it carries r and no
// properties; in 3.x it has no body, whatever r is, and only a client may send
// it (C027: a server closes instead).
func AppendDisconnect(dst []byte, v Version, r Reason) []byte {
	return AppendDisconnectPacket(dst, v, Disconnect{Reason: r})
}

// AppendDisconnectPacket is AppendDisconnect with properties. It checks nothing
// and panics only at what cannot be written.
func AppendDisconnectPacket(dst []byte, v Version, d Disconnect) []byte {
	if v != V5 || d.Reason == Success && len(d.Properties) == 0 {
		return appendHead(dst, TypeDisconnect, 0, 0)
	}
	dst = appendHead(dst, TypeDisconnect, 0, 1+sectionSize(d.Properties))
	return appendSection(append(dst, byte(d.Reason)), d.Properties)
}
