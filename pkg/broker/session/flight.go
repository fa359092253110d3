package session

import (
	"cmp"
	"slices"
)

// flight holds the items in flight by packet identifier: a hash table with
// linear probing. Identifiers are given out one after another, so they are
// their own hash, and most are found at the first look. The zero value is
// empty.
type flight struct {
	slots []item // its length is a power of two, at least twice n; id 0 is free
	n     int
}

func (f *flight) find(id uint16) *item {
	if f.n == 0 || id == 0 {
		return nil
	}
	for i := f.home(id); f.slots[i].id != 0; i = f.next(i) {
		if f.slots[i].id == id {
			return &f.slots[i]
		}
	}
	return nil
}

func (f *flight) home(id uint16) int { return int(id) & (len(f.slots) - 1) }
func (f *flight) next(i int) int     { return (i + 1) & (len(f.slots) - 1) }

// put adds an item whose identifier is free.
func (f *flight) put(it item) *item {
	if 2*(f.n+1) > len(f.slots) {
		old := f.slots
		f.slots, f.n = make([]item, max(2*smallest, 2*len(old))), 0
		for _, o := range old {
			if o.id != 0 {
				f.put(o)
			}
		}
	}
	i := f.home(it.id)
	for f.slots[i].id != 0 {
		i = f.next(i)
	}
	f.slots[i] = it
	f.n++
	return &f.slots[i]
}

// remove takes out an item that find gave. Those that were displaced by it move
// up, so pointers into the table end here.
func (f *flight) remove(id uint16) {
	i := f.home(id)
	for f.slots[i].id != id {
		i = f.next(i)
	}
	for j := f.next(i); f.slots[j].id != 0; j = f.next(j) {
		mask := len(f.slots) - 1
		if h := f.home(f.slots[j].id); (j-h)&mask >= (j-i)&mask { // i is on its way from home
			f.slots[i], i = f.slots[j], j
		}
	}
	f.slots[i] = item{}
	f.n--
	if f.n == 0 && len(f.slots) > keep {
		f.slots = nil
	}
}

// each calls f with all items, in no order.
func (f *flight) each(visit func(*item)) {
	for i := range f.slots {
		if f.slots[i].id != 0 {
			visit(&f.slots[i])
		}
	}
}

// sorted gives the identifiers of all items in the order in which they are to be
// sent again: PUBREL in the order of the PUBRECs [MQTT-4.6.0-4], then PUBLISH in
// the order of the first time [MQTT-4.6.0-1]. PUBREL comes first because no
// quota holds it up.
func (f *flight) sorted() []uint16 {
	if f.n == 0 {
		return nil
	}
	all := make([]*item, 0, f.n)
	f.each(func(it *item) { all = append(all, it) })
	slices.SortFunc(all, func(a, b *item) int {
		return cmp.Or(cmp.Compare(b.state, a.state), cmp.Compare(a.order, b.order))
	})
	ids := make([]uint16, len(all))
	for i, it := range all {
		ids[i] = it.id
	}
	return ids
}
