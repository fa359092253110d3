package topics

import "sync/atomic"

// subscription is one subscriber at one filter, and the next at the same one.
//
// Readers follow the list while one writer changes it. New ones come in front.
// One that is taken out keeps its next, so whoever stands on it still reaches
// all that stay behind it. A change of options puts a new one in the place of
// the old: at no moment does a reader find neither.
type subscription[S comparable, O any] struct {
	subscriber S
	options    O
	next       atomic.Pointer[subscription[S, O]]
}

// A list of more than many subscribers gets a crowd, and loses it when it has
// half as many: where a fleet shares a filter, to search the list for each
// subscriber that comes or goes would take quadratic time.
const many = 32

// crowd finds a subscriber in a list: it holds the subscription in front of
// its own, nil in front of the first.
type crowd[S comparable, O any] map[S]*subscription[S, O]

// list is how a writer sees the subscribers of one filter.
type list[S comparable, O any] struct {
	first *atomic.Pointer[subscription[S, O]]
	crowd crowd[S, O] // nil: few enough to look at each
}

// find gives the subscription of s and the one in front of it, nil where there
// is none, and how many it looked at.
func (l list[S, O]) find(s S) (front, own *subscription[S, O], looked int) {
	if l.crowd != nil {
		front, ok := l.crowd[s]
		if !ok {
			return nil, nil, 0
		}
		return front, l.behind(front).Load(), 0
	}
	for own = l.first.Load(); own != nil && own.subscriber != s; own = own.next.Load() {
		front = own
		looked++
	}
	return front, own, looked
}

// behind is what points at the subscription behind front; at the first where
// front is nil.
func (l list[S, O]) behind(front *subscription[S, O]) *atomic.Pointer[subscription[S, O]] {
	if front == nil {
		return l.first
	}
	return &front.next
}

// add puts a subscription in front of all.
func (l list[S, O]) add(fresh *subscription[S, O]) {
	next := l.first.Load()
	fresh.next.Store(next)
	l.first.Store(fresh)
	if l.crowd != nil {
		l.crowd[fresh.subscriber] = nil
		l.crowd[next.subscriber] = fresh
	}
}

// replace puts fresh in the place of own, which is behind front.
func (l list[S, O]) replace(front, own, fresh *subscription[S, O]) {
	next := own.next.Load()
	fresh.next.Store(next)
	l.behind(front).Store(fresh)
	if l.crowd != nil && next != nil {
		l.crowd[next.subscriber] = fresh
	}
}

// remove takes own out, which is behind front.
func (l list[S, O]) remove(front, own *subscription[S, O]) {
	next := own.next.Load()
	l.behind(front).Store(next)
	if l.crowd != nil {
		delete(l.crowd, own.subscriber)
		if next != nil {
			l.crowd[next.subscriber] = front
		}
	}
}

// newCrowd finds each subscriber of the list that begins with first.
func newCrowd[S comparable, O any](first *subscription[S, O]) crowd[S, O] {
	c := crowd[S, O]{}
	var front *subscription[S, O]
	for own := first; own != nil; own = own.next.Load() {
		c[own.subscriber] = front
		front = own
	}
	return c
}
