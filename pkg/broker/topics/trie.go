package topics

import (
	"strings"
	"sync/atomic"
)

// trie holds values by path. Levels that only one path goes through share a
// node, so there are fewer than two nodes for each path, however many levels
// it has.
//
// Readers need no lock. Writers exclude each other; who uses the trie sees to
// that.
type trie[T any] struct {
	root node[T] // above the first level; has no value
}

// node stands for the path that the labels from the root down to it make.
// Apart from the root, a node without a value has at least two children.
type node[T any] struct {
	label string // one level or more
	kids  atomic.Pointer[children[T]]
	value atomic.Pointer[T]
}

// find gives what points at the child that begins with level; nil: there is
// none.
func (n *node[T]) find(level string) *atomic.Pointer[node[T]] {
	if kids := n.kids.Load(); kids != nil {
		return kids.find(level)
	}
	return nil
}

// get gives the node of path, or nil.
func (t *trie[T]) get(path string) *node[T] {
	n := &t.root
	for place := 0; !ended(path, place); {
		p := n.find(level(path, place))
		if p == nil {
			return nil
		}
		n = p.Load() // which may have gone by now, or be another
		if n == nil || !leads(n.label, path[place:]) {
			return nil
		}
		place += len(n.label) + 1
	}
	return n
}

// put gives the node of path, made if need be. The caller gives it a value.
func (t *trie[T]) put(path string) *node[T] {
	n := &t.root
	for place := 0; !ended(path, place); {
		rest := path[place:]
		p := n.find(level(rest, 0))
		if p == nil {
			kid := newNode[T](rest)
			n.add(kid)
			return kid
		}
		kid := p.Load()
		if whole := common(kid.label, rest); whole < len(kid.label) {
			kid = kid.split(whole)
			if whole < len(rest) {
				leaf := newNode[T](rest[whole+1:])
				kid.add(leaf)
				p.Store(kid)
				return leaf
			}
			p.Store(kid)
		}
		n = kid
		place += len(n.label) + 1
	}
	return n
}

// drop takes the node of path away, which must be there and have no value, as
// far as it is not needed on the way to others.
func (t *trie[T]) drop(path string) {
	// p points at n, which is below parent; above points at parent.
	var above, p *atomic.Pointer[node[T]]
	var parent *node[T]
	n := &t.root
	for place := 0; !ended(path, place); place += len(n.label) + 1 {
		above, parent = p, n
		p = n.find(level(path, place))
		n = p.Load()
	}
	if n.kids.Load() != nil {
		n.shorten(p)
		return
	}
	parent.remove(p)
	if parent != &t.root {
		parent.shorten(above)
	}
}

// newNode copies label: a part of a path would keep the whole path in memory.
func newNode[T any](label string) *node[T] {
	return &node[T]{label: strings.Clone(label)}
}

// add gives n a child whose first level no other has.
func (n *node[T]) add(kid *node[T]) {
	kids := n.kids.Load()
	if kids == nil {
		kids = &children[T]{}
	}
	n.kids.Store(kids.with(kid))
}

// remove takes away the child that p points at.
func (n *node[T]) remove(p *atomic.Pointer[node[T]]) {
	kids := n.kids.Load().without(p)
	if kids.size() == 0 {
		kids = nil
	}
	n.kids.Store(kids)
}

// split gives what may replace n: a node for the first whole bytes of its
// label, with one child for the rest that has all that n has.
func (n *node[T]) split(whole int) *node[T] {
	upper, lower := newNode[T](n.label[:whole]), newNode[T](n.label[whole+1:])
	lower.kids.Store(n.kids.Load())
	lower.value.Store(n.value.Load())
	upper.add(lower)
	return upper
}

// shorten undoes a split where it serves no longer: n, which p points at, has
// no value and one child.
func (n *node[T]) shorten(p *atomic.Pointer[node[T]]) {
	kids := n.kids.Load()
	if n.value.Load() != nil || kids.size() != 1 {
		return
	}
	for kid := range kids.all {
		both := &node[T]{label: n.label + string(separator) + kid.label}
		both.kids.Store(kid.kids.Load())
		both.value.Store(kid.value.Load())
		p.Store(both)
	}
}
