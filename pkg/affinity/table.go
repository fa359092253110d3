package affinity

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/mqttlb/mqttlb/pkg/backend"
)

// Balance names how a pool places connections.
type Balance string

const (
	// Ring sends one key to one home, and to the home's spares while it is away.
	Ring Balance = "ring"
	// LeastConnections takes the backend with the fewest connections for its weight.
	LeastConnections Balance = "least_connections"
	// RoundRobin takes turns, by weight.
	RoundRobin Balance = "round_robin"
	// Random draws lots, by weight.
	Random Balance = "random"
)

// Limits of what Build takes.
const (
	MinWeight = 1
	MaxWeight = 1000

	// MinLoadFactor is the tightest bounded load. Below it the ring's own
	// unevenness, a few percent, would push clients off their homes for good.
	MinLoadFactor = 1.05
	// MaxLoadFactor is the loosest; it is as good as none.
	MaxLoadFactor = 100

	// MaxPoints bounds the ring: 128 MiB of memory and a build of a few seconds.
	MaxPoints = 1 << 24

	maxBackends = 1 << ownerBits
)

// Options say how Build balances a pool. The zero value is a plain ring.
type Options struct {
	// Balance is Ring when empty.
	Balance Balance

	// LoadFactor bounds what the ring may put on one backend: no more than
	// LoadFactor times its fair part of the connections of all backends that
	// could take one, rounded up. 1.25 allows a quarter above the mean. It is
	// kept to three decimals, and goes from MinLoadFactor to MaxLoadFactor.
	//
	// Zero, the default, is no bound. A bound trades stickiness for evenness: a
	// client whose home is over it goes to a spare, and home again later. After
	// a backend's return a tight bound sends many clients away from their homes,
	// until the returned one has filled up; docs/adr/0002-ring.md has figures.
	LoadFactor float64
}

// Table is the backends of one pool and the way to choose among them. Members,
// weights and the ring never change; only round_robin keeps score inside. All
// methods are safe for concurrent use.
type Table struct {
	balance Balance
	factor  int64 // load factor in thousandths; 0 is off
	members []*backend.Backend
	ring    ring // empty unless balance is Ring
	turns   *turns
}

// Build makes a table of all, in any order. Each backend goes by its Name and
// its Weight; the address plays no part. It fails on an empty list, a name
// that is empty or used twice, a weight or load factor out of range, an
// unknown balance, and a ring of more than MaxPoints.
func Build(all []*backend.Backend, o Options) (*Table, error) {
	if err := check(all, o); err != nil {
		return nil, err
	}
	members := slices.Clone(all)
	slices.SortFunc(members, func(a, b *backend.Backend) int { return cmp.Compare(a.Name, b.Name) })
	t := &Table{
		balance: cmp.Or(o.Balance, Ring),
		factor:  int64(math.Round(o.LoadFactor * 1000)),
		members: members,
	}
	switch t.balance {
	case Ring:
		t.ring = newRing(members, pointsPerWeight)
	case RoundRobin:
		t.turns = newTurns(len(members))
	}
	return t, nil
}

// check gives all that is wrong at once.
func check(all []*backend.Backend, o Options) error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	switch o.Balance {
	case "", Ring, LeastConnections, RoundRobin, Random:
	default:
		wrong("balance %q is unknown; write %s, %s, %s or %s", o.Balance, Ring, LeastConnections, RoundRobin, Random)
	}
	switch f := o.LoadFactor; {
	case f == 0:
	case !(f >= MinLoadFactor && f <= MaxLoadFactor): // NaN fails both
		wrong("load_factor %g is out of range; write %g to %d, or 0 for no bound", f, MinLoadFactor, MaxLoadFactor)
	case o.Balance != "" && o.Balance != Ring:
		wrong("load_factor bounds the ring and means nothing to balance %q; leave it out", o.Balance)
	}

	switch {
	case len(all) == 0:
		wrong("no backends; list at least one")
	case len(all) > maxBackends:
		wrong("%d backends; a pool takes at most %d", len(all), maxBackends)
	}
	seen := make(map[string]bool, len(all))
	total := 0
	for i, b := range all {
		switch {
		case b.Name == "":
			wrong("backend %d of %d has no name; its name is its place on the ring", i+1, len(all))
		case seen[b.Name]:
			wrong("two backends are named %q; a name is a place on the ring, so give each its own", b.Name)
		}
		seen[b.Name] = true
		if b.Weight < MinWeight || b.Weight > MaxWeight {
			wrong("backend %q: weight %d is out of range; write %d to %d", b.Name, b.Weight, MinWeight, MaxWeight)
			continue
		}
		total += b.Weight
	}
	if onRing := o.Balance == "" || o.Balance == Ring; onRing && total > MaxPoints/pointsPerWeight {
		wrong("the weights sum to %d; a ring takes at most %d, so divide them all by the same number", total, MaxPoints/pointsPerWeight)
	}
	return errors.Join(errs...)
}

// Backends are the members, ordered by name. The caller owns the slice.
func (t *Table) Backends() []*backend.Backend { return slices.Clone(t.members) }

// Balance is how the table places a key.
func (t *Table) Balance() Balance { return t.balance }

// Pick gives the attempt-th distinct backend of key in ring order: 0 is home, 1
// the first spare. It looks at neither health nor load, so the same table gives
// the same answer always; Walk is the one that places connections.
//
// It says false past the last backend, for an empty key, which has no home, and
// when the balance is not Ring.
func (t *Table) Pick(key []byte, attempt int) (*backend.Backend, bool) {
	if t.balance != Ring || len(key) == 0 || attempt < 0 || attempt >= len(t.members) {
		return nil, false
	}
	seen := newSet(len(t.members))
	owner, at := 0, t.ring.find(hashKey(key))
	for range attempt + 1 {
		owner, at = t.ring.nextDistinct(at, &seen)
	}
	return t.members[owner], true
}
