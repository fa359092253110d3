package topics

// byName calls found with the value of each filter in the trie that matches
// name, once for each filter.
func (t *trie[T]) byName(name string, found func(*T)) {
	// At the root alone wildcards may have to stand back [MQTT-4.7.2-1].
	t.root.byName(name, 0, !isSystem(name), found)
}

// byName goes on below n, with name matched as far as place.
func (n *node[T]) byName(name string, place int, wildcards bool, found func(*T)) {
	end := ended(name, place)
	if v := n.value.Load(); v != nil && end {
		found(v)
	}
	kids := n.kids.Load()
	if kids == nil {
		return
	}
	if wildcards {
		if kid := kids.multi.Load(); kid != nil {
			// # matches its parent too, so the name may have ended (5 §4.7.1.2).
			if v := kid.value.Load(); v != nil {
				found(v)
			}
		}
		if kid := kids.single.Load(); kid != nil && !end {
			kid.tryName(name, place, found)
		}
	}
	if end || len(kids.slots) == 0 {
		return
	}
	if p := kids.find(level(name, place)); p != nil {
		if kid := p.Load(); kid != nil {
			kid.tryName(name, place, found)
		}
	}
}

// tryName is byName if n's label matches name from place on.
func (n *node[T]) tryName(name string, place int, found func(*T)) {
	if leads(n.label, name[place:]) {
		// The short way of labels without wildcards, which are the most.
		n.byName(name, place+len(n.label)+1, true, found)
		return
	}
	for at := 0; !ended(n.label, at); {
		end := levelEnd(n.label, at)
		want := n.label[at:end]
		if want == multiLevel {
			place = len(name) + 1 // whatever levels are left
			break
		}
		if ended(name, place) {
			return
		}
		nameEnd := levelEnd(name, place)
		if want != singleLevel && want != name[place:nameEnd] {
			return
		}
		at, place = end+1, nameEnd+1
	}
	n.byName(name, place, true, found)
}
