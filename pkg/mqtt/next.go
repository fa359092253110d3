package mqtt

import "fmt"

// NextFromClient says which packet b goes on with, where b is what a client
// sent behind its CONNECT: the read loop of a server asks it before it hands
// b[:n] to the parser of t. It judges the fixed header alone: whether a client
// may send such a packet, its flags, and its length, which max bounds. max
// counts the whole packet in bytes, fixed header included, as Maximum Packet
// Size does (5 §3.2.2.3.6); 0 leaves only the protocol's own limit.
//
// While the packet is not whole, err is [ErrShort]; t and n, the length of the
// whole packet, are given as soon as they are known, else 0. A *[PacketError]
// ends the connection: 5.0 says its Reason in a DISCONNECT, which is
// [PacketTooLarge] for a packet over max, whether or not its body has come.
func NextFromClient(b []byte, v Version, max int) (t PacketType, n int, err error) {
	if len(b) == 0 {
		return 0, 0, ErrShort
	}
	t = PacketType(b[0] >> 4)
	switch t {
	case TypeConnect:
		return 0, 0, &PacketError{t, ProtocolError, "a second CONNECT [MQTT-3.1.0-2]"}
	case TypeConnack, TypeSuback, TypeUnsuback, TypePingresp:
		return 0, 0, &PacketError{t, ProtocolError, "came from a client, and only a server sends it (§2.2.1; 5 §2.1.2)"}
	}
	h, err := readHead(b, v)
	switch {
	case err == ErrShort:
		return t, 0, err
	case err != nil:
		return 0, 0, err
	case max > 0 && h.size > max:
		return 0, 0, &PacketError{t, PacketTooLarge, fmt.Sprintf("packet of %d bytes is larger than the %d allowed", h.size, max)}
	case h.size > len(b):
		return t, h.size, ErrShort
	}
	return t, h.size, nil
}
