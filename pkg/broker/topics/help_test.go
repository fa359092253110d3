package topics

// failer is what *testing.T and *rapid.T have in common.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
}

// verify holds a trie to what its comments say of it.
func verify[T any](t failer, trie *trie[T]) {
	t.Helper()
	if trie.root.value.Load() != nil {
		t.Errorf("the root has a value")
	}
	trie.root.verify(t, true)
}

func (n *node[T]) verify(t failer, root bool) {
	t.Helper()
	kids := n.kids.Load()
	size := 0
	if kids != nil {
		live, used := 0, 0
		for i := range kids.slots {
			if kids.slots[i].sum.Load() != 0 {
				used++
			}
			if kids.slots[i].child.Load() != nil {
				live++
			}
		}
		if int(kids.live) != live || int(kids.used) != used {
			t.Errorf("%q: live %d and used %d, counted %d and %d", n.label, kids.live, kids.used, live, used)
		}
		if n := len(kids.slots); n > 4*fewSlots && live < n/8 {
			t.Errorf("%d of %d slots are live", live, n)
		}
		for kid := range kids.all {
			size++
			p := n.find(level(kid.label, 0))
			if p == nil || p.Load() != kid {
				t.Errorf("below %q: %q is there and not found", n.label, kid.label)
			}
			kid.verify(t, false)
		}
		if size == 0 || size != kids.size() {
			t.Errorf("%q: %d children, counts %d", n.label, size, kids.size())
		}
	}
	if !root && n.value.Load() == nil && size < 2 {
		t.Errorf("%q has no value and %d children", n.label, size)
	}
}

// verifyCrowds holds the tree's crowds to their lists.
func (t *Tree[S, O]) verifyCrowds(tb failer) {
	tb.Helper()
	for filter, crowd := range t.crowds {
		n := t.trie.get(filter)
		if n == nil {
			tb.Errorf("%s: a crowd without a list", filter)
			continue
		}
		if len(crowd) <= many/2 {
			tb.Errorf("%s: a crowd of %d", filter, len(crowd))
		}
		want := newCrowd(n.value.Load())
		if len(want) != len(crowd) {
			tb.Errorf("%s: %d in the list, %d in the crowd", filter, len(want), len(crowd))
		}
		for s, front := range want {
			if got, ok := crowd[s]; !ok || got != front {
				tb.Errorf("%s: %v stands behind another than the crowd says", filter, s)
			}
		}
	}
}
