package broker

import (
	"cmp"
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
)

// SharesKey is the record of shared subscriptions: who deals, and how far.
const SharesKey = "dealer"

// dealRecord is that record. Whoever writes its name into it, by compare-and-swap,
// is the dealer from then on.
type dealRecord struct {
	Node   string // the dealer; empty: nobody, anyone may be
	Epoch  uint64 // how often that has changed
	Groups []dealGroup
	Heard  map[string]heard // the last report of each node that is in it
}

// heard is a report, as numbered by its node.
type heard struct{ Sync, Number uint64 }

// dealGroup is how far a shared subscription is: up to its place in each shard,
// every message has ended with a member, but for the holes; behind it none has,
// but for those that have. A dealer that takes over reads from the place on, while
// members end what they have had from the one before.
type dealGroup struct {
	Share  string
	Places []uint64
	Holes  []session.Ref // in order
	Ended  []session.Ref // in order
}

// dealRecordVersion is the second: the first had no Ended.
const dealRecordVersion = 2

var errDealRecord = errors.New("not the record of shared subscriptions")

func compareRefs(a, b session.Ref) int {
	return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Seq, b.Seq))
}

func (r *dealRecord) append(dst []byte) []byte {
	number := func(v uint64) { dst = binary.AppendUvarint(dst, v) }
	text := func(s string) {
		number(uint64(len(s)))
		dst = append(dst, s...)
	}
	refs := func(all []session.Ref) {
		number(uint64(len(all)))
		var last session.Ref
		for _, r := range all {
			if r.Shard != last.Shard {
				last.Seq = 0
			}
			number(uint64(r.Shard))
			number(r.Seq - last.Seq)
			last = r
		}
	}
	dst = append(dst, dealRecordVersion)
	text(r.Node)
	number(r.Epoch)
	number(uint64(len(r.Groups)))
	for _, g := range r.Groups {
		text(g.Share)
		number(uint64(len(g.Places)))
		for _, seq := range g.Places {
			number(seq)
		}
		refs(g.Holes)
		refs(g.Ended)
	}
	number(uint64(len(r.Heard)))
	for node, h := range r.Heard {
		text(node)
		number(h.Sync)
		number(h.Number)
	}
	return dst
}

func parseDealRecord(b []byte) (r dealRecord, err error) {
	bad := len(b) == 0 || b[0] == 0 || b[0] > dealRecordVersion
	first := !bad && b[0] == 1
	number := func() uint64 {
		if bad {
			return 0
		}
		v, n := binary.Uvarint(b)
		if bad = n <= 0; bad {
			return 0
		}
		b = b[n:]
		return v
	}
	text := func() string {
		n := number()
		if bad = bad || n > uint64(len(b)); bad {
			return ""
		}
		s := string(b[:n])
		b = b[n:]
		return s
	}
	refs := func() (all []session.Ref) {
		var last session.Ref
		for n := number(); n > 0 && !bad; n-- {
			shard := int(number())
			if shard != last.Shard {
				last.Seq = 0
			}
			last = session.Ref{Shard: shard, Seq: last.Seq + number()}
			all = append(all, last)
		}
		return all
	}
	if !bad {
		b = b[1:]
	}
	r.Node, r.Epoch = text(), number()
	for n := number(); n > 0 && !bad; n-- {
		g := dealGroup{Share: text()}
		for n := number(); n > 0 && !bad; n-- {
			g.Places = append(g.Places, number())
		}
		g.Holes = refs()
		if !first {
			g.Ended = refs()
		}
		r.Groups = append(r.Groups, g)
	}
	r.Heard = make(map[string]heard)
	for n := number(); n > 0 && !bad; n-- {
		node := text()
		r.Heard[node] = heard{number(), number()}
	}
	if bad {
		return dealRecord{}, errDealRecord
	}
	return r, nil
}

// needs gives for each shard where the log has to begin for the record.
func (r *dealRecord) needs(first []uint64) {
	for _, g := range r.Groups {
		for shard := range first {
			place := uint64(0)
			if shard < len(g.Places) {
				place = g.Places[shard]
			}
			first[shard] = min(first[shard], place+1)
		}
		for _, h := range g.Holes {
			if h.Shard < len(first) {
				first[h.Shard] = min(first[h.Shard], h.Seq)
			}
		}
	}
}

// sharesNeed is needs of any record of the bucket: a mover keeps one with bare
// places there.
func sharesNeed(r cluster.Record, first []uint64) error {
	if r.Key == SharesKey {
		rec, err := parseDealRecord(r.Value)
		if err == nil {
			rec.needs(first)
		}
		return err
	}
	for shard, seq := range parsePlaces(r.Value) {
		if shard < len(first) {
			first[shard] = min(first[shard], seq+1)
		}
	}
	return nil
}

// MoveShares gives the record of shared subscriptions as it is to be in another
// store, where nobody deals yet; nil if there is none.
func MoveShares(all []cluster.Record, to session.Places) ([]byte, error) {
	for _, r := range all {
		if r.Key != SharesKey {
			continue
		}
		rec, err := parseDealRecord(r.Value)
		if err != nil {
			return nil, err
		}
		rec.Node, rec.Heard = "", nil
		for i := range rec.Groups {
			g := &rec.Groups[i]
			for shard := range g.Places {
				g.Places[shard] = to.UpTo(shard, g.Places[shard])
			}
			g.Holes, g.Ended = moveRefs(g.Holes, to), moveRefs(g.Ended, to)
		}
		return rec.append(nil), nil
	}
	return nil, nil
}

// moveRefs gives what is left of messages in another store.
func moveRefs(all []session.Ref, to session.Places) []session.Ref {
	moved := all[:0]
	for _, r := range all {
		if ref, there := to.Message(r); there {
			moved = append(moved, ref)
		}
	}
	slices.SortFunc(moved, compareRefs)
	return moved
}

func (r *dealRecord) equal(o *dealRecord) bool {
	return r.Node == o.Node && r.Epoch == o.Epoch && maps.Equal(r.Heard, o.Heard) &&
		slices.EqualFunc(r.Groups, o.Groups, func(a, b dealGroup) bool {
			return a.Share == b.Share && slices.Equal(a.Places, b.Places) && slices.Equal(a.Holes, b.Holes) && slices.Equal(a.Ended, b.Ended)
		})
}
