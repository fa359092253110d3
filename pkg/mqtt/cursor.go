package mqtt

import "encoding/binary"

// cursor reads the inside of a packet whose last bytes may not have come yet.
// It stops at the first fault, or where the bytes end (short); from then on
// each read gives zero, so that callers may check once for several reads.
//
// Lengths are judged before there is anything to read: end is where the packet
// says that it ends, and lo and hi bound what has to stand between the next
// read and end. So a length that cannot be right is a fault as soon as its
// bytes are there.
type cursor struct {
	b      []byte // what has come, cut at end
	pos    int
	end    int    // may lie past len(b)
	lo, hi int    // least and most bytes behind the next read
	within string // what ends at end, for errors

	short bool
	fault *fault
}

func (c *cursor) stopped() bool { return c.short || c.fault != nil }

func (c *cursor) fail(f *fault) {
	if c.fault == nil {
		c.fault = f
	}
}

// expect says that least to most more bytes have to follow the next read.
func (c *cursor) expect(least, most int) { c.lo += least; c.hi += most }

// take says that the next read is of something expected: least to most bytes.
func (c *cursor) take(least, most int) { c.lo -= least; c.hi -= most }

// noRoom is the fault of a part that is size bytes long or longer.
func (c *cursor) noRoom(what string, size int) *fault {
	if c.lo > 0 {
		return malformed("%s: %d bytes are left of the %s, too few for its %d and the %d or more behind it",
			what, c.end-c.pos, c.within, size, c.lo)
	}
	return malformed("%s: %d bytes are left of the %s, too few for its %d", what, c.end-c.pos, c.within, size)
}

// leftOver is the fault of a part that cannot be long enough.
func (c *cursor) leftOver(what string, size, over int) *fault {
	return malformed("%s of %d bytes leaves %d bytes over at the end of the %s", what, size, over, c.within)
}

// uint reads an unsigned integer of 1, 2 or 4 bytes.
func (c *cursor) uint(what string, width int) uint32 {
	switch {
	case c.stopped():
		return 0
	case c.pos+width+c.lo > c.end:
		c.fail(c.noRoom(what, width))
		return 0
	case c.pos+width > len(c.b):
		c.short = true
		return 0
	}
	v := c.b[c.pos : c.pos+width]
	c.pos += width
	switch width {
	case 1:
		return uint32(v[0])
	case 2:
		return uint32(binary.BigEndian.Uint16(v))
	default:
		return binary.BigEndian.Uint32(v)
	}
}

// varint reads a variable byte integer, which has to be as short as it can be.
func (c *cursor) varint(what string) uint32 {
	if c.stopped() {
		return 0
	}
	v, n, st := readVarint(c.b[c.pos:])
	switch {
	case st == varintTooLong, st == varintDone && n > varintSize(v):
		c.fail(malformed("%s is not a variable byte integer in its shortest form [MQTT-1.5.5-1]", what))
	case st == varintShort && c.pos+n+1+c.lo > c.end, c.pos+n+c.lo > c.end:
		c.fail(c.noRoom(what, n))
	case st == varintShort:
		c.short = true
	default:
		c.pos += n
		return uint32(v)
	}
	return 0
}

// field reads two bytes of length and as many bytes behind them. check, if
// there is one, judges them as far as they have come.
func (c *cursor) field(what string, check func(what string, f []byte, whole bool) *fault) []byte {
	if c.stopped() {
		return nil
	}
	b, left := c.b[c.pos:], c.end-c.pos
	least, most := 0, maxField
	if len(b) > 0 {
		least = int(b[0]) << 8
		most = least | 0xFF
	}
	if len(b) > 1 {
		least |= int(b[1])
		most = least
	}
	switch {
	case 2+least+c.lo > left:
		c.fail(c.noRoom(what, least))
		return nil
	case 2+most+c.hi < left:
		c.fail(c.leftOver(what, most, left-2-most-c.hi))
		return nil
	case len(b) < 2:
		c.short = true
		return nil
	}
	f := b[2:min(2+least, len(b)):min(2+least, len(b))]
	whole := len(f) == least
	if check != nil {
		if ft := check(what, f, whole); ft != nil {
			c.fail(ft)
			return nil
		}
	}
	if !whole {
		c.short = true
		return nil
	}
	c.pos += 2 + least
	return f
}

// section reads the length of a property section and gives a cursor over its
// inside, which may hold the properties that stand in the given packets.
func (c *cursor) section(what string, in where) section {
	if c.stopped() {
		return section{cursor: cursor{short: c.short, fault: c.fault}}
	}
	left := c.end - c.pos
	v, n, st := readVarint(c.b[c.pos:])
	if st == varintShort {
		n++
	}
	switch {
	case st == varintTooLong, st == varintDone && n > varintSize(v):
		c.fail(malformed("length of the %s is not in its shortest form [MQTT-1.5.5-1]", what))
	case n+v+c.lo > left:
		c.fail(c.noRoom(what, v))
	case st == varintShort:
		c.short = true
	case n+v+c.hi < left:
		c.fail(c.leftOver(what, v, left-n-v-c.hi))
	}
	start := c.pos + n
	c.pos = start + v
	return section{
		cursor: cursor{
			b: c.b[:min(len(c.b), c.pos)], pos: start, end: c.pos, hi: maxVarint, within: what,
			short: c.short, fault: c.fault,
		},
		in:    in,
		start: start,
	}
}

// leave goes on behind a section that has been read, or stops where its
// cursor has, and gives the properties read.
func (c *cursor) leave(s *section) Properties {
	c.short, c.fault = s.short, s.fault
	if c.stopped() {
		return nil
	}
	return Properties(s.b[s.start:s.end:s.end])
}
