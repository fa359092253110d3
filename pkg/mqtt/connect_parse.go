package mqtt

import "fmt"

// connectParser reads one CONNECT; its methods are the packet's parts in their
// order. Each does nothing once the cursor has stopped.
type connectParser struct {
	Connect
	cursor
	answer Version // to refuse in; 0 until the protocol level is there
}

// protocol reads the protocol name and level (§3.1.2.1, §3.1.2.2).
func (p *connectParser) protocol() {
	b := p.b[p.pos:]
	name := "\x00\x04MQTT"
	if len(b) > 1 && b[1] == 6 {
		name = "\x00\x06MQIsdp"
	}
	if left := p.end - p.pos; left < len(name)+1 {
		p.fail(malformed("a remaining length of %d is too short for a CONNECT to say its level", left))
		return
	}
	if got := b[:min(len(b), len(name))]; string(got) != name[:len(got)] {
		p.fail(&fault{UnsupportedProtocolVersion, fmt.Sprintf(
			"protocol name begins %q, not \"\\x00\\x04MQTT\" or \"\\x00\\x06MQIsdp\" [MQTT-3.1.2-1]", got)})
		return
	}
	if len(b) < len(name) {
		p.short = true
		return
	}
	p.pos += len(name)
	level := byte(p.uint("protocol level", 1))
	if p.stopped() {
		return
	}
	p.Level, p.Bridge = level, level&bridgeBit != 0
	v := Version(level &^ bridgeBit)
	p.answer = V311
	if v >= V5 {
		p.answer = V5
	}
	if v != V31 && v != V311 && v != V5 || v.protocolName() != name[2:] {
		p.fail(&fault{UnsupportedProtocolVersion, fmt.Sprintf(
			"protocol %q level 0x%02x is not supported [MQTT-3.1.2-2]", name[2:], level)})
		return
	}
	p.Version, p.answer = v, v
}

// known says that the version is known and nothing is wrong with it.
func (p *connectParser) known() bool { return p.Version != 0 && p.fault == nil }

// flags reads the connect flags (§3.1.2.3), and from them works out how long
// the rest of the packet can be.
func (p *connectParser) flags() {
	if !p.known() {
		return
	}
	p.expect(2+2, 0) // Keep Alive, length of the Client Identifier
	if p.Version == V5 {
		p.expect(1, 0) // length of the properties
	}
	f := byte(p.uint("connect flags", 1))
	if p.stopped() {
		return
	}
	p.Flags = f
	p.CleanStart = f&flagCleanStart != 0
	p.HasWill = f&flagWill != 0
	p.HasUsername = f&flagUsername != 0
	p.HasPassword = f&flagPassword != 0
	if p.HasWill {
		p.WillQoS = f & flagWillQoS >> shiftWillQoS
		p.WillRetain = f&flagWillRetain != 0
	}
	switch {
	case f&flagReserved != 0 && p.Version != V31:
		p.fail(malformed("reserved connect flag is set [MQTT-3.1.2-3]"))
	case p.WillQoS == 3:
		p.fail(malformed("Will QoS is 3 [MQTT-3.1.2-12] (3.1.1 [MQTT-3.1.2-14])"))
	case !p.HasWill && f&(flagWillQoS|flagWillRetain) != 0 && p.Version != V31:
		p.fail(malformed("Will QoS or Will Retain is set without a will [MQTT-3.1.2-11], [MQTT-3.1.2-13] (3.1.1 [MQTT-3.1.2-13], [MQTT-3.1.2-15])"))
	case p.HasPassword && !p.HasUsername && p.Version != V5:
		p.fail(malformed("password flag without user name flag (3.1.1 [MQTT-3.1.2-22])"))
	}

	p.lo, p.hi = 2, 2 // Keep Alive
	if p.Version == V5 {
		p.expect(1, maxVarint)
	}
	p.expect(2, 2+maxField)
	if p.HasWill {
		if p.Version == V5 {
			p.expect(1, maxVarint)
		}
		p.expect(2+1, 2+maxField)
		p.expect(2, 2+maxField)
	}
	if p.HasUsername {
		p.expect(p.leastCredential(), 2+maxField)
	}
	if p.HasPassword {
		p.expect(p.leastCredential(), 2+maxField)
	}
	if left := p.end - p.pos; left < p.lo || left > p.hi {
		p.fail(malformed("%d bytes cannot be the fields that the connect flags 0x%02x announce", left, f))
	}
}

