package topics

import (
	"sync"
	"sync/atomic"
)

// Index finds the Topic Names that match a filter: those of retained messages
// for a new subscription. The zero value is an empty index.
//
// All methods may be called at any time from any goroutine. Match takes no
// lock and waits for nobody. Set and Delete wait for each other; what they did
// before they returned is what every later Match sees.
type Index struct {
	size atomic.Int64

	mu   sync.Mutex // held to write
	trie trie[string]
}

// Set puts in name, which [ValidName] accepts, and tells whether it is new.
// The index keeps the string.
func (x *Index) Set(name string) (added bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.trie.put(name)
	if n.value.Load() != nil {
		return false
	}
	n.value.Store(&name)
	x.size.Add(1)
	return true
}

// Delete takes name out, and tells whether it was there.
func (x *Index) Delete(name string) (removed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.trie.get(name)
	if n == nil || n.value.Load() == nil {
		return false
	}
	n.value.Store(nil)
	x.trie.drop(name)
	x.size.Add(-1)
	return true
}

// Match calls visit with each name that filter matches, in no order, until it
// says false. A name that is in the index for the whole call comes exactly
// once; one that comes or goes meanwhile may be seen or not.
//
// No lock is held: visit may take its time, and may change the index. Match
// allocates nothing. filter is one that [ValidFilter] accepts, without the
// share of a shared subscription: that gets no retained messages (5 §4.8.2).
func (x *Index) Match(filter string, visit func(name string) bool) {
	x.trie.byFilter(filter, func(name *string) bool { return visit(*name) })
}

// Len is how many names there are.
func (x *Index) Len() int { return int(x.size.Load()) }
