package affinity

import (
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/mqttlb/mqttlb/pkg/backend"
)

// pointsPerWeight is the number of points on the ring for each unit of weight:
// 6,400 for a backend of the default weight. docs/adr/0002-ring.md has the
// figures it was chosen by. Changing it moves clients of every fleet.
const pointsPerWeight = 64

// A point is one word: its place on the ring in the high 48 bits, the index of
// its owner in the low 16. Owners are indexed in the order of their names, so
// sorting the words sorts the ring, and two points on one place fall in the
// order of their owners' names.
const (
	ownerBits = 16
	ownerMask = 1<<ownerBits - 1
)

// A ring is all points of a pool in ascending order. Behind the last comes the
// first.
type ring []uint64

// newRing places members, which are sorted by name. The points of one member
// depend on nothing but its name and weight, and those of a lower weight are
// among those of a higher one: adding, removing or reweighting a member moves
// no key between two others.
func newRing(members []*backend.Backend, perWeight int) ring {
	n := 0
	for _, m := range members {
		n += m.Weight * perWeight
	}
	r := make(ring, 0, n)
	var label []byte
	for owner, m := range members {
		label = append(label[:0], m.Name...)
		for i := range uint32(m.Weight * perWeight) {
			// The number has a fixed width: no two labels of different points are equal.
			label = binary.BigEndian.AppendUint32(label[:len(m.Name)], i)
			r = append(r, xxhash.Sum64(label)&^ownerMask|uint64(owner))
		}
	}
	slices.Sort(r)
	return r
}

// hashKey is where a key stands on the ring. The hash has no seed, so that
// every mqttlb agrees.
func hashKey(key []byte) uint64 { return xxhash.Sum64(key) }

// find gives the index of the first point at or behind hash.
func (r ring) find(hash uint64) int {
	i, _ := slices.BinarySearch(r, hash&^ownerMask)
	if i == len(r) {
		return 0
	}
	return i
}

// nextDistinct gives the first owner from point at on that is not in seen, adds
// it there, and gives the point to go on from. Some owner must be missing from
// seen, or it never returns.
func (r ring) nextDistinct(at int, seen *set) (owner, next int) {
	for {
		owner = int(r[at] & ownerMask)
		if at++; at == len(r) {
			at = 0
		}
		if seen.add(owner) {
			return owner, at
		}
	}
}

// shares gives the part of the ring, 0 to 1, that leads to each of n owners.
func (r ring) shares(n int) []float64 {
	const whole = 1 << (64 - ownerBits)
	shares := make([]float64, n)
	before := r[len(r)-1] >> ownerBits
	for _, p := range r {
		place := p >> ownerBits
		shares[p&ownerMask] += float64((place-before)%whole) / whole
		before = place
	}
	return shares
}
