package mqtt

import (
	"fmt"
	"strings"
)

// PropertyID names a property of an MQTT 5.0 packet (5 §2.2.2.2).
type PropertyID byte

// The properties of MQTT 5.0 and how [Property] carries each: Uint for
// integers, Value for text and binary data, Key and Value for pairs.
const (
	PropPayloadFormatIndicator          PropertyID = 0x01 // byte, 0 or 1
	PropMessageExpiryInterval           PropertyID = 0x02 // four byte integer, seconds
	PropContentType                     PropertyID = 0x03 // text
	PropResponseTopic                   PropertyID = 0x08 // text, no wildcards
	PropCorrelationData                 PropertyID = 0x09 // binary
	PropSubscriptionIdentifier          PropertyID = 0x0B // variable byte integer, not 0
	PropSessionExpiryInterval           PropertyID = 0x11 // four byte integer, seconds
	PropAssignedClientIdentifier        PropertyID = 0x12 // text
	PropServerKeepAlive                 PropertyID = 0x13 // two byte integer, seconds
	PropAuthenticationMethod            PropertyID = 0x15 // text
	PropAuthenticationData              PropertyID = 0x16 // binary
	PropRequestProblemInformation       PropertyID = 0x17 // byte, 0 or 1
	PropWillDelayInterval               PropertyID = 0x18 // four byte integer, seconds
	PropRequestResponseInformation      PropertyID = 0x19 // byte, 0 or 1
	PropResponseInformation             PropertyID = 0x1A // text
	PropServerReference                 PropertyID = 0x1C // text
	PropReasonString                    PropertyID = 0x1F // text
	PropReceiveMaximum                  PropertyID = 0x21 // two byte integer, not 0
	PropTopicAliasMaximum               PropertyID = 0x22 // two byte integer
	PropTopicAlias                      PropertyID = 0x23 // two byte integer, not 0
	PropMaximumQoS                      PropertyID = 0x24 // byte, 0 or 1
	PropRetainAvailable                 PropertyID = 0x25 // byte, 0 or 1
	PropUserProperty                    PropertyID = 0x26 // pair of texts, may repeat
	PropMaximumPacketSize               PropertyID = 0x27 // four byte integer, bytes, not 0
	PropWildcardSubscriptionAvailable   PropertyID = 0x28 // byte, 0 or 1
	PropSubscriptionIdentifierAvailable PropertyID = 0x29 // byte, 0 or 1
	PropSharedSubscriptionAvailable     PropertyID = 0x2A // byte, 0 or 1
)

// String gives the specification's name, or the identifier in hexadecimal
// where the specification has none.
func (id PropertyID) String() string {
	if r := id.rule(); r.kind != kindNone {
		return r.name
	}
	return fmt.Sprintf("property 0x%02x", byte(id))
}

// kind is how a property's value is written.
type kind byte

const (
	kindNone kind = iota // no such property
	kindByte
	kindUint16
	kindUint32
	kindVarint
	kindText
	kindTopic // text without wildcards
	kindBinary
	kindPair
)

// where is a set of the packets that a property may stand in: bit n for packet
// type n, and bit 0, which no packet has, for the will within CONNECT.
type where uint16

const (
	inWill        where = 1
	inConnect     where = 1 << TypeConnect
	inConnack     where = 1 << TypeConnack
	inPublish     where = 1 << TypePublish
	inSubscribe   where = 1 << TypeSubscribe
	inUnsubscribe where = 1 << TypeUnsubscribe
	inDisconnect  where = 1 << TypeDisconnect
	inAuth        where = 1 << TypeAuth
	inPublishAck  where = 1<<TypePuback | 1<<TypePubrec | 1<<TypePubrel | 1<<TypePubcomp
	inAck               = inPublishAck | 1<<TypeSuback | 1<<TypeUnsuback
	inMessage           = inPublish | inWill
	inAnyPacket         = inWill | inConnect | inConnack | inPublish | inAck | inSubscribe | inUnsubscribe | inDisconnect | inAuth
)

