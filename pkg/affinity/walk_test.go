package affinity

import (
	"slices"
	"sync"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/backend"
)

func TestWalkGoesFromHomeToTheSpares(t *testing.T) {
	key := []byte("dev-000001")
	// Rows name backends by their place in the key's order: 0 is home.
	for _, c := range []struct {
		name   string
		set    func(b []*backend.Backend)
		want   []int
		full   bool
		spills []uint64
	}{
		{"all well", func([]*backend.Backend) {}, []int{0, 1, 2, 3}, false, nil},
		{"home down", func(b []*backend.Backend) {
			b[0].SetHealth(false, "refused")
		}, []int{1, 2, 3}, false, nil},
		{"home in drain, a spare in maintenance", func(b []*backend.Backend) {
			b[0].SetAdmin(backend.Drain)
			b[2].SetAdmin(backend.Maint)
		}, []int{1, 3}, false, nil},
		{"home full", func(b []*backend.Backend) {
			hold(t, b[0], 5)
		}, []int{1, 2, 3}, true, []uint64{1, 0, 0, 0}},
		{"home down and full, which is down", func(b []*backend.Backend) {
			hold(t, b[0], 5)
			b[0].SetHealth(false, "refused")
		}, []int{1, 2, 3}, false, nil},
		{"all full", func(b []*backend.Backend) {
			for _, b := range b {
				hold(t, b, 5)
			}
		}, nil, true, []uint64{1, 1, 1, 1}},
		{"all down", func(b []*backend.Backend) {
			for _, b := range b {
				b.SetHealth(false, "refused")
			}
		}, nil, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var all, byPlace []*backend.Backend
			for _, name := range []string{"a", "b", "c", "d"} {
				all = append(all, up(backend.Spec{Name: name, MaxConnections: 5}))
			}
			table := build(t, all, Options{})
			for i := range all {
				b, _ := table.Pick(key, i)
				byPlace = append(byPlace, b)
			}
			c.set(byPlace)

			want := []string{}
			for _, place := range c.want {
				want = append(want, byPlace[place].Name)
			}
			w := table.Walk(key)
			if got := names(&w); !slices.Equal(got, want) {
				t.Errorf("went to %v, want %v", got, want)
			}
			if w.Full() != c.full || w.Attempt() != len(want) {
				t.Errorf("full %v after %d, want %v after %d", w.Full(), w.Attempt(), c.full, len(want))
			}
			for i, b := range byPlace {
				if want := slices.Concat(c.spills, make([]uint64, 4))[i]; b.Spilled() != want {
					t.Errorf("place %d: %d spills, want %d", i, b.Spilled(), want)
				}
			}
			if _, ok := w.Next(); ok {
				t.Error("went on past the end")
			}
		})
	}
}

func TestABackendThatReturnsServesItsOwnAgain(t *testing.T) {
	all := pool(3, "b%d")
	table := build(t, all, Options{})
	keys := forms[0].ids(1000)
	all[1].SetHealth(false, "refused")
	for _, key := range keys {
		if h := home(t, table, key); h != all[1] && place(t, table, key) != h {
			t.Fatalf("%q left %s, which is up", key, h.Name)
		}
	}
	all[1].SetHealth(true, "")
	for _, key := range keys {
		if got, want := place(t, table, key), home(t, table, key); got != want {
			t.Fatalf("%q on %s, home is %s", key, got.Name, want.Name)
		}
	}
}

func TestNoRoomCountsAsFullAndAsNoAttempt(t *testing.T) {
	all := []*backend.Backend{up(backend.Spec{Name: "a", MaxConnections: 1})}
	table := build(t, all, Options{})
	w := table.Walk([]byte("x"))
	w.NoRoom() // before the first Next there is nothing to tell
	b, ok := w.Next()
	if !ok || w.Full() || w.Attempt() != 1 {
		t.Fatalf("next %v, full %v, attempt %d", ok, w.Full(), w.Attempt())
	}
	hold(t, b, 1) // another client takes the last place
	if b.Acquire() {
		t.Fatal("acquired past the bound")
	}
	w.NoRoom()
	w.NoRoom()
	if _, ok := w.Next(); ok || !w.Full() || w.Attempt() != 0 || b.Spilled() != 1 {
		t.Fatalf("next %v, full %v, attempt %d, spilled %d", ok, w.Full(), w.Attempt(), b.Spilled())
	}
}

func TestAnEmptyKeyIsSpreadWhateverTheBalance(t *testing.T) {
	for _, balance := range []Balance{Ring, LeastConnections, RoundRobin, Random} {
		t.Run(string(balance), func(t *testing.T) {
			all := pool(4, "b%d")
			all[3].SetAdmin(backend.Drain)
			table := build(t, all, Options{Balance: balance})
			for _, key := range [][]byte{nil, {}} {
				for range 150 {
					place(t, table, key)
				}
			}
			for i, want := range []int64{100, 100, 100, 0} {
				if got := all[i].Connections(); got != want {
					t.Errorf("%s holds %d, want %d", all[i].Name, got, want)
				}
			}
		})
	}
}

func TestEveryBalanceGivesEachUsableBackendOnce(t *testing.T) {
	for name, o := range map[string]Options{
		"ring":              {},
		"ring with a bound": {LoadFactor: 1.05},
		"least connections": {Balance: LeastConnections},
		"round robin":       {Balance: RoundRobin},
		"random":            {Balance: Random},
	} {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{5, inlineMembers + 44} {
				all := light(n)
				want := []string{}
				for i, b := range all {
					if i%3 == 0 {
						b.SetHealth(false, "refused")
						continue
					}
					hold(t, b, i)
					want = append(want, b.Name)
				}
				table := build(t, all, o)
				w := table.Walk([]byte("dev-000001"))
				got := names(&w)
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Fatalf("%d backends: got %d, want %d", n, len(got), len(want))
				}
			}
		})
	}
}

// Health flips and connections come and go while others walk: what a walk gives
// was usable at its turn, and no bound is ever passed. For the race detector.
func TestWalksShareATable(t *testing.T) {
	for _, o := range []Options{{LoadFactor: 1.25}, {Balance: LeastConnections}, {Balance: RoundRobin}, {Balance: Random}} {
		var all []*backend.Backend
		for _, name := range []string{"a", "b", "c"} {
			all = append(all, up(backend.Spec{Name: name, MaxConnections: 3, Weight: 10}))
		}
		table := build(t, all, o)
		keys := forms[0].ids(200)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for _, key := range keys {
					w := table.Walk(key)
					for b, ok := w.Next(); ok; b, ok = w.Next() {
						if !b.Acquire() {
							w.NoRoom()
							continue
						}
						if n := b.Connections(); n > 4+3 { // the failed Acquires of others show for a moment
							t.Errorf("%s holds %d", b.Name, n)
						}
						b.Release()
						break
					}
					table.Explain(key)
				}
			})
		}
		wg.Go(func() {
			for i := range 400 {
				all[i%3].SetHealth(i%2 == 0, "flip")
			}
		})
		wg.Wait()
		for _, b := range all {
			if b.Connections() != 0 {
				t.Errorf("%s still holds %d", b.Name, b.Connections())
			}
		}
	}
}
