package mqtt

// maxVarint is the largest variable byte integer (5 §1.5.5), and its length.
const (
	maxVarint      = MaxRemainingLength
	maxVarintBytes = 4
)

type varintState byte

const (
	varintDone    varintState = iota
	varintShort               // b ends inside it; v is the least value it can still take
	varintTooLong             // a fifth byte would have to follow
)

// readVarint reads a variable byte integer of n bytes. It accepts encodings
// longer than need be; n tells: see varintSize.
func readVarint(b []byte) (v, n int, st varintState) {
	for i := range maxVarintBytes {
		if i == len(b) {
			if i > 0 {
				v += 1 << (7 * i) // what follows is not zero, else it need not follow
			}
			return v, i, varintShort
		}
		v |= int(b[i]&0x7F) << (7 * i)
		if b[i] < 0x80 {
			return v, i + 1, varintDone
		}
	}
	return 0, 0, varintTooLong
}

// varintSize is the number of bytes of the shortest encoding, the only one
// that 5.0 allows [MQTT-1.5.5-1].
func varintSize(v int) int {
	switch {
	case v < 1<<7:
		return 1
	case v < 1<<14:
		return 2
	case v < 1<<21:
		return 3
	default:
		return 4
	}
}

func appendVarint(dst []byte, v int) []byte {
	if v < 0 || v > maxVarint {
		panic("mqtt: length does not fit a variable byte integer")
	}
	for v >= 0x80 {
		dst = append(dst, byte(v)|0x80)
		v >>= 7
	}
	return append(dst, byte(v))
}
