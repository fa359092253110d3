package topics

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
)

// churn lets writers work on a tree while readers read, until the writers are
// done. Each writer does so many steps; steps differ in number and luck.
func churn(writers, steps int, write func(writer, step int, luck *rand.Rand), read ...func()) {
	var writing, reading sync.WaitGroup
	done := make(chan struct{})
	for _, read := range read {
		reading.Go(func() {
			for {
				read()
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for w := range writers {
		writing.Go(func() {
			luck := rand.New(rand.NewPCG(uint64(w), 7))
			for i := range steps {
				write(w, i, luck)
			}
		})
	}
	writing.Wait()
	close(done)
	reading.Wait()
}

// Each change below is made of several stores, of which one makes it visible.
// A tight loop on just that change finds a reader between two of them, which
// the tests of mixed changes hardly ever do.
func TestNoChangeShowsHalf(t *testing.T) {
	const standing, name = "a/b/c/d", "a/b/c/d"
	subscribe := func(filter string) func(*Tree[int, int], int) {
		return func(tree *Tree[int, int], i int) { tree.Subscribe(filter, 1, i) }
	}
	unsubscribe := func(filter string) func(*Tree[int, int], int) {
		return func(tree *Tree[int, int], _ int) { tree.Unsubscribe(filter, 1) }
	}
	for _, tc := range []struct {
		of         string
		steps      int
		make, undo func(*Tree[int, int], int)
	}{
		{"a label is cut for another, and mended", 20_000, subscribe("a/b/x"), unsubscribe("a/b/x")},
		{"a label is cut for its beginning, and mended", 20_000, subscribe("a/b"), unsubscribe("a/b")},
		{"a leaf gets a child, and loses it", 20_000, subscribe("a/b/c/d/e"), unsubscribe("a/b/c/d/e")},
		{"another subscriber comes, and goes", 100_000, subscribe(standing), unsubscribe(standing)},
		{"another subscriber changes options", 100_000, subscribe(standing), subscribe(standing)},
		{"a table grows, and shrinks", 500, func(tree *Tree[int, int], i int) {
			for j := range 4 * fewSlots {
				tree.Subscribe(fmt.Sprint(j), 1, i)
			}
		}, func(tree *Tree[int, int], _ int) {
			for j := range 4 * fewSlots {
				tree.Unsubscribe(fmt.Sprint(j), 1)
			}
		}},
	} {
		t.Run(tc.of, func(t *testing.T) {
			var tree Tree[int, int]
			tree.Subscribe(standing, 0, 0)
			seen, wrong := 0, 0
			count := func(s, _ int) {
				if s == 0 {
					seen++
				}
			}
			churn(1, tc.steps, func(_, i int, _ *rand.Rand) {
				tc.make(&tree, i)
				tc.undo(&tree, i)
			}, func() {
				for range 100 {
					seen = 0
					if tree.Match([]byte(name), count); seen != 1 {
						wrong++
					}
				}
			})
			if wrong > 0 {
				t.Errorf("%d times the standing subscription did not come once", wrong)
			}
		})
	}
}

// What comes and goes around that which stays: paths that split its nodes and
// end inside of them, and enough of them that tables grow and shrink.
func passing() (paths []string) {
	for _, p := range []string{"a", "a/b", "a/b/c", "a/b/x", "a/b/c/x", "a/b/c/d/e", "a/x/c", "b", "/", "a/"} {
		paths = append(paths, p, p+"/y", "x"+p)
	}
	for i := range 8 * fewSlots {
		paths = append(paths, fmt.Sprintf("a/b/c/%d", i), fmt.Sprintf("%d/b/c", i), fmt.Sprintf("a/%d", i))
	}
	return paths
}

// filling makes writers fill a structure and empty it in turns, so that it
// passes through all its sizes.
func filling(step int, luck *rand.Rand) bool { return luck.IntN(10) < 2+6*(step/500%2) }

func TestStandingSubscriptionsComeOnceWhileOthersChange(t *testing.T) {
	standing := []string{"a/b/c/d", "a/+/c/#", "+/b/#", "a/b/c", "#", "+/+/+/d", "fleet/all", "+/all"}
	names := []string{"a/b/c/d", "a/b/c", "x/b", "fleet/all", "a/1/c/2"}
	filters := passing()
	for _, p := range filters {
		filters = append(filters, "+/"+p, p+"/+", p+"/#")
	}
	filters = append(filters, standing...)

	var tree Tree[string, int]
	for _, f := range standing {
		tree.Subscribe(f, f, 0)
	}
	read := func() {
		for _, name := range names {
			seen := map[string]int{}
			tree.Match([]byte(name), func(s string, _ int) { seen[s]++ })
			for _, f := range standing {
				want := 0
				if Match(f, name) {
					want = 1
				}
				if seen[f] != want {
					t.Errorf("%s: %s came %d times, want %d", name, f, seen[f], want)
				}
			}
			if _, ok := tree.Get(name, name); !ok && (name == "a/b/c" || name == "a/b/c/d" || name == "fleet/all") {
				t.Errorf("%s is not found", name)
			}
		}
	}
	churn(2, 10_000, func(w, i int, luck *rand.Rand) {
		filter, who := filters[luck.IntN(len(filters))], fmt.Sprint("passing ", w)
		switch luck.IntN(4) {
		case 0: // a fleet on one filter
			filter, who = "fleet/all", fmt.Sprint(w, luck.IntN(3*many))
		case 1: // options of one that stands
			filter = standing[luck.IntN(len(standing))]
			tree.Subscribe(filter, filter, i)
			return
		}
		if filling(i, luck) {
			tree.Subscribe(filter, who, i)
		} else {
			tree.Unsubscribe(filter, who)
		}
	}, read, read)
	verify(t, &tree.trie)
	tree.verifyCrowds(t)
}

func TestStandingNamesComeOnceWhileOthersChange(t *testing.T) {
	standing := []string{"a/b/c/d", "a/b/z", "b/b/c", "fleet/all", "z"}
	filters := []string{"#", "a/#", "a/b/#", "a/b/c/d", "+/b/c", "+/+", "+/b/+/#", "a/b/c/d/#"}
	names := passing()

	var index Index
	for _, name := range standing {
		index.Set(name)
	}
	read := func() {
		for _, filter := range filters {
			seen := map[string]int{}
			index.Match(filter, func(name string) bool {
				seen[name]++
				return true
			})
			for _, name := range standing {
				want := 0
				if Match(filter, name) {
					want = 1
				}
				if seen[name] != want {
					t.Errorf("%s: %s came %d times, want %d", filter, name, seen[name], want)
				}
			}
		}
	}
	churn(2, 10_000, func(_, i int, luck *rand.Rand) {
		name := names[luck.IntN(len(names))]
		if filling(i, luck) {
			index.Set(name)
		} else {
			index.Delete(name)
		}
	}, read, read)
	verify(t, &index.trie)
}

// What a Subscribe or Unsubscribe did is seen by a Match that begins after it.
func TestAWriterSeesItsOwnChanges(t *testing.T) {
	var tree Tree[int, int]
	names := passing()
	churn(4, 5_000, func(w, i int, luck *rand.Rand) {
		name := names[luck.IntN(len(names))]
		seen := func() (n int) {
			tree.Match([]byte(name), func(s, o int) {
				if s == w && o == i {
					n++
				}
			})
			return n
		}
		tree.Subscribe(name, w, i)
		if n := seen(); n != 1 {
			t.Errorf("%s came %d times after it was made", name, n)
		}
		tree.Unsubscribe(name, w)
		if n := seen(); n != 0 {
			t.Errorf("%s came %d times after it was ended", name, n)
		}
	})
	if tree.trie.root.kids.Load() != nil {
		t.Error("nodes are left")
	}
}
