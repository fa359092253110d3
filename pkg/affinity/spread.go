package affinity

import (
	"math/rand/v2"
	"sync"

	"github.com/mqttlb/mqttlb/pkg/backend"
)

// The ways to choose without a key. Each gives the index of a usable member
// that is not in seen, adds it there, and says false when there is none.

// leastConnections takes the member that would have the fewest connections for
// its weight once it had this one too. Counting this one lets the weights speak
// in an empty pool as well. Ties go by lot, so that the mqttlbs of one fleet,
// which know nothing of each other's counts, do not all begin with the same.
func leastConnections(members []*backend.Backend, seen *set) (best int, ok bool) {
	var load, weight int64
	ties := 0
	for i, b := range members {
		if seen.has(i) || !b.Usable() {
			continue
		}
		l, w := b.Connections()+1, int64(b.Weight)
		switch here, there := l*weight, load*w; {
		case ties == 0 || here < there:
			best, load, weight, ties = i, l, w, 1
		case here == there:
			if ties++; rand.IntN(ties) == 0 {
				best = i
			}
		}
	}
	if ties == 0 {
		return 0, false
	}
	return best, seen.add(best)
}

// drawLot takes each member with a chance that goes by its weight. One pass,
// since a backend may come or go between two.
func drawLot(members []*backend.Backend, seen *set) (drawn int, ok bool) {
	total := 0
	for i, b := range members {
		if seen.has(i) || !b.Usable() {
			continue
		}
		if total += b.Weight; rand.IntN(total) < b.Weight {
			drawn = i
		}
	}
	if total == 0 {
		return 0, false
	}
	return drawn, seen.add(drawn)
}

// turns is smooth weighted round robin, as nginx does it: weights 2, 1, 1 give
// a b c a, not a a b c. In each turn every member gains its weight, the
// richest is taken, and pays what all gained together.
type turns struct {
	mu     sync.Mutex
	credit []int
}

func newTurns(n int) *turns { return &turns{credit: make([]int, n)} }

func (t *turns) next(members []*backend.Backend, seen *set) (best int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	total := 0
	for i, b := range members {
		if seen.has(i) || !b.Usable() {
			continue
		}
		t.credit[i] += b.Weight
		if total == 0 || t.credit[i] > t.credit[best] {
			best = i
		}
		total += b.Weight
	}
	if total == 0 {
		return 0, false
	}
	t.credit[best] -= total
	return best, seen.add(best)
}
