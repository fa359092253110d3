package affinity

import "github.com/mqttlb/mqttlb/pkg/backend"

// A Walk is one decision: the backends that may take one connection, in order
// of preference. Table.Walk begins it, Next goes on. It belongs to one
// goroutine, and allocates nothing in pools of up to 256 backends.
type Walk struct {
	table   *Table
	balance Balance // least connections for an empty key, else the table's
	home    int     // the first point of the key, on a ring
	at      int     // the next point to look at, on a ring
	seen    set     // members that had their turn
	left    int     // members on the ring that had none yet
	bound   bound
	over    set // members passed over by load alone
	overs   int
	relaxed bool // in the second round, where the bound no longer counts
	given   int
	full    bool
	last    *backend.Backend
}

// Walk begins a decision for key. An empty key has no home: those connections
// are spread by least connections, whatever the balance, since on a ring all of
// them would share one backend. The slice is not kept.
func (t *Table) Walk(key []byte) Walk {
	w := Walk{table: t, balance: t.balance, seen: newSet(len(t.members)), left: len(t.members)}
	if len(key) == 0 {
		w.balance = LeastConnections
	}
	if w.balance == Ring {
		w.home = t.ring.find(hashKey(key))
		w.at = w.home
		if t.factor > 0 {
			w.bound = t.boundNow()
			w.over = newSet(len(t.members))
		}
	}
	return w
}

// Next gives the next backend that is usable and has room, each at most once,
// and false when there is none. It counts no connection: the caller calls
// Acquire on what it gets, and when that fails NoRoom, then Next.
//
// A backend whose turn it is but which is full, or over the bounded load, is
// passed over, and its spills are counted. Those over the bounded load get a
// second turn when nothing else is left: the bound evens the load, it never
// turns a client away.
func (w *Walk) Next() (*backend.Backend, bool) {
	for {
		i, ok := w.turn()
		if !ok {
			w.last = nil
			return nil, false
		}
		b := w.table.members[i]
		switch w.table.judge(b, w.bound) {
		case notUsable:
			continue
		case isFull:
			w.full = true
			if !w.relaxed { // else it was counted in the first round
				b.CountSpill()
			}
			continue
		case overBound:
			if !w.relaxed {
				w.over.add(i)
				w.overs++
				b.CountSpill()
				continue
			}
		}
		w.given++
		w.last = b
		return b, true
	}
}

// NoRoom tells that Acquire failed on the backend that Next gave last: another
// connection took its last place. It counts as passed over for being full.
func (w *Walk) NoRoom() {
	if w.last == nil {
		return
	}
	w.last.CountSpill()
	w.last = nil
	w.full = true
	w.given--
}

// Full says whether a backend was passed over that had everything but room: a
// client that finds none is to be told "busy" rather than "unavailable".
func (w *Walk) Full() bool { return w.full }

// Attempt is the number of backends that Next has given, less those that had
// no room.
func (w *Walk) Attempt() int { return w.given }

// turn gives the member whose turn it is, usable or not.
func (w *Walk) turn() (int, bool) {
	t := w.table
	switch w.balance {
	case Ring:
		if w.left == 0 && !w.relax() {
			return 0, false
		}
		w.left--
		var i int
		i, w.at = t.ring.nextDistinct(w.at, &w.seen)
		return i, true
	case RoundRobin:
		return t.turns.next(t.members, &w.seen)
	case Random:
		return drawLot(t.members, &w.seen)
	default:
		return leastConnections(t.members, &w.seen)
	}
}

// relax begins the second round, which goes to those over the bound only. It
// says false when there are none, or when the second round is over.
func (w *Walk) relax() bool {
	if w.relaxed || w.overs == 0 {
		return false
	}
	w.relaxed = true
	w.at = w.home
	w.left = w.overs
	w.seen.subtract(&w.over)
	return true
}

// A finding is what keeps a backend from taking a connection, if anything.
type finding int

const (
	hasRoom finding = iota
	notUsable
	isFull
	overBound
)

func (t *Table) judge(b *backend.Backend, at bound) finding {
	switch {
	case !b.Usable():
		return notUsable
	case b.Full():
		return isFull
	case at.on() && b.Connections() >= at.of(b):
		return overBound
	default:
		return hasRoom
	}
}
