package topics

import (
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Tree finds the subscriptions that match a Topic Name. S is who subscribes, O
// what the subscription says: its maximum QoS, its identifier and so on. The
// tree hands both back and looks at neither. The zero value is an empty tree.
//
// All methods may be called at any time from any goroutine. Match and Get take
// no lock and wait for nobody. Subscribe and Unsubscribe wait for each other;
// what they did before they returned is what every later Match sees.
//
// A filter is one that [ValidFilter] accepts. "$share/…" means nothing special
// here; the package's documentation says how shared subscriptions are kept.
type Tree[S comparable, O any] struct {
	size atomic.Int64

	mu     sync.Mutex // held to write
	trie   trie[subscription[S, O]]
	crowds map[string]crowd[S, O] // by filter; of those with many subscribers
}

// Subscribe keeps o as what s says of filter, and tells whether that replaced
// what s had said of this very filter [MQTT-3.8.4-3]. A Match meanwhile finds
// the old options or the new.
func (t *Tree[S, O]) Subscribe(filter string, s S, o O) (replaced bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := list[S, O]{&t.trie.put(filter).value, t.crowds[filter]}
	fresh := &subscription[S, O]{subscriber: s, options: o}
	front, own, looked := l.find(s)
	if own != nil {
		l.replace(front, own, fresh)
		return true
	}
	l.add(fresh)
	t.size.Add(1)
	if looked >= many {
		if t.crowds == nil {
			t.crowds = make(map[string]crowd[S, O])
		}
		t.crowds[strings.Clone(filter)] = newCrowd(fresh)
	}
	return false
}

// Unsubscribe forgets what s said of this very filter, character by character
// [MQTT-3.10.4-1], and tells whether there was something to forget.
func (t *Tree[S, O]) Unsubscribe(filter string, s S) (removed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.trie.get(filter)
	if n == nil {
		return false
	}
	l := list[S, O]{&n.value, t.crowds[filter]}
	front, own, _ := l.find(s)
	if own == nil {
		return false
	}
	l.remove(front, own)
	t.size.Add(-1)
	if l.crowd != nil && len(l.crowd) <= many/2 {
		delete(t.crowds, filter)
	}
	if n.value.Load() == nil {
		t.trie.drop(filter)
	}
	return true
}

// Get gives what s says of this very filter. It looks at one subscriber of the
// filter after the other, so it is not for filters that a fleet shares.
func (t *Tree[S, O]) Get(filter string, s S) (o O, ok bool) {
	n := t.trie.get(filter)
	if n == nil {
		return o, false
	}
	if _, own, _ := (list[S, O]{first: &n.value}).find(s); own != nil {
		return own.options, true
	}
	return o, false
}

// Match calls visit for each subscription whose filter matches name, in no
// order. A subscriber with several such filters comes once for each of them.
// A subscription that stands for the whole call comes exactly once, with its
// old or new options if they change; one that is made or ended meanwhile may
// be seen or not.
//
// No lock is held: visit may take its time, and may change the tree. Match
// allocates nothing. name is one that [ValidName] accepts, and must not change
// before Match returns.
func (t *Tree[S, O]) Match(name []byte, visit func(S, O)) {
	t.trie.byName(unsafe.String(unsafe.SliceData(name), len(name)), func(first *subscription[S, O]) {
		for own := first; own != nil; own = own.next.Load() {
			visit(own.subscriber, own.options)
		}
	})
}

// Len is how many subscriptions there are.
func (t *Tree[S, O]) Len() int { return int(t.size.Load()) }
