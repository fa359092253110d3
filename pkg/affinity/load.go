package affinity

import "github.com/mqttlb/mqttlb/pkg/backend"

// A bound is the bounded load at one moment (Mirrokni, Thorup, Zadimoghaddam:
// "Consistent Hashing with Bounded Loads", 2016), extended to weights. The zero
// value is no bound.
//
// It counts the backends that could take a connection, usable and not full, and
// no others. What a full backend cannot carry is then the fair part of the
// others, and at least one of those counted is always below its bound.
type bound struct {
	factor      int64 // in thousandths
	connections int64 // of those counted, the one to be placed included
	weight      int64 // of those counted
}

func (t *Table) boundNow() bound {
	at := bound{factor: t.factor, connections: 1}
	for _, b := range t.members {
		if b.Usable() && !b.Full() {
			at.connections += b.Connections()
			at.weight += int64(b.Weight)
		}
	}
	return at
}

func (at bound) on() bool { return at.factor > 0 && at.weight > 0 }

// of gives the most connections that b may hold: the factor times its fair
// part, rounded up. Integers, so that 1.1 times 10 is 11 and not a little more.
func (at bound) of(b *backend.Backend) int64 {
	part := at.factor * at.connections * int64(b.Weight)
	whole := 1000 * at.weight
	return (part + whole - 1) / whole
}
