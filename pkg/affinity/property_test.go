package affinity

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/mqttlb/mqttlb/pkg/backend"
)

// somePool draws a pool in any state: weights, bounds, health, admin, load.
func somePool(t *rapid.T) []*backend.Backend {
	n := rapid.IntRange(1, 12).Draw(t, "backends")
	all := make([]*backend.Backend, n)
	for i := range all {
		all[i] = backend.New(backend.Spec{
			Name:           fmt.Sprintf("b%d", i),
			Weight:         rapid.IntRange(1, 8).Draw(t, "weight"),
			MaxConnections: rapid.SampledFrom([]int{0, 0, 1, 5, 20}).Draw(t, "max"),
		})
		if rapid.IntRange(0, 4).Draw(t, "checked") > 0 {
			all[i].SetHealth(rapid.IntRange(0, 3).Draw(t, "up") > 0, "drawn")
		}
		all[i].SetAdmin(rapid.SampledFrom([]backend.Admin{backend.Active, backend.Active, backend.Active, backend.Drain, backend.Maint}).Draw(t, "admin"))
		for range rapid.IntRange(0, 30).Draw(t, "held") {
			all[i].Acquire()
		}
	}
	return all
}

func someKey(t *rapid.T) []byte {
	return rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "key")
}

func mustBuild(t *rapid.T, all []*backend.Backend, o Options) *Table {
	table, err := Build(all, o)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

var someFactor = rapid.SampledFrom([]float64{0, 1.05, 1.25, 2})

func TestAWalkGivesExactlyThoseThatCanServe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := somePool(t)
		o := Options{Balance: rapid.SampledFrom([]Balance{Ring, LeastConnections, RoundRobin, Random}).Draw(t, "balance")}
		if o.Balance == Ring {
			o.LoadFactor = someFactor.Draw(t, "factor")
		}
		table := mustBuild(t, all, o)
		key := someKey(t)
		want, full := []string{}, false
		for _, b := range all {
			switch {
			case b.Usable() && b.Full():
				full = true
			case b.Usable():
				want = append(want, b.Name)
			}
		}
		w := table.Walk(key)
		got := names(&w)
		if o.Balance == Ring && o.LoadFactor == 0 {
			// The order is that of Pick, with those that can't serve left out.
			ringwise := slices.DeleteFunc(order(table, key), func(n string) bool { return !slices.Contains(want, n) })
			if !slices.Equal(got, ringwise) {
				t.Fatalf("went to %v, the ring says %v", got, ringwise)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) || w.Attempt() != len(want) {
			t.Fatalf("gave %v (attempt %d), could serve %v", got, w.Attempt(), want)
		}
		if w.Full() != full {
			t.Fatalf("full %v, want %v", w.Full(), full)
		}
	})
}

func TestExplainSaysWhatAWalkWouldDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := somePool(t)
		table := mustBuild(t, all, Options{LoadFactor: someFactor.Draw(t, "factor")})
		key := someKey(t)
		e := table.Explain(key)
		for _, b := range all {
			if b.Spilled() != 0 {
				t.Fatal("an explanation counted a spill")
			}
		}
		w := table.Walk(key)
		got := ""
		if b, ok := w.Next(); ok {
			got = b.Name
		}
		if e.Serves != got {
			t.Fatalf("explained %q, went to %q\n%s", e.Serves, got, e)
		}
		for i, name := range order(table, key) {
			if e.Order[i].Name != name {
				t.Fatalf("place %d: explained %s, picked %s", i, e.Order[i].Name, name)
			}
		}
	})
}

func TestNoneGoesOverTheBoundWhileAnotherHasRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := somePool(t)
		factor := rapid.SampledFrom([]float64{1.05, 1.25, 1.5}).Draw(t, "factor")
		table := mustBuild(t, all, Options{LoadFactor: factor})
		for range rapid.IntRange(1, 50).Draw(t, "clients") {
			bound := table.boundNow()
			w := table.Walk(someKey(t))
			b, ok := w.Next()
			if !ok {
				return
			}
			if !b.Acquire() {
				t.Fatalf("%s was given and is full", b.Name)
			}
			if b.Connections() > bound.of(b) {
				t.Fatalf("%s holds %d, may hold %d", b.Name, b.Connections(), bound.of(b))
			}
		}
	})
}

func TestMembershipMovesOnlyTheKeysOfWhoLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := somePool(t)
		if len(all) == 1 {
			t.Skip("none would be left")
		}
		gone := rapid.SampledFrom(all).Draw(t, "gone").Name
		keys := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 1, 40), 1, 20).Draw(t, "keys")
		before := mustBuild(t, rapid.Permutation(all).Draw(t, "one list"), Options{})
		after := mustBuild(t, rapid.Permutation(without(all, gone)).Draw(t, "another list"), Options{})
		for _, key := range keys {
			want := slices.DeleteFunc(order(before, key), func(n string) bool { return n == gone })
			if got := order(after, key); !slices.Equal(got, want) {
				t.Fatalf("%q: order %v, want %v", key, got, want)
			}
		}
	})
}
