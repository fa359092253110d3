package mqtt

import "strconv"

// PacketType is the upper half of a packet's first byte.
type PacketType byte

const (
	TypeConnect     PacketType = 1
	TypeConnack     PacketType = 2
	TypePublish     PacketType = 3
	TypePuback      PacketType = 4
	TypePubrec      PacketType = 5
	TypePubrel      PacketType = 6
	TypePubcomp     PacketType = 7
	TypeSubscribe   PacketType = 8
	TypeSuback      PacketType = 9
	TypeUnsubscribe PacketType = 10
	TypeUnsuback    PacketType = 11
	TypePingreq     PacketType = 12
	TypePingresp    PacketType = 13
	TypeDisconnect  PacketType = 14
	TypeAuth        PacketType = 15 // 5.0 only
)

var packetTypeNames = [16]string{
	"reserved packet type 0", "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP",
	"SUBSCRIBE", "SUBACK", "UNSUBSCRIBE", "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT", "AUTH",
}

// String gives the specification's name, such as "PUBLISH".
func (t PacketType) String() string {
	if int(t) < len(packetTypeNames) {
		return packetTypeNames[t]
	}
	return "packet type " + strconv.Itoa(int(t))
}

// MaxRemainingLength is the largest length that four bytes can carry, in
// bytes: 256 MiB less one (§2.2.3; 5 §2.1.4).
const MaxRemainingLength = 1<<28 - 1

// ParseFixedHeader reads the fixed header that b starts with: n bytes, behind
// which remaining more belong to the packet. It returns [ErrShort] while the
// header is not whole and a *[PacketError] for the reserved packet type 0 and
// for a length that goes on past its fourth byte.
//
// It takes the flags as they are. Those that a packet type allows differ
// between the versions: 3.1 lets SUBSCRIBE and PUBREL be duplicates.
func ParseFixedHeader(b []byte) (t PacketType, flags byte, remaining, n int, err error) {
	if len(b) == 0 {
		return 0, 0, 0, 0, ErrShort
	}
	t, flags = PacketType(b[0]>>4), b[0]&0x0F
	if t == 0 {
		return 0, 0, 0, 0, errReservedType
	}
	remaining, k, st := readVarint(b[1:])
	switch st {
	case varintShort:
		return 0, 0, 0, 0, ErrShort
	case varintTooLong:
		return 0, 0, 0, 0, &PacketError{t, MalformedPacket, longRemainingLength}
	}
	return t, flags, remaining, 1 + k, nil
}

const longRemainingLength = "the remaining length goes on past its fourth byte (5 [MQTT-1.5.5-1], 3.1.1 §2.2.3)"

var errReservedType = &PacketError{0, MalformedPacket, "packet type 0 is reserved"}
