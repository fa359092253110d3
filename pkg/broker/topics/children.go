package topics

import (
	"hash/maphash"
	"sync/atomic"
)

// children are the nodes right below one node, found by their first level.
//
// Any number of readers look while one writer changes. Each change is one
// atomic store, and a table that has become too small is replaced as a whole:
// whoever still reads the old one sees the children of that moment.
type children[T any] struct {
	single atomic.Pointer[node[T]] // the child that begins with +
	multi  atomic.Pointer[node[T]] // the child that is #
	slots  []slot[T]               // all others: open addressing, linear probing

	// For the writer alone.
	used uint32 // slots with a sum
	live uint32 // slots with a child
}

// slot holds a child and the hash of its first level. A sum of zero says that
// the slot was never used, and ends a search. It is stored behind the child and
// stays when the child goes, for those who search on from here.
type slot[T any] struct {
	sum   atomic.Uint32
	child atomic.Pointer[node[T]]
}

// Up to fewSlots the slots may all be used: a search looks at each once.
const fewSlots = 8

// seed differs between processes: nobody can choose levels that collide.
var seed = maphash.MakeSeed()

// sum is the hash of a level, and never zero.
func sum(level string) uint32 { return max(uint32(maphash.String(seed, level)), 1) }

// find gives what points at the child that begins with level; nil: there is
// none. A reader looks there again for what the child then is: nil, another
// with the same sum, or one that has the same beginning.
func (c *children[T]) find(level string) *atomic.Pointer[node[T]] {
	switch level {
	case singleLevel:
		return pointing(&c.single)
	case multiLevel:
		return pointing(&c.multi)
	}
	s := sum(level)
	for i := range c.slots {
		slot := c.at(s, i)
		switch slot.sum.Load() {
		case 0:
			return nil
		case s:
			if kid := slot.child.Load(); kid != nil && leads(level, kid.label) {
				return &slot.child
			}
		}
	}
	return nil
}

// at is the slot to look at after i others in the search for a sum.
func (c *children[T]) at(sum uint32, i int) *slot[T] {
	return &c.slots[(int(sum)+i)&(len(c.slots)-1)]
}

func pointing[T any](p *atomic.Pointer[node[T]]) *atomic.Pointer[node[T]] {
	if p.Load() == nil {
		return nil
	}
	return p
}

// all gives every child, in no order, until yield is tired of it.
func (c *children[T]) all(yield func(*node[T]) bool) {
	if kid := c.single.Load(); kid != nil && !yield(kid) {
		return
	}
	if kid := c.multi.Load(); kid != nil && !yield(kid) {
		return
	}
	for i := range c.slots {
		if kid := c.slots[i].child.Load(); kid != nil && !yield(kid) {
			return
		}
	}
}

// size is how many children there are.
func (c *children[T]) size() int {
	n := int(c.live)
	if c.single.Load() != nil {
		n++
	}
	if c.multi.Load() != nil {
		n++
	}
	return n
}

// with adds a child whose first level no other has. It gives the table that
// holds it: c or a new one, which then replaces c.
func (c *children[T]) with(kid *node[T]) *children[T] {
	switch level := level(kid.label, 0); level {
	case singleLevel:
		c.single.Store(kid)
	case multiLevel:
		c.multi.Store(kid)
	default:
		s := sum(level)
		if c.put(s, kid) {
			return c
		}
		c = c.resized(c.live + 1)
		c.put(s, kid)
	}
	return c
}

// without takes the child away that p, found here, points at. It gives the
// table that holds the others, as with does.
func (c *children[T]) without(p *atomic.Pointer[node[T]]) *children[T] {
	p.Store(nil)
	if p == &c.single || p == &c.multi {
		return c
	}
	c.live--
	if len(c.slots) > fewSlots && int(c.live) < len(c.slots)/8 {
		return c.resized(c.live)
	}
	return c
}

// put stores a child unless the table is too full for it.
func (c *children[T]) put(s uint32, kid *node[T]) bool {
	for i := range c.slots {
		slot := c.at(s, i)
		// A slot that a child with this very sum has left serves again: a
		// client that comes and goes does not use the table up.
		old := slot.sum.Load()
		if old == 0 && int(c.used) >= room(len(c.slots)) {
			return false
		}
		if old == 0 || old == s && slot.child.Load() == nil {
			slot.child.Store(kid)
			slot.sum.Store(s)
			c.live++
			if old == 0 {
				c.used++
			}
			return true
		}
	}
	return false
}

// room is how many of n slots may be used.
func room(n int) int {
	if n <= fewSlots {
		return n
	}
	return n / 4 * 3
}

// resized is a copy of c with room for n children in slots; where they are
// many, for a quarter more, so that the copy pays.
func (c *children[T]) resized(n uint32) *children[T] {
	slots := 1
	for room(slots) < int(n) {
		slots *= 2
	}
	if slots > fewSlots && room(slots) < int(n)*5/4 {
		slots *= 2
	}
	fresh := &children[T]{slots: make([]slot[T], slots)}
	fresh.single.Store(c.single.Load())
	fresh.multi.Store(c.multi.Load())
	for i := range c.slots {
		if kid := c.slots[i].child.Load(); kid != nil {
			fresh.put(c.slots[i].sum.Load(), kid)
		}
	}
	return fresh
}
