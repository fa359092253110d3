package affinity

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/backend"
)

// up gives a backend that takes connections.
func up(s backend.Spec) *backend.Backend {
	b := backend.New(s)
	b.SetHealth(true, "")
	return b
}

// pool gives n backends that take connections, named by a format such as "b%d"
// from 1 on.
func pool(n int, format string) []*backend.Backend {
	all := make([]*backend.Backend, n)
	for i := range all {
		all[i] = up(backend.Spec{Name: fmt.Sprintf(format, i+1)})
	}
	return all
}

func build(t testing.TB, all []*backend.Backend, o Options) *Table {
	t.Helper()
	table, err := Build(all, o)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// hold takes n connections on b.
func hold(t testing.TB, b *backend.Backend, n int) {
	t.Helper()
	for range n {
		if !b.Acquire() {
			t.Fatalf("%s has no room", b.Name)
		}
	}
}

// place walks as the proxy does, and holds a connection on what it finds.
func place(t testing.TB, table *Table, key []byte) *backend.Backend {
	t.Helper()
	w := table.Walk(key)
	b, ok := w.Next()
	if !ok || !b.Acquire() {
		t.Fatalf("no backend takes %q", key)
	}
	return b
}

// names drains a walk.
func names(w *Walk) []string {
	got := []string{}
	for {
		b, ok := w.Next()
		if !ok {
			return got
		}
		got = append(got, b.Name)
	}
}

// order is the names of all backends as Pick gives them.
func order(t *Table, key []byte) []string {
	got := []string{}
	for attempt := 0; ; attempt++ {
		b, ok := t.Pick(key, attempt)
		if !ok {
			return got
		}
		got = append(got, b.Name)
	}
}

func home(t testing.TB, table *Table, key []byte) *backend.Backend {
	t.Helper()
	b, ok := table.Pick(key, 0)
	if !ok {
		t.Fatalf("%q has no home", key)
	}
	return b
}

func without(all []*backend.Backend, name string) []*backend.Backend {
	return slices.DeleteFunc(slices.Clone(all), func(b *backend.Backend) bool { return b.Name == name })
}

// forms are the Client Identifiers that fleets have.
var forms = []struct {
	name string
	ids  func(n int) [][]byte
}{
	{"counted names", func(n int) [][]byte {
		return ids(n, func(i int) []byte { return fmt.Appendf(nil, "dev-%06d", i+1) })
	}},
	{"MAC addresses", func(n int) [][]byte {
		return ids(n, func(i int) []byte { return fmt.Appendf(nil, "AA:BB:CC:%02X:%02X:%02X", i>>16, i>>8&0xff, i&0xff) })
	}},
	{"UUIDs", func(n int) [][]byte {
		r := rand.New(rand.NewPCG(1, 2))
		return ids(n, func(int) []byte {
			a, b := r.Uint64(), r.Uint64()
			return fmt.Appendf(nil, "%08x-%04x-4%03x-%04x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>48&0x3fff|0x8000, b&(1<<48-1))
		})
	}},
}

func ids(n int, id func(i int) []byte) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		all[i] = id(i)
	}
	return all
}

// spread counts the homes of keys and gives the heaviest and the lightest as a
// part of the mean. It goes to the ring directly, for speed; the first is held
// against Pick.
func spread(t testing.TB, table *Table, keys [][]byte) (heaviest, lightest float64) {
	t.Helper()
	count := make([]int, len(table.members))
	for i, key := range keys {
		owner := table.ring[table.ring.find(hashKey(key))] & ownerMask
		if i == 0 && table.members[owner] != home(t, table, key) {
			t.Fatalf("Pick puts %q elsewhere than the ring", key)
		}
		count[owner]++
	}
	mean := float64(len(keys)) / float64(len(count))
	return float64(slices.Max(count)) / mean, float64(slices.Min(count)) / mean
}
