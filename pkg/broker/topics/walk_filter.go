package topics

// byFilter calls found with the value of each name in the trie that filter
// matches, until found is tired of it.
func (t *trie[T]) byFilter(filter string, found func(*T) bool) {
	t.root.byFilter(filter, 0, true, found)
}

// byFilter goes on below n, with filter matched as far as place. Like all that
// call found here, it tells whether to go on.
func (n *node[T]) byFilter(filter string, place int, root bool, found func(*T) bool) bool {
	if ended(filter, place) {
		return n.give(found)
	}
	switch want := level(filter, place); want {
	case multiLevel: // matches its parent too (5 §4.7.1.2)
		return n.give(found) && n.tryEach(filter, place, root, found)
	case singleLevel:
		return n.tryEach(filter, place, root, found)
	default:
		if p := n.find(want); p != nil {
			if kid := p.Load(); kid != nil {
				return kid.tryFilter(filter, place, found)
			}
		}
		return true
	}
}

// tryEach is tryFilter for each child of n, where filter has a wildcard.
func (n *node[T]) tryEach(filter string, place int, root bool, found func(*T) bool) bool {
	kids := n.kids.Load()
	if kids == nil {
		return true
	}
	for kid := range kids.all {
		if root && isSystem(kid.label) {
			continue // [MQTT-4.7.2-1]
		}
		if !kid.tryFilter(filter, place, found) {
			return false
		}
	}
	return true
}

// tryFilter is byFilter if filter, from place on, matches n's label.
func (n *node[T]) tryFilter(filter string, place int, found func(*T) bool) bool {
	for at := 0; !ended(n.label, at); {
		if ended(filter, place) {
			return true
		}
		end, filterEnd := levelEnd(n.label, at), levelEnd(filter, place)
		want := filter[place:filterEnd]
		if want == multiLevel {
			break // and stay there: it matches all below n as well
		}
		if want != singleLevel && want != n.label[at:end] {
			return true
		}
		at, place = end+1, filterEnd+1
	}
	return n.byFilter(filter, place, false, found)
}

// give calls found with n's value, if it has one.
func (n *node[T]) give(found func(*T) bool) bool {
	v := n.value.Load()
	return v == nil || found(v)
}
