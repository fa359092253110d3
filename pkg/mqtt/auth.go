package mqtt

// Auth is an AUTH, which only 5.0 has. Parsed, it is a view: its byte fields
// alias the buffer.
type Auth struct {
	Reason     Reason
	Properties Properties

	// These are read out of Properties. AppendAuth does not look at them.

	Method       []byte
	Data         []byte
	ReasonString []byte
}

// ParseAuth parses the AUTH that b starts with: n bytes. n and err are as with
// [ParsePublish]; versions other than 5.0 are refused. The reason codes are
// held to those of the sender. Whether Method is that of CONNECT
// [MQTT-4.12.0-5], [MQTT-4.12.1-1] is left to the caller.
//
// An AUTH without a body stands for Success and names no method (5 §3.15.2.1),
// in spite of 5 §3.15.2.2.2, which calls a missing method a Protocol Error.
// Success being a server's to say, it is taken from a server.
func ParseAuth(b []byte, v Version, from Sender) (a Auth, n int, err error) {
	p, err := open(b, v, inAuth)
	if err != nil {
		return Auth{}, 0, err
	}
	switch {
	case p.left() > 0:
		p.expect(1, 0) // length of the properties
		a.Reason = p.reason(authReasons[from])
		p.take(1, 0)
		p.authProperties(&a)
	case from == FromClient:
		p.fail(wrongReason(byte(Success)))
	}
	if n, err = p.result(); err != nil {
		return Auth{}, n, err
	}
	return a, n, nil
}

func (p *body) authProperties(a *Auth) {
	s := p.section()
	for prop, ok := s.next(); ok; prop, ok = s.next() {
		switch prop.ID {
		case PropAuthenticationMethod:
			a.Method = prop.Value
		case PropAuthenticationData:
			a.Data = prop.Value
		case PropReasonString:
			a.ReasonString = prop.Value
		}
	}
	if !s.stopped() && a.Method == nil {
		s.fail(protocolError("no Authentication Method (5 §3.15.2.2.2)"))
	}
	a.Properties = p.leave(&s)
}

// AppendAuth appends the AUTH a of 5.0, without a body where it says Success
// and nothing else. It checks nothing and panics only at what cannot be
// written.
func AppendAuth(dst []byte, a Auth) []byte {
	if a.Reason == Success && len(a.Properties) == 0 {
		return appendHead(dst, TypeAuth, 0, 0)
	}
	dst = appendHead(dst, TypeAuth, 0, 1+sectionSize(a.Properties))
	return appendSection(append(dst, byte(a.Reason)), a.Properties)
}
