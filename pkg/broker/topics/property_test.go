package topics

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Few levels, so that filters share nodes, split them and match.
var (
	nameLevel   = rapid.SampledFrom([]string{"", "a", "b", "ab", "a b", "$", "$x", "é"})
	filterLevel = rapid.OneOf(nameLevel, rapid.SampledFrom([]string{singleLevel, singleLevel, multiLevel}))
)

func path(level *rapid.Generator[string]) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		levels := rapid.SliceOfN(level, 1, 5).Draw(t, "levels")
		if i := slices.Index(levels, multiLevel); i >= 0 {
			levels = levels[:i+1]
		}
		return strings.Join(levels, "/")
	}).Filter(func(s string) bool { return s != "" })
}

var someName, someFilter = path(nameLevel), path(filterLevel)

func TestDrawnPathsAreValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if err := ValidName([]byte(someName.Draw(t, "name"))); err != nil {
			t.Fatal(err)
		}
		if err := ValidFilter([]byte(someFilter.Draw(t, "filter"))); err != nil {
			t.Fatal(err)
		}
	})
}

func TestTheTreeIsASetOfSubscriptions(t *testing.T) {
	type key struct {
		filter string
		who    int
	}
	rapid.Check(t, func(t *rapid.T) {
		var tree Tree[int, int]
		want := map[key]int{}
		who := rapid.IntRange(0, rapid.SampledFrom([]int{1, 3, 3 * many}).Draw(t, "subscribers"))
		// A few filters come again and again, or hardly any would have many
		// subscribers, or be ended.
		filter := rapid.OneOf(rapid.SampledFrom(rapid.SliceOfN(someFilter, 1, 6).Draw(t, "often")), someFilter)
		draw := func(t *rapid.T) key { return key{filter.Draw(t, "filter"), who.Draw(t, "who")} }
		t.Repeat(map[string]func(*rapid.T){
			"subscribe": func(t *rapid.T) {
				k, options := draw(t), rapid.Int().Draw(t, "options")
				_, there := want[k]
				if tree.Subscribe(k.filter, k.who, options) != there {
					t.Fatalf("%v: was it there? %v", k, there)
				}
				want[k] = options
			},
			"many subscribe": func(t *rapid.T) {
				filter := filter.Draw(t, "filter")
				for who := range 2 * many {
					tree.Subscribe(filter, who, who)
					want[key{filter, who}] = who
				}
			},
			"unsubscribe": func(t *rapid.T) {
				k := draw(t)
				_, there := want[k]
				if tree.Unsubscribe(k.filter, k.who) != there {
					t.Fatalf("%v: was it there? %v", k, there)
				}
				delete(want, k)
			},
			"many unsubscribe": func(t *rapid.T) {
				filter := filter.Draw(t, "filter")
				for who := range 2 * many {
					tree.Unsubscribe(filter, who)
					delete(want, key{filter, who})
				}
			},
			"get": func(t *rapid.T) {
				k := draw(t)
				wantOptions, there := want[k]
				if options, ok := tree.Get(k.filter, k.who); ok != there || options != wantOptions {
					t.Fatalf("%v: %d %v, want %d %v", k, options, ok, wantOptions, there)
				}
			},
			"match": func(t *rapid.T) {
				name := someName.Draw(t, "name")
				var got, matched []string
				tree.Match([]byte(name), func(who, options int) {
					got = append(got, fmt.Sprint(who, options))
				})
				for k, options := range want {
					if Match(k.filter, name) {
						matched = append(matched, fmt.Sprint(k.who, options))
					}
				}
				slices.Sort(got)
				slices.Sort(matched)
				if !slices.Equal(got, matched) {
					t.Fatalf("%q: %q, want %q", name, got, matched)
				}
			},
			"": func(t *rapid.T) {
				if tree.Len() != len(want) {
					t.Fatalf("%d subscriptions, want %d", tree.Len(), len(want))
				}
				verify(t, &tree.trie)
				tree.verifyCrowds(t)
			},
		})
	})
}

func TestTheIndexIsASetOfNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var index Index
		want := map[string]bool{}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				name := someName.Draw(t, "name")
				if index.Set(name) == want[name] {
					t.Fatalf("%q: was it there? %v", name, want[name])
				}
				want[name] = true
			},
			"delete": func(t *rapid.T) {
				name := someName.Draw(t, "name")
				if index.Delete(name) != want[name] {
					t.Fatalf("%q: was it there? %v", name, want[name])
				}
				delete(want, name)
			},
			"match": func(t *rapid.T) {
				filter := someFilter.Draw(t, "filter")
				var matched []string
				for name := range want {
					if Match(filter, name) {
						matched = append(matched, name)
					}
				}
				slices.Sort(matched)
				if got := found(&index, filter); !slices.Equal(got, matched) {
					t.Fatalf("%q: %q, want %q", filter, got, matched)
				}
			},
			"": func(t *rapid.T) {
				if index.Len() != len(want) {
					t.Fatalf("%d names, want %d", index.Len(), len(want))
				}
				verify(t, &index.trie)
			},
		})
	})
}
