package transfer

import (
	"cmp"
	"maps"
	"slices"

	"github.com/mqttlb/mqttlb/pkg/broker/session"
)

// places say where the messages of the old logs are in the new ones, by shard, in
// the order of either.
type places [][]place

type place struct{ old, new uint64 }

// Message implements session.Places.
func (p places) Message(r session.Ref) (session.Ref, bool) {
	if r.Shard < 0 || r.Shard >= len(p) {
		return session.Ref{}, false
	}
	i, found := slices.BinarySearchFunc(p[r.Shard], r.Seq, byOld)
	if !found {
		return session.Ref{}, false
	}
	return session.Ref{Shard: r.Shard, Seq: p[r.Shard][i].new}, true
}

// UpTo implements session.Places: it is the place of the last message that was
// there, or before all of them.
func (p places) UpTo(shard int, seq uint64) uint64 {
	if shard >= len(p) {
		return 0
	}
	i, found := slices.BinarySearchFunc(p[shard], seq, byOld)
	switch {
	case found:
		return p[shard][i].new
	case i > 0:
		return p[shard][i-1].new
	default:
		return 0
	}
}

func byOld(p place, seq uint64) int { return cmp.Compare(p.old, seq) }

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
