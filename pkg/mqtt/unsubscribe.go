package mqtt

import "iter"

// Unsubscribe is an UNSUBSCRIBE. Parsed, it is a view: its byte fields alias
// the buffer.
type Unsubscribe struct {
	PacketID   uint16
	Filters    Filters
	Properties Properties // of 5.0 only
}

// ParseUnsubscribe parses the UNSUBSCRIBE of version v that b starts with: n
// bytes. n and err are as with [ParsePublish]. Of a Topic Filter it checks only
// that it is text and not empty.
func ParseUnsubscribe(b []byte, v Version) (u Unsubscribe, n int, err error) {
	p, err := open(b, v, inUnsubscribe)
	if err != nil {
		return Unsubscribe{}, 0, err
	}
	u.PacketID = p.requestID()
	if v == V5 {
		props := p.requestSection()
		for _, ok := props.next(); ok; _, ok = props.next() {
		}
		u.Properties = p.leave(&props)
	}
	start := p.pos
	p.expect(0, maxVarint) // further filters
	for !p.stopped() && p.left() > 0 {
		p.field("Topic Filter", filterFault)
	}
	if n, err = p.result(); err != nil {
		return Unsubscribe{}, n, err
	}
	u.Filters = Filters(p.b[start:p.end:p.end])
	return u, n, nil
}

// AppendUnsubscribe appends the UNSUBSCRIBE u in version v. It checks nothing
// and panics only at what cannot be written. Properties are left out in 3.x.
func AppendUnsubscribe(dst []byte, v Version, u Unsubscribe) []byte {
	return appendRequest(dst, TypeUnsubscribe, v, u.PacketID, u.Properties, u.Filters)
}

// Filters is the payload of an UNSUBSCRIBE as it goes over the wire. Those of a
// parsed packet are valid and alias its buffer. New ones are made by appending
// to nil.
type Filters []byte

// All gives the Topic Filters in their order, up to the first bytes that are
// none, which those of a parsed packet do not have.
func (f Filters) All() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		c := cursor{b: f, end: len(f), hi: maxVarint}
		for c.pos < c.end {
			filter := c.field("Topic Filter", nil)
			if c.stopped() || !yield(filter) {
				return
			}
		}
	}
}

// Len is how many filters there are, and so how many reason codes the UNSUBACK
// of 5.0 has to have.
func (f Filters) Len() (n int) {
	for range f.All() {
		n++
	}
	return n
}

// Append appends a Topic Filter. It panics if that is longer than 65,535 bytes.
func (f Filters) Append(filter []byte) Filters { return appendField(f, filter) }
