package topics

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

type said struct{ filter, who string }

// all gives what matches name: each subscriber with its options.
func all(tree *Tree[string, int], name string) map[string][]int {
	got := map[string][]int{}
	tree.Match([]byte(name), func(s string, o int) { got[s] = append(got[s], o) })
	for _, options := range got {
		slices.Sort(options)
	}
	return got
}

func wantAll(t *testing.T, tree *Tree[string, int], name string, want map[string][]int) {
	t.Helper()
	if got := all(tree, name); !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%s: %v, want %v", name, got, want)
	}
}

func TestOverlappingSubscriptionsComeOnceEach(t *testing.T) {
	var tree Tree[string, int]
	for i, filter := range []string{"#", "a/#", "a/+", "+/b", "a/b", "+/+", "a/b/#", "a/c"} {
		tree.Subscribe(filter, "c", i)
	}
	tree.Subscribe("a/b", "d", 9)
	wantAll(t, &tree, "a/b", map[string][]int{"c": {0, 1, 2, 3, 4, 5, 6}, "d": {9}})
}

func TestTheSameFilterAgainReplacesTheOptions(t *testing.T) {
	var tree Tree[string, int]
	for i, s := range []string{"c", "d", "e"} {
		if tree.Subscribe("a/+", s, i) {
			t.Errorf("%s: replaced what was not there", s)
		}
	}
	for i, s := range []string{"e", "c", "d"} { // first, last and middle of the list
		if !tree.Subscribe("a/+", s, 10+i) {
			t.Errorf("%s: not replaced", s)
		}
	}
	wantAll(t, &tree, "a/b", map[string][]int{"c": {11}, "d": {12}, "e": {10}})
	if tree.Len() != 3 {
		t.Errorf("%d subscriptions, want 3", tree.Len())
	}
}

func TestUnsubscribeTakesTheExactFilterOfTheOneSubscriber(t *testing.T) {
	var tree Tree[string, int]
	there := []said{{"a/b", "c"}, {"a/+", "c"}, {"a/#", "c"}, {"a/b", "d"}, {"a/b/c/d", "c"}}
	for i, s := range there {
		tree.Subscribe(s.filter, s.who, i)
	}
	for _, s := range []said{{"a", "c"}, {"a/c", "c"}, {"a/b/c", "c"}, {"a/b/c/d/e", "c"}, {"a/b/c/x", "c"}, {"+/b", "c"}, {"#", "c"}, {"a/+", "d"}, {"x", "c"}} {
		if tree.Unsubscribe(s.filter, s.who) {
			t.Errorf("%s ended %s without having it", s.who, s.filter)
		}
	}
	for i, s := range there {
		if o, ok := tree.Get(s.filter, s.who); !ok || o != i {
			t.Errorf("%v: %d %v, want %d", s, o, ok, i)
		}
		if !tree.Unsubscribe(s.filter, s.who) {
			t.Errorf("%v was not there", s)
		}
		if _, ok := tree.Get(s.filter, s.who); ok || tree.Unsubscribe(s.filter, s.who) {
			t.Errorf("%v is still there", s)
		}
		verify(t, &tree.trie)
	}
}

func TestAnEmptiedTreeKeepsNothing(t *testing.T) {
	var tree Tree[int, int]
	filters := []string{"a", "a/b", "a/b/c/d", "a/+/c", "a/#", "#", "+", "+/x/#", "/", "//", "///x", strings.Repeat("/", 65_535)}
	for i := range 1000 {
		filters = append(filters, fmt.Sprintf("dev/%d/cmd", i), fmt.Sprintf("+/%d/state", i))
	}
	for i, f := range filters {
		tree.Subscribe(f, i, 0)
	}
	verify(t, &tree.trie)
	if tree.Len() != len(filters) {
		t.Errorf("%d subscriptions, want %d", tree.Len(), len(filters))
	}
	for i, f := range filters {
		tree.Unsubscribe(f, i)
	}
	verify(t, &tree.trie)
	if tree.Len() != 0 || tree.trie.root.kids.Load() != nil {
		t.Errorf("%d subscriptions are left, and nodes: %v", tree.Len(), tree.trie.root.kids.Load() != nil)
	}
}

// A shared filter of a fleet gets a crowd; it must be right through every
// change, at each place of the list.
func TestManySubscribersOfOneFilter(t *testing.T) {
	var tree Tree[int, int]
	want := map[int]int{}
	check := func() {
		t.Helper()
		got := map[int]int{}
		tree.Match([]byte("fleet/all"), func(s, o int) {
			if _, twice := got[s]; twice {
				t.Errorf("%d came twice", s)
			}
			got[s] = o
		})
		if !maps.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
		tree.verifyCrowds(t)
	}
	put := func(s, o int) {
		t.Helper()
		if _, there := want[s]; tree.Subscribe("fleet/+", s, o) != there {
			t.Errorf("%d: was it there? %v", s, there)
		}
		want[s] = o
		check()
	}
	take := func(s int) {
		t.Helper()
		if _, there := want[s]; tree.Unsubscribe("fleet/+", s) != there {
			t.Errorf("%d: was it there? %v", s, there)
		}
		delete(want, s)
		check()
	}
	const n = 4 * many
	for i := range n {
		put(i, i)
	}
	if tree.crowds == nil {
		t.Error("no crowd")
	}
	for i := range n {
		put(i*7%n, 1000+i)
	}
	for i := range n {
		take(i * 5 % n)
		take(i * 5 % n)
		if i%3 == 0 {
			put(i*5%n, i)
		}
	}
	for i := range n {
		take(i)
	}
	if len(tree.crowds) != 0 {
		t.Error("a crowd is left")
	}
}

func TestAVisitMayChangeTheTree(t *testing.T) {
	var tree Tree[string, int]
	for _, s := range []string{"c", "d", "e"} {
		tree.Subscribe("a/#", s, 0)
		tree.Subscribe("a/b", s, 1)
	}
	visits := 0
	tree.Match([]byte("a/b"), func(s string, o int) {
		visits++
		tree.Unsubscribe("a/#", s)
		tree.Unsubscribe("a/b", s)
		tree.Subscribe("a/c/d", s, 2)
	})
	if visits < 3 {
		t.Errorf("%d visits, want one at least for each subscriber", visits)
	}
	wantAll(t, &tree, "a/b", nil)
	wantAll(t, &tree, "a/c/d", map[string][]int{"c": {2}, "d": {2}, "e": {2}})
}

func TestPathsOfVeryManyLevels(t *testing.T) {
	const levels = 65_535
	deep := strings.Repeat("/", levels)
	var tree Tree[string, int]
	var index Index
	// Each cut makes a node of its own, so the walk is deep.
	for i := 1; i < levels; i += 97 {
		tree.Subscribe(deep[:i]+"#", "c", i)
		index.Set(deep[:i])
	}
	n := 0
	tree.Match([]byte(deep), func(string, int) { n++ })
	if n != tree.Len() {
		t.Errorf("%d of %d matched", n, tree.Len())
	}
	if got := len(found(&index, "#")); got != index.Len() {
		t.Errorf("%d of %d found", got, index.Len())
	}
	verify(t, &tree.trie)
	verify(t, &index.trie)
}
