package mqtt

import "fmt"

// Reason is an MQTT 5.0 reason code (5 §2.4). It names outcomes in every
// version; [Reason.V3] gives what 3.x has for it.
type Reason byte

// The reason codes of MQTT 5.0. Success is also "Normal disconnection" and
// "Granted QoS 0", by the packet that carries it.
const (
	Success                             Reason = 0x00
	GrantedQoS1                         Reason = 0x01
	GrantedQoS2                         Reason = 0x02
	DisconnectWithWillMessage           Reason = 0x04
	NoMatchingSubscribers               Reason = 0x10
	NoSubscriptionExisted               Reason = 0x11
	ContinueAuthentication              Reason = 0x18
	ReAuthenticate                      Reason = 0x19
	UnspecifiedError                    Reason = 0x80
	MalformedPacket                     Reason = 0x81
	ProtocolError                       Reason = 0x82
	ImplementationSpecificError         Reason = 0x83
	UnsupportedProtocolVersion          Reason = 0x84
	ClientIdentifierNotValid            Reason = 0x85
	BadUserNameOrPassword               Reason = 0x86
	NotAuthorized                       Reason = 0x87
	ServerUnavailable                   Reason = 0x88
	ServerBusy                          Reason = 0x89
	Banned                              Reason = 0x8A
	ServerShuttingDown                  Reason = 0x8B
	BadAuthenticationMethod             Reason = 0x8C
	KeepAliveTimeout                    Reason = 0x8D
	SessionTakenOver                    Reason = 0x8E
	TopicFilterInvalid                  Reason = 0x8F
	TopicNameInvalid                    Reason = 0x90
	PacketIdentifierInUse               Reason = 0x91
	PacketIdentifierNotFound            Reason = 0x92
	ReceiveMaximumExceeded              Reason = 0x93
	TopicAliasInvalid                   Reason = 0x94
	PacketTooLarge                      Reason = 0x95
	MessageRateTooHigh                  Reason = 0x96
	QuotaExceeded                       Reason = 0x97
	AdministrativeAction                Reason = 0x98
	PayloadFormatInvalid                Reason = 0x99
	RetainNotSupported                  Reason = 0x9A
	QoSNotSupported                     Reason = 0x9B
	UseAnotherServer                    Reason = 0x9C
	ServerMoved                         Reason = 0x9D
	SharedSubscriptionsNotSupported     Reason = 0x9E
	ConnectionRateExceeded              Reason = 0x9F
	MaximumConnectTime                  Reason = 0xA0
	SubscriptionIdentifiersNotSupported Reason = 0xA1
	WildcardSubscriptionsNotSupported   Reason = 0xA2
)

// String gives the specification's name, or the code in hexadecimal where the
// specification has none.
func (r Reason) String() string {
	if int(r) < len(reasonNames) && reasonNames[r] != "" {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason code 0x%02x", byte(r))
}

var reasonNames = [...]string{
	Success:                             "Success",
	GrantedQoS1:                         "Granted QoS 1",
	GrantedQoS2:                         "Granted QoS 2",
	DisconnectWithWillMessage:           "Disconnect with Will Message",
	NoMatchingSubscribers:               "No matching subscribers",
	NoSubscriptionExisted:               "No subscription existed",
	ContinueAuthentication:              "Continue authentication",
	ReAuthenticate:                      "Re-authenticate",
	UnspecifiedError:                    "Unspecified error",
	MalformedPacket:                     "Malformed Packet",
	ProtocolError:                       "Protocol Error",
	ImplementationSpecificError:         "Implementation specific error",
	UnsupportedProtocolVersion:          "Unsupported Protocol Version",
	ClientIdentifierNotValid:            "Client Identifier not valid",
	BadUserNameOrPassword:               "Bad User Name or Password",
	NotAuthorized:                       "Not authorized",
	ServerUnavailable:                   "Server unavailable",
	ServerBusy:                          "Server busy",
	Banned:                              "Banned",
	ServerShuttingDown:                  "Server shutting down",
	BadAuthenticationMethod:             "Bad authentication method",
	KeepAliveTimeout:                    "Keep Alive timeout",
	SessionTakenOver:                    "Session taken over",
	TopicFilterInvalid:                  "Topic Filter invalid",
	TopicNameInvalid:                    "Topic Name invalid",
	PacketIdentifierInUse:               "Packet Identifier in use",
	PacketIdentifierNotFound:            "Packet Identifier not found",
	ReceiveMaximumExceeded:              "Receive Maximum exceeded",
	TopicAliasInvalid:                   "Topic Alias invalid",
	PacketTooLarge:                      "Packet too large",
	MessageRateTooHigh:                  "Message rate too high",
	QuotaExceeded:                       "Quota exceeded",
	AdministrativeAction:                "Administrative action",
	PayloadFormatInvalid:                "Payload format invalid",
	RetainNotSupported:                  "Retain not supported",
	QoSNotSupported:                     "QoS not supported",
	UseAnotherServer:                    "Use another server",
	ServerMoved:                         "Server moved",
	SharedSubscriptionsNotSupported:     "Shared Subscriptions not supported",
	ConnectionRateExceeded:              "Connection rate exceeded",
	MaximumConnectTime:                  "Maximum connect time",
	SubscriptionIdentifiersNotSupported: "Subscription Identifiers not supported",
	WildcardSubscriptionsNotSupported:   "Wildcard Subscriptions not supported",
}

// V3 gives the CONNACK return code of MQTT 3.1 and 3.1.1 that says r: 0 for
// Success, else 1 to 5. Without one that fits, ok is false and the connection
// is closed without a CONNACK (3.1.1 [MQTT-3.2.2-6]).
//
// A server that is full, slows its clients down, shuts down or sends them
// elsewhere says 3 (Server unavailable), the one code that invites a later
// attempt. What a client did wrong in the packet itself has no code.
func (r Reason) V3() (code byte, ok bool) {
	switch r {
	case Success:
		return 0, true
	case UnsupportedProtocolVersion:
		return 1, true
	case ClientIdentifierNotValid:
		return 2, true
	case ServerUnavailable, ServerBusy, ServerShuttingDown, QuotaExceeded,
		UseAnotherServer, ServerMoved, ConnectionRateExceeded:
		return 3, true
	case BadUserNameOrPassword:
		return 4, true
	case NotAuthorized, Banned, BadAuthenticationMethod:
		return 5, true
	default:
		return 0, false
	}
}

// reasonOfV3 is the meaning of a 3.x return code, itself no 5.0 reason code.
var reasonOfV3 = [...]Reason{
	0: Success,
	1: UnsupportedProtocolVersion,
	2: ClientIdentifierNotValid,
	3: ServerUnavailable,
	4: BadUserNameOrPassword,
	5: NotAuthorized,
}
