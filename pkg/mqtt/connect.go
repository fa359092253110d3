package mqtt

import "fmt"

// Connect is a view of a CONNECT packet. Its byte fields alias the buffer that
// was parsed. Fields that the packet does not have are zero, or the default
// that the specification gives them where one is named here.
type Connect struct {
	Level   byte // as sent, bridge bit included
	Version Version
	// Bridge says that bit 7 of the level is set, as bridges do which want
	// their own messages not to come back (C003).
	Bridge bool

	Flags       byte // as sent
	CleanStart  bool // Clean Session in 3.x
	HasWill     bool
	WillQoS     byte
	WillRetain  bool
	HasUsername bool // an empty user name is one, too
	HasPassword bool
	KeepAlive   uint16 // seconds; 0 is none

	ClientID    []byte
	WillTopic   []byte
	WillPayload []byte
	Username    []byte
	Password    []byte

	// What follows is of 5.0 only.

	Properties     Properties
	WillProperties Properties

	SessionExpiry       uint32 // seconds; 0xFFFFFFFF never expires
	ReceiveMaximum      uint16 // default 65,535
	MaximumPacketSize   uint32 // bytes; 0 is no limit
	TopicAliasMaximum   uint16
	RequestResponseInfo bool
	RequestProblemInfo  bool // default true
	AuthMethod          []byte
	AuthData            []byte
	WillDelay           uint32 // seconds
}

// The bits of the connect flags (§3.1.2.3).
const (
	flagReserved   = 1 << 0
	flagCleanStart = 1 << 1
	flagWill       = 1 << 2
	flagWillQoS    = 3 << 3
	flagWillRetain = 1 << 5
	flagPassword   = 1 << 6
	flagUsername   = 1 << 7

	shiftWillQoS = 3
	bridgeBit    = 0x80
)

// ParseConnect parses the CONNECT that b starts with: n bytes. A packet larger
// than max bytes, fixed header included, is refused as soon as its protocol
// level is there to say how; max 0 leaves only the protocol's own limit.
//
// While nothing in b rules out an acceptable CONNECT, err is [ErrShort], and n
// is the length of the whole packet where that is known already, else 0. Each
// call starts afresh, so a caller who is fed in crumbs saves work by calling
// again when its bytes have doubled or n is reached.
//
// Anything else that is wrong is a *[ConnectError], as early as the bytes
// allow. Only a Client Identifier that is empty where it must not be waits for
// the rest of its packet, because it is owed a CONNACK if and only if that is
// well-formed (3.1.1 [MQTT-3.1.4-1], [MQTT-3.1.3-8]). Beside an error, c holds
// the fields that came before it, for logs.
//
// MQTT 3.1 is held to its own text: it disregards Will QoS and Will Retain
// without a will and lets user name and password be missing at the end of the
// packet whatever their flags say; HasUsername and HasPassword tell what came.
func ParseConnect(b []byte, max int) (c Connect, n int, err error) {
	if len(b) == 0 {
		return c, 0, ErrShort
	}
	if b[0] != byte(TypeConnect)<<4 {
		return c, 0, notConnect(b)
	}
	remaining, k, st := readVarint(b[1:])
	switch st {
	case varintShort:
		return c, 0, ErrShort
	case varintTooLong:
		return c, 0, &ConnectError{0, MalformedPacket, longRemainingLength}
	}
	n = 1 + k + remaining
	p := connectParser{
		Connect: Connect{ReceiveMaximum: 65535, RequestProblemInfo: true},
		cursor:  cursor{b: b[:min(len(b), n)], pos: 1 + k, end: n, hi: maxVarint, within: "packet"},
	}
	p.protocol()
	if p.known() && max > 0 && n > max {
		p.fail(&fault{PacketTooLarge, fmt.Sprintf("packet of %d bytes is larger than the %d allowed", n, max)})
	}
	if p.known() && p.Version == V5 && k > varintSize(remaining) {
		p.fail(malformed("remaining length is not in its shortest form [MQTT-1.5.5-1]"))
	}
	p.flags()
	p.take(2, 2)
	p.KeepAlive = uint16(p.uint("Keep Alive", 2))
	p.properties()
	p.payload()
	switch {
	case p.fault != nil:
		if p.Version == V5 && p.Bridge && p.fault.reason == MalformedPacket {
			// 5.0 has no bridge bit, so what does not read as 5.0 is not 5.0 (C003).
			p.fault.reason = UnsupportedProtocolVersion
		}
		return p.Connect, 0, &ConnectError{p.answer, p.fault.reason, p.fault.detail}
	case p.short:
		return Connect{}, n, ErrShort
	}
	return p.Connect, n, nil
}
