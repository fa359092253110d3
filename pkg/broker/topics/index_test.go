package topics

import (
	"fmt"
	"slices"
	"testing"
)

func TestNamesComeAndGo(t *testing.T) {
	var index Index
	for _, name := range []string{"a/b", "a", "a/b/c", "b"} {
		if !index.Set(name) {
			t.Errorf("%s is not new", name)
		}
		if index.Set(name) {
			t.Errorf("%s is new again", name)
		}
	}
	for _, name := range []string{"a/b/c/d", "a/c", "c", "a/"} {
		if index.Delete(name) {
			t.Errorf("%s was never there", name)
		}
	}
	if !index.Delete("a/b") || index.Delete("a/b") {
		t.Error("a/b was to go once")
	}
	if got, want := found(&index, "#"), []string{"a", "a/b/c", "b"}; !slices.Equal(got, want) || index.Len() != len(want) {
		t.Errorf("%d names: %q, want %q", index.Len(), got, want)
	}
	verify(t, &index.trie)
}

func TestAVisitOfNamesEndsWhenItSaysSo(t *testing.T) {
	var index Index
	for i := range 100 {
		index.Set(fmt.Sprintf("a/%d/x", i))
		index.Set(fmt.Sprintf("a/%d", i))
	}
	index.Set("a")
	for _, filter := range []string{"#", "a/#", "+/+", "a/+/#", "+/+/x"} {
		for want := 1; want <= 5; want++ {
			visits := 0
			index.Match(filter, func(string) bool {
				visits++
				return visits < want
			})
			if visits != want {
				t.Errorf("%s: %d visits after the last was to be number %d", filter, visits, want)
			}
		}
	}
}

func TestAVisitMayChangeTheIndex(t *testing.T) {
	var index Index
	for i := range 1000 {
		index.Set(fmt.Sprintf("a/%d", i))
	}
	visits := 0
	index.Match("a/+", func(name string) bool {
		visits++
		return index.Delete(name)
	})
	if visits != 1000 || index.Len() != 0 || index.trie.root.kids.Load() != nil {
		t.Errorf("%d visits, %d names left", visits, index.Len())
	}
}