// String gives the packets' names, such as "PINGREQ or PINGRESP".
func (w where) String() string {
	var names []string
	for t := TypeConnect; t <= TypeAuth; t++ {
		if w&(1<<t) != 0 {
			names = append(names, t.String())
		}
	}
	return strings.Join(names, " or ")
}

// values is the range that a property's integer is held to.
type values byte

const (
	anyValue values = iota
	notZero
	notZeroAlias // as notZero, with a reason of its own
	zeroOrOne
)

// rule is one row of the table of properties in 5 §2.2.2.2, with the range of
// values that the property's own section adds.
type rule struct {
	name   string
	kind   kind
	in     where
	values values
}

// rule gives a row of kindNone for an identifier that names no property.
func (id PropertyID) rule() *rule {
	if int(id) < len(rules) {
		return &rules[id]
	}
	return &rules[0]
}

var rules = [...]rule{
	PropPayloadFormatIndicator:          {"Payload Format Indicator", kindByte, inMessage, zeroOrOne},
	PropMessageExpiryInterval:           {"Message Expiry Interval", kindUint32, inMessage, anyValue},
	PropContentType:                     {"Content Type", kindText, inMessage, anyValue},
	PropResponseTopic:                   {"Response Topic", kindTopic, inMessage, anyValue},
	PropCorrelationData:                 {"Correlation Data", kindBinary, inMessage, anyValue},
	PropSubscriptionIdentifier:          {"Subscription Identifier", kindVarint, inPublish | inSubscribe, notZero},
	PropSessionExpiryInterval:           {"Session Expiry Interval", kindUint32, inConnect | inConnack | inDisconnect, anyValue},
	PropAssignedClientIdentifier:        {"Assigned Client Identifier", kindText, inConnack, anyValue},
	PropServerKeepAlive:                 {"Server Keep Alive", kindUint16, inConnack, anyValue},
	PropAuthenticationMethod:            {"Authentication Method", kindText, inConnect | inConnack | inAuth, anyValue},
	PropAuthenticationData:              {"Authentication Data", kindBinary, inConnect | inConnack | inAuth, anyValue},
	PropRequestProblemInformation:       {"Request Problem Information", kindByte, inConnect, zeroOrOne},
	PropWillDelayInterval:               {"Will Delay Interval", kindUint32, inWill, anyValue},
	PropRequestResponseInformation:      {"Request Response Information", kindByte, inConnect, zeroOrOne},
	PropResponseInformation:             {"Response Information", kindText, inConnack, anyValue},
	PropServerReference:                 {"Server Reference", kindText, inConnack | inDisconnect, anyValue},
	PropReasonString:                    {"Reason String", kindText, inConnack | inAck | inDisconnect | inAuth, anyValue},
	PropReceiveMaximum:                  {"Receive Maximum", kindUint16, inConnect | inConnack, notZero},
	PropTopicAliasMaximum:               {"Topic Alias Maximum", kindUint16, inConnect | inConnack, anyValue},
	PropTopicAlias:                      {"Topic Alias", kindUint16, inPublish, notZeroAlias},
	PropMaximumQoS:                      {"Maximum QoS", kindByte, inConnack, zeroOrOne},
	PropRetainAvailable:                 {"Retain Available", kindByte, inConnack, zeroOrOne},
	PropUserProperty:                    {"User Property", kindPair, inAnyPacket, anyValue},
	PropMaximumPacketSize:               {"Maximum Packet Size", kindUint32, inConnect | inConnack, notZero},
	PropWildcardSubscriptionAvailable:   {"Wildcard Subscription Available", kindByte, inConnack, zeroOrOne},
	PropSubscriptionIdentifierAvailable: {"Subscription Identifier Available", kindByte, inConnack, zeroOrOne},
	PropSharedSubscriptionAvailable:     {"Shared Subscription Available", kindByte, inConnack, zeroOrOne},
}
