package topics

import (
	"bytes"
	"slices"
	"testing"
)

// Whatever is accepted as a filter and as a name is matched alike by the
// reference, the tree and the index, with any other filter and name around.
func FuzzMatch(f *testing.F) {
	f.Add("a/+/b", "a//b", "#", "$SYS/x")
	f.Add("$SYS/#", "$SYS", "+/+", "$SYS/broker/x")
	f.Add("sport/tennis/#", "sport/tennis", "sport/tennis/+", "sport")
	f.Add("/", "//", "/#", "/")
	f.Fuzz(func(t *testing.T, filter, name, otherFilter, otherName string) {
		filters := valid(ValidFilter, filter, otherFilter, name, otherName)
		names := valid(ValidName, name, otherName, filter, otherFilter)
		var tree Tree[string, struct{}]
		for _, filter := range filters {
			tree.Subscribe(filter, filter, struct{}{})
		}
		var index Index
		for _, name := range names {
			index.Set(name)
		}
		verify(t, &tree.trie)
		verify(t, &index.trie)
		for _, name := range names {
			if ValidFilter([]byte(name)) != nil || !Match(name, name) {
				t.Errorf("the name %q does not match itself", name)
			}
			want := slices.DeleteFunc(slices.Clone(filters), func(f string) bool { return !Match(f, name) })
			if got := matching(&tree, name); !slices.Equal(got, want) {
				t.Errorf("%q: matched by %q, want %q", name, got, want)
			}
		}
		for _, filter := range filters {
			want := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !Match(filter, n) })
			if got := found(&index, filter); !slices.Equal(got, want) {
				t.Errorf("%q: found %q, want %q", filter, got, want)
			}
			if group, rest, shared, err := ParseShare(filter); err == nil {
				if err := ValidFilter([]byte(rest)); err != nil {
					t.Errorf("%q: rest %q: %v", filter, rest, err)
				}
				if again := sharePrefix + group + "/" + rest; shared && again != filter || !shared && rest != filter {
					t.Errorf("%q: group %q, rest %q", filter, group, rest)
				}
			}
		}
	})
}

// valid gives the texts that a rule accepts, sorted and each once.
func valid(rule func([]byte) error, texts ...string) []string {
	texts = slices.DeleteFunc(texts, func(s string) bool { return rule([]byte(s)) != nil })
	slices.Sort(texts)
	return slices.Compact(texts)
}

// A tree is changed as bytes say, and must stay what its comments promise.
func FuzzChanges(f *testing.F) {
	f.Add([]byte("a/b\na/c\na/#\n-a/b\na\n-a/c"))
	f.Add([]byte("+/x/y\n+/x\n-+/x/y\n/\n//\n-/"))
	f.Fuzz(func(t *testing.T, changes []byte) {
		var tree Tree[string, struct{}]
		var index Index
		filters, names := map[string]bool{}, map[string]bool{}
		for line := range bytes.SplitSeq(changes, []byte("\n")) {
			path, gone := bytes.CutPrefix(line, []byte("-"))
			text := string(path)
			if ValidFilter(path) != nil {
				continue
			}
			if gone {
				if tree.Unsubscribe(text, "c") != filters[text] {
					t.Errorf("filter %q: was it there? %v", text, filters[text])
				}
				delete(filters, text)
			} else {
				tree.Subscribe(text, "c", struct{}{})
				filters[text] = true
			}
			if ValidName(path) != nil {
				continue
			}
			if gone {
				if index.Delete(text) != names[text] {
					t.Errorf("name %q: was it there? %v", text, names[text])
				}
				delete(names, text)
			} else {
				index.Set(text)
				names[text] = true
			}
		}
		verify(t, &tree.trie)
		verify(t, &index.trie)
		if tree.Len() != len(filters) || index.Len() != len(names) {
			t.Errorf("%d filters and %d names, want %d and %d", tree.Len(), index.Len(), len(filters), len(names))
		}
		for filter := range filters {
			if _, ok := tree.Get(filter, "c"); !ok {
				t.Errorf("filter %q is lost", filter)
			}
		}
		for name := range names {
			if got := found(&index, name); len(got) != 1 || got[0] != name {
				t.Errorf("name %q: found %q", name, got)
			}
		}
	})
}
