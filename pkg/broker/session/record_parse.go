package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// ErrRecordVersion is a record that a newer program has written.
var ErrRecordVersion = errors.New("session: record of an unknown version")

// ParseRecord reads what [Record.Append] wrote, and nothing else: each record
// has one encoding. The result holds nothing of b.
//
// Errors: [ErrRecordVersion]; else b is damaged, and the error says where.
func ParseRecord(b []byte) (Record, error) {
	d := decoder{b: b}
	if v := d.byte("version"); d.err == nil && v != recordVersion {
		return Record{}, fmt.Errorf("%w: %d", ErrRecordVersion, v)
	}
	flags := d.byte("flags")
	d.require(flags < recordShares<<1, "flags")
	r := Record{
		ClientID: d.text("client id"),
		Identity: d.text("identity"),
		Expiry:   uint32(d.uint("expiry", math.MaxUint32)),
	}
	if flags&recordConnected != 0 {
		r.Connected = d.time("connected")
	}
	if flags&recordOffline != 0 {
		r.Disconnected = d.time("disconnected")
	}
	r.Cursors = d.list("cursors")
	d.subscriptions(&r)
	d.unacknowledged(&r)
	if flags&recordWill != 0 {
		r.Will = d.will()
	}
	if flags&recordShares != 0 {
		d.shares(&r)
	}
	d.require(len(d.b) == 0, "end")
	if d.err != nil {
		return Record{}, d.err
	}
	return r, nil
}

// decoder reads from b until the first thing that is wrong, then gives zeroes.
type decoder struct {
	b   []byte
	err error
}

// require stops at what: it is damaged unless ok.
func (d *decoder) require(ok bool, what string) {
	if !ok && d.err == nil {
		d.err = fmt.Errorf("session: damaged record: %s", what)
		d.b = nil
	}
}

