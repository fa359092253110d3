package mqtt

import (
	"errors"
	"fmt"
)

// ErrShort says that the bytes so far may still become an acceptable packet:
// read more and call again with all of them.
var ErrShort = errors.New("mqtt: packet is not complete yet")

// ConnectError says why bytes are no acceptable CONNECT and what the client is
// owed for them.
type ConnectError struct {
	// Version is the one to answer in. Zero: close without an answer, since
	// these bytes do not speak MQTT or do not say in which version.
	Version Version
	// Reason is what to answer. A 3.x client is owed an answer only where
	// [Reason.V3] has one; [AppendConnack] knows both rules.
	Reason Reason
	// Detail says what is wrong, for logs. It holds no credentials.
	Detail string
}

func (e *ConnectError) Error() string {
	return fmt.Sprintf("CONNECT: %s (0x%02x): %s", e.Reason, byte(e.Reason), e.Detail)
}

// PacketError says why bytes are not the packet that was due.
type PacketError struct {
	Type   PacketType // of the packet that came
	Reason Reason
	Detail string
}

func (e *PacketError) Error() string {
	return fmt.Sprintf("%s: %s (0x%02x): %s", e.Type, e.Reason, byte(e.Reason), e.Detail)
}

// fault is what is wrong with a part of a packet. The packet's parser makes
// the exported error of it. Nil is no fault.
type fault struct {
	reason Reason
	detail string
}

func malformed(format string, args ...any) *fault {
	return &fault{MalformedPacket, fmt.Sprintf(format, args...)}
}

func protocolError(format string, args ...any) *fault {
	return &fault{ProtocolError, fmt.Sprintf(format, args...)}
}
