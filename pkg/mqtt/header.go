package mqtt

// head is a fixed header that the version allows.
type head struct {
	t     PacketType
	flags byte
	n     int // bytes of the header
	size  int // bytes of the whole packet
}

// readHead reads the fixed header that b starts with and judges it for
// version v, flags before length. The error is [ErrShort] or a *[PacketError].
func readHead(b []byte, v Version) (head, error) {
	if len(b) > 0 {
		t := PacketType(b[0] >> 4)
		if f := flagsFault(t, b[0]&0x0F, v); f != nil {
			return head{}, &PacketError{t, f.reason, f.detail}
		}
	}
	t, flags, remaining, n, err := ParseFixedHeader(b)
	if err != nil {
		return head{}, err
	}
	if f := lengthFault(t, remaining, n-1, v); f != nil {
		return head{}, &PacketError{t, f.reason, f.detail}
	}
	return head{t, flags, n, n + remaining}, nil
}

// The flags of PUBLISH (§3.3.1). Those of the other packets are reserved.
const (
	flagRetain = 1 << 0
	flagQoS    = 3 << 1
	flagDup    = 1 << 3

	shiftQoS = 1
)

// flagsFault judges the flags of a fixed header. MQTT 3.1 lets a client say
// that PUBREL, SUBSCRIBE and UNSUBSCRIBE are duplicates (3.1 §2.1), and says
// nothing against a duplicate at QoS 0, which it disregards.
func flagsFault(t PacketType, flags byte, v Version) *fault {
	switch t {
	case 0: // reserved whatever its flags, as ParseFixedHeader says
		return nil
	case TypePublish:
		switch qos := flags & flagQoS >> shiftQoS; {
		case qos == 3:
			return malformed("QoS is 3 [MQTT-3.3.1-4]")
		case qos == 0 && flags&flagDup != 0 && v != V31:
			return malformed("DUP is set at QoS 0 [MQTT-3.3.1-2]")
		}
		return nil
	case TypePubrel, TypeSubscribe, TypeUnsubscribe:
		const qos1 = 1 << shiftQoS // as 3.1 calls it
		if flags != qos1 && (v != V31 || flags != qos1|flagDup) {
			return malformed("flags are 0x%x, have to be 0x%x [MQTT-2.1.3-1] (3.1.1 [MQTT-2.2.2-2])", flags, qos1)
		}
		return nil
	case TypeAuth:
		if v != V5 {
			return malformed("packet type 15 is reserved in %s", v)
		}
	}
	if flags != 0 {
		return malformed("flags are 0x%x, have to be 0 [MQTT-2.1.3-1] (3.1.1 [MQTT-2.2.2-2])", flags)
	}
	return nil
}

// lengthFault judges a remaining length that took n bytes to say, as far as
// the packet type alone tells what it can be.
func lengthFault(t PacketType, remaining, n int, v Version) *fault {
	if v == V5 && n > varintSize(remaining) {
		return malformed("remaining length is not in its shortest form [MQTT-1.5.5-1]")
	}
	want := remaining
	switch t {
	case TypePingreq, TypePingresp:
		want = 0
	case TypeDisconnect:
		if v != V5 {
			want = 0
		}
	case TypePuback, TypePubrec, TypePubrel, TypePubcomp, TypeUnsuback:
		if v != V5 {
			want = 2
		}
	}
	if remaining != want {
		return malformed("remaining length is %d, has to be %d in %s", remaining, want, v)
	}
	return nil
}

// appendHead appends a fixed header. It panics if remaining is more than
// four bytes can say.
func appendHead(dst []byte, t PacketType, flags byte, remaining int) []byte {
	return appendVarint(append(dst, byte(t)<<4|flags), remaining)
}
