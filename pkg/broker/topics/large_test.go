package topics

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// subscriber and options are of a broker's size: a pointer; an identifier, the
// QoS and three flags.
type (
	subscriber struct{ number int }
	options    struct {
		identifier uint32
		flags      uint8
	}
)

// fleetFilter is number i of a fleet's filters: one for each device's
// commands, one for each device's state wherever it is, one for each room.
func fleetFilter(i int) string {
	switch i % 3 {
	case 0:
		return fmt.Sprintf("dev/%07d/cmd", i)
	case 1:
		return fmt.Sprintf("+/%07d/state", i)
	default:
		return fmt.Sprintf("site/%03d/%05d/#", i%1000, i/1000)
	}
}

// fleetName is a name that filter i alone matches.
func fleetName(i int) []byte {
	return []byte(strings.NewReplacer("+", "hall", "#", "lamp/on").Replace(fleetFilter(i)))
}

// fleet makes a subscription of each subscriber.
func fleet(each []subscriber) *Tree[*subscriber, options] {
	var tree Tree[*subscriber, options]
	for i := range each {
		tree.Subscribe(fleetFilter(i), &each[i], options{identifier: uint32(i), flags: 1})
	}
	return &tree
}

// retained makes an index of n names.
func retained(names []string) *Index {
	var index Index
	for _, name := range names {
		index.Set(name)
	}
	return &index
}

func retainedNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("site/%03d/lamp/%05d/state", i%1000, i/1000)
	}
	return names
}

// heapBytes is what make leaves on the heap.
func heapBytes[T any](make func() T) (kept T, bytes int) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	kept = make()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return kept, int(after.HeapAlloc) - int(before.HeapAlloc)
}

// small is how many bytes a subscription, or a name apart from its text, may
// take. About 100 is what a million take; it is 20 more where a large table has
// just doubled.
const small = 128

func TestManySubscriptionsStaySmall(t *testing.T) {
	each := make([]subscriber, large)
	tree, bytes := heapBytes(func() *Tree[*subscriber, options] { return fleet(each) })
	if t.Logf("%d bytes a subscription, of %d", bytes/large, large); bytes > small*large {
		t.Errorf("%d bytes a subscription, at most %d", bytes/large, small)
	}
	for i := 0; i < large; i += 1009 {
		n := 0
		tree.Match(fleetName(i), func(s *subscriber, o options) {
			if n++; s != &each[i] || o.identifier != uint32(i) {
				t.Errorf("%s: found subscription %d", fleetName(i), o.identifier)
			}
		})
		if n != 1 {
			t.Errorf("%s: %d subscriptions, want 1", fleetName(i), n)
		}
	}
}

func TestManyNamesStaySmall(t *testing.T) {
	names := retainedNames(large)
	index, bytes := heapBytes(func() *Index { return retained(names) })
	if t.Logf("%d bytes a name, of %d", bytes/large, large); bytes > small*large {
		t.Errorf("%d bytes a name, at most %d", bytes/large, small)
	}
	for filter, want := range map[string]int{"#": large, "site/+/lamp/00042/state": 1000, "site/007/#": large / 1000, names[5]: 1} {
		n := 0
		index.Match(filter, func(string) bool { n++; return true })
		if n != want {
			t.Errorf("%s: %d names, want %d", filter, n, want)
		}
	}
	runtime.KeepAlive(names)
}

// fan gives a tree of n subscriptions, and a name that all of them match: in
// ten ways up to 20, else all by one filter.
func fan(n int) (*Tree[*subscriber, options], []byte) {
	ways := []string{"f/g/x/y", "f/+/x/y", "f/g/+/y", "f/g/x/+", "f/g/x/#", "f/g/#", "+/g/x/y", "f/+/+/y", "f/+/x/#", "f/g/x/y/#"}
	if n > 20 {
		ways = ways[:1]
	}
	var tree Tree[*subscriber, options]
	for i := range n {
		tree.Subscribe(ways[i%len(ways)], &subscriber{i}, options{})
	}
	return &tree, []byte("f/g/x/y")
}

func TestMatchAllocatesNothing(t *testing.T) {
	for _, n := range []int{0, 1, 20, 1000} {
		tree, name := fan(n)
		seen := 0
		if allocs := testing.AllocsPerRun(100, func() {
			seen = 0
			tree.Match(name, func(*subscriber, options) { seen++ })
		}); allocs != 0 || seen != n {
			t.Errorf("%g allocations for %d matches, want %d", allocs, seen, n)
		}
	}
	index := retained(retainedNames(2000))
	for filter, n := range map[string]int{"#": 2000, "site/+/lamp/00001/state": 1000, "site/007/+/+/#": 2, "nothing/#": 0} {
		seen := 0
		if allocs := testing.AllocsPerRun(10, func() {
			seen = 0
			index.Match(filter, func(string) bool { seen++; return true })
		}); allocs != 0 || seen != n {
			t.Errorf("%s: %g allocations for %d names, want %d", filter, allocs, seen, n)
		}
	}
}