// properties reads the properties of a 5.0 CONNECT (5 §3.1.2.11).
func (p *connectParser) properties() {
	if p.Version != V5 {
		return
	}
	p.take(1, maxVarint)
	s := p.section("properties of CONNECT", inConnect)
	for prop, ok := s.next(); ok; prop, ok = s.next() {
		switch prop.ID {
		case PropSessionExpiryInterval:
			p.SessionExpiry = prop.Uint
		case PropReceiveMaximum:
			p.ReceiveMaximum = uint16(prop.Uint)
		case PropMaximumPacketSize:
			p.MaximumPacketSize = prop.Uint
		case PropTopicAliasMaximum:
			p.TopicAliasMaximum = uint16(prop.Uint)
		case PropRequestResponseInformation:
			p.RequestResponseInfo = prop.Uint == 1
		case PropRequestProblemInformation:
			p.RequestProblemInfo = prop.Uint == 1
		case PropAuthenticationMethod:
			p.AuthMethod = prop.Value
		case PropAuthenticationData:
			p.AuthData = prop.Value
		}
	}
	if !s.stopped() && p.AuthData != nil && p.AuthMethod == nil {
		s.fail(protocolError("Authentication Data without Authentication Method (5 §3.1.2.11.10)"))
	}
	p.Properties = p.leave(&s)
}

// payload reads the fields behind the variable header (§3.1.3), whose order is
// fixed [MQTT-3.1.3-1].
func (p *connectParser) payload() {
	p.take(2, 2+maxField)
	p.ClientID = p.field("Client Identifier", textFault)
	if p.HasWill {
		p.will()
	}
	if p.HasUsername = p.HasUsername && !p.endsEarly(); p.HasUsername {
		p.take(p.leastCredential(), 2+maxField)
		p.Username = p.field("User Name", textFault)
	}
	if p.HasPassword = p.HasPassword && !p.endsEarly(); p.HasPassword {
		p.take(p.leastCredential(), 2+maxField)
		p.Password = p.field("Password", nil)
	}
	if p.stopped() {
		return
	}
	if len(p.ClientID) == 0 && (p.Version == V31 || p.Version == V311 && !p.CleanStart) {
		p.fail(&fault{ClientIdentifierNotValid, "Client Identifier is empty, which 3.1 never and 3.1.1 only with Clean Session 1 allows (3.1.1 [MQTT-3.1.3-8])"})
	}
}

// will reads the will (§3.1.3.2, §3.1.3.3; 5 §3.1.3.2 ff.).
func (p *connectParser) will() {
	if p.Version == V5 {
		p.take(1, maxVarint)
		s := p.section("properties of the will", inWill)
		for prop, ok := s.next(); ok; prop, ok = s.next() {
			if prop.ID == PropWillDelayInterval {
				p.WillDelay = prop.Uint
			}
		}
		p.WillProperties = p.leave(&s)
	}
	p.take(2+1, 2+maxField)
	p.WillTopic = p.field("Will Topic", topicFault)
	if !p.stopped() && len(p.WillTopic) == 0 {
		p.fail(protocolError("Will Topic is empty [MQTT-4.7.3-1]"))
	}
	p.take(2, 2+maxField)
	p.WillPayload = p.field("Will Payload", nil)
}

// endsEarly says that a 3.1 packet ends where its flags announce a user name or
// password, which is allowed: the remaining length takes precedence over these
// flags (3.1 §3.1).
func (p *connectParser) endsEarly() bool {
	return p.Version == V31 && !p.stopped() && p.pos == p.end
}

// leastCredential is the least room that a user name or password takes.
func (p *connectParser) leastCredential() int {
	if p.Version == V31 {
		return 0
	}
	return 2
}
