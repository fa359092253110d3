package mqtt

import (
	"bytes"
	"encoding/binary"
)

// Subscribe is a SUBSCRIBE. Parsed, it is a view: its byte fields alias the
// buffer.
type Subscribe struct {
	PacketID      uint16
	Subscriptions Subscriptions

	// What follows is of 5.0 only.

	Properties     Properties
	SubscriptionID uint32 // read out of Properties; 0: none
}

// ParseSubscribe parses the SUBSCRIBE of version v that b starts with: n bytes.
// n and err are as with [ParsePublish].
//
// Of a Topic Filter it checks only that it is text and not empty. Where its
// wildcards stand and how a shared one is written is left to whoever gives each
// filter its reason code in the SUBACK.
func ParseSubscribe(b []byte, v Version) (s Subscribe, n int, err error) {
	p, err := open(b, v, inSubscribe)
	if err != nil {
		return Subscribe{}, 0, err
	}
	s.PacketID = p.requestID()
	if v == V5 {
		props := p.requestSection()
		for prop, ok := props.next(); ok; prop, ok = props.next() {
			if prop.ID == PropSubscriptionIdentifier {
				s.SubscriptionID = prop.Uint
			}
		}
		s.Properties = p.leave(&props)
	}
	start := p.pos
	for !p.stopped() && p.left() > 0 {
		filter, options := p.subscription(filterFault)
		if p.stopped() {
			break
		}
		if f := subscriptionFault(filter, options, v); f != nil {
			p.fail(f)
		}
	}
	if n, err = p.result(); err != nil {
		return Subscribe{}, n, err
	}
	s.Subscriptions = Subscriptions(p.b[start:p.end:p.end])
	return s, n, nil
}

var sharePrefix = []byte("$share/")

// subscriptionFault judges the options that follow a filter (3.1.1 §3.8.3;
// 5 §3.8.3.1). Those that 5.0 has are reserved in 3.x.
func subscriptionFault(filter []byte, options byte, v Version) *fault {
	qos := options & optionQoS
	switch {
	case v != V5 && (options&^optionQoS != 0 || qos == 3):
		return malformed("requested QoS is 0x%02x (3.1.1 [MQTT-3-8.3-4])", options)
	case v != V5:
		return nil
	case options&optionsReserved != 0:
		return malformed("subscription options are 0x%02x: reserved bits are set [MQTT-3.8.3-5]", options)
	case qos == 3:
		return protocolError("maximum QoS of a subscription is 3 (5 §3.8.3.1)")
	case options&optionRetainHandling == optionRetainHandling:
		return protocolError("Retain Handling is 3 (5 §3.8.3.1)")
	case options&optionNoLocal != 0 && bytes.HasPrefix(filter, sharePrefix):
		return protocolError("No Local on a shared subscription [MQTT-3.8.3-4]")
	}
	return nil
}

// requestID reads the Packet Identifier that SUBSCRIBE and UNSUBSCRIBE begin
// with. A packet that has no room for filters is refused before.
func (p *body) requestID() uint16 {
	properties := 0 // least bytes
	if p.v == V5 {
		properties = 1
	}
	if p.left() == 2+properties {
		p.fail(p.noFilter())
	}
	p.expect(properties, 0)
	id := p.packetID()
	p.take(properties, 0)
	return id
}

// requestSection reads the length of their properties, which has to leave room
// for filters.
func (p *body) requestSection() section {
	p.expect(0, maxVarint)
	s := p.section()
	p.take(0, maxVarint)
	if !s.stopped() && p.left() == 0 {
		s.fail(p.noFilter())
	}
	return s
}

func (p *body) noFilter() *fault {
	if p.t == TypeUnsubscribe {
		return protocolError("no Topic Filter [MQTT-3.10.3-2]")
	}
	return protocolError("no Topic Filter [MQTT-3.8.3-2] (3.1.1 [MQTT-3.8.3-3])")
}

// filterFault checks a Topic Filter as far as it has come.
func filterFault(what string, s []byte, whole bool) *fault {
	if whole && len(s) == 0 {
		return protocolError("%s is empty [MQTT-4.7.3-1]", what)
	}
	return textFault(what, s, whole)
}

// AppendSubscribe appends the SUBSCRIBE s in version v; SubscriptionID counts
// only as far as Properties hold it. It checks nothing and panics only at what
// cannot be written. Properties are left out in 3.x.
func AppendSubscribe(dst []byte, v Version, s Subscribe) []byte {
	return appendRequest(dst, TypeSubscribe, v, s.PacketID, s.Properties, s.Subscriptions)
}

// appendRequest appends a SUBSCRIBE or UNSUBSCRIBE.
func appendRequest(dst []byte, t PacketType, v Version, id uint16, props Properties, payload []byte) []byte {
	size := 2 + len(payload)
	if v == V5 {
		size += sectionSize(props)
	}
	dst = appendHead(dst, t, 1<<shiftQoS, size)
	dst = binary.BigEndian.AppendUint16(dst, id)
	if v == V5 {
		dst = appendSection(dst, props)
	}
	return append(dst, payload...)
}
