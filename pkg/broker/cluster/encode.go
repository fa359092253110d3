package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"
)

// The log is written in packs: one engine message holds the messages that came
// while the one before was being synced, so that they share a write and a sync
// (docs/adr/0008-store.md). A pack is
//
//	version 1, number of messages, messages
//
// and a message
//
//	flags, topic, [publisher], [properties], [expiry], [DedupID], payload
//
// with numbers as unsigned varints, strings and bytes behind their length, and
// the expiry in milliseconds since 1970. Brackets are there if a flag says so. A
// retained message is a pack of one.

const packVersion = 1

// A pack holds at most so many messages and, if it holds several, bytes. The
// number is what a position has room for. The bytes are a trade: a message that
// is kept in memory keeps its pack there.
const (
	indexBits = 10
	maxPack   = 1 << indexBits
	packBytes = 64 << 10
)

// A position's sequence number is that of the pack in the engine and the place
// in the pack.
func seqOf(engine uint64, index int) uint64 { return engine<<indexBits | uint64(index) }

func engineSeq(seq uint64) uint64 { return seq >> indexBits }

func packIndex(seq uint64) int { return int(seq & (maxPack - 1)) }

const (
	flagQoS        = 3
	flagRetain     = 1 << 2
	flagPublisher  = 1 << 3
	flagProperties = 1 << 4
	flagExpires    = 1 << 5
	flagDedupID    = 1 << 6
	flagsKnown     = 1<<7 - 1
)

// encodedSize is at least what appendMessage appends.
func encodedSize(m *Message) int {
	return 1 + 5*binary.MaxVarintLen32 + binary.MaxVarintLen64 +
		len(m.Topic) + len(m.Publisher) + len(m.Properties) + len(m.DedupID) + len(m.Payload)
}

func appendPackHeader(b []byte, n int) []byte {
	return binary.AppendUvarint(append(b, packVersion), uint64(n))
}

func appendMessage(b []byte, m *Message) []byte {
	flags := m.QoS & flagQoS
	if m.Retain {
		flags |= flagRetain
	}
	if m.Publisher != "" {
		flags |= flagPublisher
	}
	if len(m.Properties) > 0 {
		flags |= flagProperties
	}
	if !m.Expires.IsZero() {
		flags |= flagExpires
	}
	if m.DedupID != "" {
		flags |= flagDedupID
	}
	b = append(b, flags)
	b = appendString(b, m.Topic)
	if m.Publisher != "" {
		b = appendString(b, m.Publisher)
	}
	if len(m.Properties) > 0 {
		b = appendString(b, m.Properties)
	}
	if !m.Expires.IsZero() {
		b = binary.AppendUvarint(b, uint64(max(0, m.Expires.UnixMilli())))
	}
	if m.DedupID != "" {
		b = appendString(b, m.DedupID)
	}
	return appendString(b, m.Payload)
}

func appendString[T ~string | ~[]byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var errPack = errors.New("a pack of messages is damaged")

// parsePack gives a pack's messages, which go on to use b. taken is when the
// store took them.
func parsePack(b []byte, taken time.Time) ([]Message, error) {
	d := decoder{b: b}
	if v := d.byte(); v != packVersion && d.err == nil {
		return nil, fmt.Errorf("%w: it is of version %d, which this program does not know", errPack, v)
	}
	n := d.uint()
	if n > maxPack || n > uint64(len(d.b)) {
		return nil, errPack
	}
	ms := make([]Message, n)
	for i := range ms {
		m := &ms[i]
		flags := d.byte()
		if flags&^flagsKnown != 0 {
			return nil, errPack
		}
		m.QoS, m.Retain, m.Time = flags&flagQoS, flags&flagRetain != 0, taken
		m.Topic = d.string()
		if flags&flagPublisher != 0 {
			m.Publisher = d.string()
		}
		if flags&flagProperties != 0 {
			m.Properties = d.bytes()
		}
		if flags&flagExpires != 0 {
			m.Expires = time.UnixMilli(int64(d.uint()))
		}
		if flags&flagDedupID != 0 {
			m.DedupID = d.string()
		}
		m.Payload = d.bytes()
	}
	if d.err != nil || len(d.b) != 0 {
		return nil, errPack
	}
	return ms, nil
}

// expired says whether m must not be delivered any more.
func (m *Message) expired(now time.Time) bool { return !m.Expires.IsZero() && !now.Before(m.Expires) }

// decoder reads one field after another; after a mistake, nothing.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.err = errPack
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.err, d.b = errPack, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) bytes() []byte {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.err, d.b = errPack, nil
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

// string shares b's memory, as bytes does: nobody writes to it any more.
func (d *decoder) string() string {
	v := d.bytes()
	return unsafe.String(unsafe.SliceData(v), len(v))
}

// AppendMessage appends a message as one node sends it to another: all but its
// Time.
func AppendMessage(dst []byte, m *Message) []byte {
	return appendMessage(appendPackHeader(dst, 1), m)
}

// ParseMessage reads what AppendMessage wrote. The message aliases b.
func ParseMessage(b []byte) (*Message, error) {
	pack, err := parsePack(b, time.Time{})
	if err != nil {
		return nil, err
	}
	if len(pack) != 1 {
		return nil, errPack
	}
	return &pack[0], nil
}
