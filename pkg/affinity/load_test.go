package affinity

import (
	"slices"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/backend"
)

func TestBoundIsTheFactorTimesTheFairPartRoundedUp(t *testing.T) {
	for _, c := range []struct {
		name    string
		factor  float64
		weights []int
		held    []int
		want    []int64
	}{
		{"an empty pool takes its first anywhere", 1.25, []int{100, 100}, []int{0, 0}, []int64{1, 1}},
		{"rounded up", 1.25, []int{100, 100}, []int{5, 4}, []int64{7, 7}},            // 1.25 x 10/2 = 6.25
		{"not past a whole number", 1.1, []int{1, 1}, []int{10, 9}, []int64{11, 11}}, // in floats 1.1 x 10 is over 11
		{"by weight", 1.5, []int{100, 300}, []int{3, 4}, []int64{3, 9}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var all []*backend.Backend
			for i, w := range c.weights {
				b := up(backend.Spec{Name: string(rune('a' + i)), Weight: w})
				hold(t, b, c.held[i])
				all = append(all, b)
			}
			at := build(t, all, Options{LoadFactor: c.factor}).boundNow()
			for i, b := range all {
				if got := at.of(b); got != c.want[i] {
					t.Errorf("%s may hold %d, want %d", b.Name, got, c.want[i])
				}
			}
		})
	}
}

func TestTheBoundCountsOnlyThoseThatCouldTakeAConnection(t *testing.T) {
	all := pool(5, "b%d")
	all[4] = up(backend.Spec{Name: "b5", MaxConnections: 10})
	table := build(t, all, Options{LoadFactor: 1.25})
	hold(t, all[0], 19)
	hold(t, all[1], 20)
	for _, out := range all[2:] {
		hold(t, out, 10)
	}
	all[2].SetHealth(false, "refused") // its connections may well live on
	all[3].SetAdmin(backend.Drain)
	if at := table.boundNow(); at.connections != 40 || at.weight != 200 || at.of(all[0]) != 25 {
		t.Fatalf("bound %+v", at)
	}
}

func TestOverTheBoundGoesToTheSpareAndIsCounted(t *testing.T) {
	key := []byte("dev-000001")
	all := pool(3, "b%d")
	table := build(t, all, Options{LoadFactor: 1.25})
	h := home(t, table, key)
	hold(t, h, 10)
	spare, _ := table.Pick(key, 1)
	if got := place(t, table, key); got != spare || h.Spilled() != 1 {
		t.Fatalf("went to %s with %d spills at home, want %s with 1", got.Name, h.Spilled(), spare.Name)
	}
	h.Release()
	hold(t, spare, 20)
	if got := place(t, table, key); got != h {
		t.Fatalf("went to %s although home is within its bound", got.Name)
	}
}

// The bound evens the load; it never turns a client away. When those within the
// bound can't be reached, those over it have their second turn.
func TestThoseOverTheBoundHaveASecondTurn(t *testing.T) {
	key := []byte("dev-000001")
	all := pool(4, "b%d")
	table := build(t, all, Options{LoadFactor: 1.25})
	way := order(table, key)
	named := func(i int) *backend.Backend {
		return all[slices.IndexFunc(all, func(b *backend.Backend) bool { return b.Name == way[i] })]
	}
	hold(t, named(0), 50)
	hold(t, named(2), 50)

	w := table.Walk(key)
	if got, want := names(&w), []string{way[1], way[3], way[0], way[2]}; !slices.Equal(got, want) {
		t.Fatalf("went to %v, want %v", got, want)
	}
	if w.Full() {
		t.Fatal("over the bound is not full")
	}
	if named(0).Spilled() != 1 || named(2).Spilled() != 1 {
		t.Fatalf("spills %d and %d, want one each", named(0).Spilled(), named(2).Spilled())
	}
	if _, ok := w.Next(); ok {
		t.Fatal("a third turn")
	}
}

func TestTheBoundHoldsForABusyFewOfTheKeys(t *testing.T) {
	// All clients live on one home: the case that the bound is for.
	all := pool(4, "b%d")
	table := build(t, all, Options{LoadFactor: 1.25})
	var keys [][]byte
	for _, key := range forms[0].ids(4000) {
		if home(t, table, key) == all[0] {
			keys = append(keys, key)
		}
	}
	for i, key := range keys {
		b := place(t, table, key)
		if most := (125*int64(i+1) + 399) / 400; b.Connections() > most {
			t.Fatalf("after %d connections %s holds %d, may hold %d", i+1, b.Name, b.Connections(), most)
		}
	}
}