func (d *decoder) byte(what string) byte {
	d.require(len(d.b) > 0, what)
	if d.err != nil {
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) uint(what string, most uint64) uint64 {
	v, n := binary.Uvarint(d.b)
	d.require(n > 0 && v <= most && (n == 1 || d.b[n-1] != 0), what) // a last byte of 0 is one too many
	if d.err != nil {
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count reads the length of what takes at least a byte each.
func (d *decoder) count(what string) int {
	n := d.uint(what, math.MaxInt)
	d.require(n <= uint64(len(d.b)), what)
	if d.err != nil {
		return 0
	}
	return int(n)
}

func (d *decoder) text(what string) string {
	n := d.count(what)
	v := string(d.b[:n])
	d.b = d.b[n:]
	return v
}

// time reads milliseconds, up to the year 2262, which nanoseconds can tell.
func (d *decoder) time(what string) time.Time {
	ms := d.uint(what, math.MaxInt64/uint64(time.Millisecond))
	return time.UnixMilli(int64(ms)).UTC()
}

func (d *decoder) list(what string) []uint64 {
	n := d.count(what)
	if n == 0 {
		return nil
	}
	v := make([]uint64, n)
	for i := range v {
		v[i] = d.uint(what, math.MaxUint64)
	}
	return v
}

func (d *decoder) subscriptions(r *Record) {
	const what = "subscription"
	last := ""
	for i := range d.count(what) {
		filter := d.text(what)
		d.require(i == 0 || filter > last, "order of subscriptions")
		last = filter
		options := d.byte(what)
		b := Subscription{
			Filter:            filter,
			QoS:               options & subQoS,
			NoLocal:           options&subNoLocal != 0,
			RetainAsPublished: options&subAsPublished != 0,
			RetainHandling:    mqtt.RetainHandling(options & subRetainHandling >> shiftRetainHandling),
			ID:                uint32(d.uint(what, maxSubscriptionID)),
		}
		d.require(b.QoS <= 2 && b.RetainHandling <= mqtt.DontSendRetained && options < subSince<<1, "options of a subscription")
		if options&subSince != 0 {
			b.since = d.list(what)
			d.require(len(b.since) > 0 && len(b.since) <= len(r.Cursors), "start of a subscription")
		}
		if d.err != nil {
			return
		}
		r.Subscriptions = append(r.Subscriptions, b)
	}
}

// maxSubscriptionID is the largest Subscription Identifier (5 §3.3.2.3.8).
const maxSubscriptionID = 1<<28 - 1

func (d *decoder) unacknowledged(r *Record) {
	const what = "unacknowledged message"
	n := d.count(what)
	if n == 0 {
		return
	}
	var used [1 << 16 / 64]uint64
	unsent := false
	for range n {
		flags := d.byte(what)
		u := Unacknowledged{
			QoS:      flags & unackedQoS,
			Retain:   flags&unackedRetain != 0,
			Shared:   flags&unackedShared != 0,
			Released: flags&unackedReleased != 0,
		}
		d.require(u.QoS == 1 || u.QoS == 2, "QoS of an unacknowledged message")
		d.require(!u.Released || u.QoS == 2 && flags&unackedUnsent == 0, "state of an unacknowledged message")
		d.require(flags < unackedUnlogged<<1, "flags of an unacknowledged message")
		if flags&unackedUnsent == 0 {
			u.PacketID = uint16(d.uint(what, math.MaxUint16))
			bit := uint64(1) << (u.PacketID % 64)
			d.require(u.PacketID != 0 && !unsent && used[u.PacketID/64]&bit == 0, "packet identifier")
			used[u.PacketID/64] |= bit
		} else {
			unsent = true
			d.require(flags&unackedUnlogged != 0, "state of an unacknowledged message")
		}
		if flags&unackedUnlogged == 0 {
			u.Ref = Ref{int(d.uint(what, math.MaxUint16)), d.uint(what, math.MaxUint64)}
			d.require(u.Ref.Seq != 0, "place of an unacknowledged message")
		} else {
			u.Topic = d.text(what)
		}
		for range d.count(what) {
			id := uint32(d.uint(what, maxSubscriptionID))
			d.require(id != 0, "subscription identifier")
			u.SubscriptionIDs = append(u.SubscriptionIDs, id)
		}
		if d.err != nil {
			return
		}
		r.Unacknowledged = append(r.Unacknowledged, u)
	}
}

func (d *decoder) will() *Will {
	const what = "will"
	flags := d.byte(what)
	w := &Will{
		QoS:         flags & willQoS,
		Retain:      flags&willRetain != 0,
		HasLifetime: flags&willLifetime != 0,
		Topic:       d.text(what),
	}
	d.require(w.QoS <= 2 && flags < willLifetime<<1, "flags of a will")
	if p := d.text(what); p != "" {
		w.Payload = []byte(p)
	}
	if p := d.text(what); p != "" {
		w.Properties = []byte(p)
	}
	w.Delay = uint32(d.uint(what, math.MaxUint32))
	if w.HasLifetime {
		w.Lifetime = uint32(d.uint(what, math.MaxUint32))
	}
	return w
}

func (d *decoder) shares(r *Record) {
	const what = "shared subscription"
	var names []string
	for i := range d.count(what) {
		name := d.text(what)
		d.require(name != "" && (i == 0 || name > names[i-1]), what)
		names = append(names, name)
	}
	d.require(len(names) > 0, what)
	name := func(n uint64) string {
		if d.err != nil || n == 0 {
			return ""
		}
		return names[n-1]
	}
	for i := range r.Unacknowledged {
		if u := &r.Unacknowledged[i]; u.Shared {
			u.Share = name(d.uint(what, uint64(len(names))))
		}
	}
	for i := range d.count(what) {
		done := Shared{name(d.uint(what, uint64(len(names)))), Ref{int(d.uint(what, math.MaxUint16)), d.uint(what, math.MaxUint64)}}
		d.require(done.Share != "" && done.Ref.Seq != 0 && (i == 0 || r.Done[i-1].compare(done) < 0), what)
		if d.err != nil {
			return
		}
		r.Done = append(r.Done, done)
	}
	d.require(len(r.shares()) == len(names), what) // each is of use
}
