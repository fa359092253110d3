package mqtt

// AppendDisconnect appends a DISCONNECT. In 5.0 it carries r and no
// properties; in 3.x it has no body, whatever r is, and only a client may send
// it (C027: a server closes instead).
func AppendDisconnect(dst []byte, v Version, r Reason) []byte {
	const head = byte(TypeDisconnect) << 4
	if v != V5 || r == Success {
		return append(dst, head, 0)
	}
	return append(dst, head, 2, byte(r), 0)
}
