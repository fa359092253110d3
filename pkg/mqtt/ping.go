package mqtt

// ParsePing parses the PINGREQ or PINGRESP, told apart by t, that b starts
// with: n bytes. n and err are as with [ParsePublish].
func ParsePing(b []byte, v Version) (t PacketType, n int, err error) {
	p, err := open(b, v, 1<<TypePingreq|1<<TypePingresp)
	if err != nil {
		return 0, 0, err
	}
	return p.t, p.size, nil
}

// AppendPingreq appends a PINGREQ, the same in all versions.
func AppendPingreq(dst []byte) []byte { return append(dst, byte(TypePingreq)<<4, 0) }

// AppendPingresp appends a PINGRESP, the same in all versions.
func AppendPingresp(dst []byte) []byte { return append(dst, byte(TypePingresp)<<4, 0) }
