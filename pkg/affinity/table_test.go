package affinity

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/backend"
)

func TestBuildSaysWhatIsWrongAndHowToMendIt(t *testing.T) {
	named := func(names ...string) (all []*backend.Backend) {
		for _, n := range names {
			all = append(all, up(backend.Spec{Name: n}))
		}
		return all
	}
	weighing := func(w int) []*backend.Backend {
		return []*backend.Backend{up(backend.Spec{Name: "b1", Weight: w})}
	}
	heavy := pool(300, "b%d")
	for i, b := range heavy {
		heavy[i] = b.With(backend.Spec{Name: b.Name, Weight: MaxWeight})
	}
	for _, c := range []struct {
		name string
		all  []*backend.Backend
		o    Options
		want []string
	}{
		{"no backends", nil, Options{}, []string{"no backends; list at least one"}},
		{"one name twice", named("b1", "b2", "b1"), Options{}, []string{`two backends are named "b1"`}},
		{"no name", named("b1", ""), Options{}, []string{"backend 2 of 2 has no name"}},
		{"weight below 1", weighing(-1), Options{}, []string{`backend "b1": weight -1 is out of range; write 1 to 1000`}},
		{"weight above 1000", weighing(1001), Options{}, []string{`weight 1001 is out of range`}},
		{"a ring too large", heavy, Options{}, []string{"the weights sum to 300000; a ring takes at most 262144"}},
		{"too many backends", pool(maxBackends+1, "b%d"), Options{Balance: Random}, []string{"65537 backends; a pool takes at most 65536"}},
		{"unknown balance", named("b1"), Options{Balance: "ringg"}, []string{`balance "ringg" is unknown; write ring, least_connections, round_robin or random`}},
		{"load factor too tight", named("b1"), Options{LoadFactor: 1}, []string{"load_factor 1 is out of range; write 1.05 to 100, or 0 for no bound"}},
		{"load factor below zero", named("b1"), Options{LoadFactor: -1.5}, []string{"load_factor -1.5 is out of range"}},
		{"load factor not a number", named("b1"), Options{LoadFactor: math.NaN()}, []string{"load_factor NaN is out of range"}},
		{"load factor infinite", named("b1"), Options{LoadFactor: math.Inf(1)}, []string{"load_factor +Inf is out of range"}},
		{"load factor without a ring", named("b1"), Options{Balance: RoundRobin, LoadFactor: 1.5}, []string{`load_factor bounds the ring and means nothing to balance "round_robin"`}},
		{"several at once", named("b1", "b1", ""), Options{Balance: "x"}, []string{`balance "x"`, `named "b1"`, "has no name"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Build(c.all, c.o)
			if err == nil {
				t.Fatal("built")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestTheHeaviestPoolThatNeedsNoRingIsBuilt(t *testing.T) {
	all := pool(300, "b%d")
	for i, b := range all {
		all[i] = b.With(backend.Spec{Name: b.Name, Weight: MaxWeight})
	}
	build(t, all, Options{Balance: LeastConnections})
}

func TestBuildLeavesTheListAlone(t *testing.T) {
	all := []*backend.Backend{up(backend.Spec{Name: "z"}), up(backend.Spec{Name: "a"})}
	table := build(t, all, Options{})
	if all[0].Name != "z" {
		t.Fatal("Build sorted the caller's list")
	}
	table.Backends()[0] = nil
	if table.Backends()[0] == nil {
		t.Fatal("Backends gave away the table's own list")
	}
}

func TestPickGivesEachBackendOnceAndThenNone(t *testing.T) {
	for _, n := range []int{1, 2, 7, inlineMembers, inlineMembers + 1, 400} {
		table := build(t, light(n), Options{})
		for _, key := range []string{"a", "dev-000001", strings.Repeat("x", 65535)} {
			got := order(table, []byte(key))
			slices.Sort(got)
			if len(slices.Compact(got)) != n {
				t.Errorf("%d backends, key of %d bytes: %d distinct", n, len(key), len(slices.Compact(got)))
			}
		}
	}
}

// light gives n backends of weight 1, for pools whose ring is to be quick.
func light(n int) []*backend.Backend {
	all := pool(n, "b%d")
	for i, b := range all {
		all[i] = b.With(backend.Spec{Name: b.Name, Weight: 1})
	}
	return all
}

func TestPickLooksAtNeitherHealthNorLoad(t *testing.T) {
	all := pool(5, "b%d")
	table := build(t, all, Options{LoadFactor: 1.25})
	key := []byte("dev-000001")
	before := order(table, key)
	home(t, table, key).SetHealth(false, "refused")
	all[1].SetAdmin(backend.Drain)
	hold(t, all[2], 100)
	if after := order(table, key); !slices.Equal(before, after) {
		t.Fatalf("order was %v, is %v", before, after)
	}
}

func TestPickGivesNone(t *testing.T) {
	ring := build(t, pool(3, "b%d"), Options{})
	spread := build(t, pool(3, "b%d"), Options{Balance: LeastConnections})
	for _, c := range []struct {
		name    string
		table   *Table
		key     string
		attempt int
	}{
		{"for an empty key", ring, "", 0},
		{"past the last backend", ring, "a", 3},
		{"before the first", ring, "a", -1},
		{"without a ring", spread, "a", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if b, ok := c.table.Pick([]byte(c.key), c.attempt); ok {
				t.Fatalf("gave %s", b.Name)
			}
		})
	}
}

func TestDecidingAllocatesNothing(t *testing.T) {
	key := []byte("dev-000001")
	for _, c := range []struct {
		name string
		o    Options
		key  []byte
	}{
		{"ring", Options{}, key},
		{"ring with a bound", Options{LoadFactor: 1.25}, key},
		{"empty key", Options{}, nil},
		{"least connections", Options{Balance: LeastConnections}, key},
		{"round robin", Options{Balance: RoundRobin}, key},
		{"random", Options{Balance: Random}, key},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := light(inlineMembers)
			all[0].SetHealth(false, "refused")
			table := build(t, all, c.o)
			if n := testing.AllocsPerRun(10, func() {
				w := table.Walk(c.key)
				for {
					if _, ok := w.Next(); !ok {
						break
					}
				}
				table.Pick(c.key, 3)
			}); n != 0 {
				t.Fatalf("%v allocations", n)
			}
		})
	}
}

// The ring is what replicas share; the hash of a point must not drift with the
// length of a name or the number of a point.
func TestPointsOfDifferentNamesDoNotCoincide(t *testing.T) {
	all := pool(20, "b%d")
	table := build(t, all, Options{})
	if want := 20 * backend.DefaultWeight * pointsPerWeight; len(table.ring) != want {
		t.Fatalf("%d points, want %d", len(table.ring), want)
	}
	for i := 1; i < len(table.ring); i++ {
		if table.ring[i]>>ownerBits == table.ring[i-1]>>ownerBits {
			t.Fatalf("points %d and %d stand on one place", i-1, i)
		}
	}
}

func TestTwoPointsOnOnePlaceFallInTheOrderOfNames(t *testing.T) {
	const place = 0x1234 << ownerBits // owner 0
	r := ring{place, place | 1, 0xffff<<ownerBits | 1}
	seen := newSet(2)
	owner, _ := r.nextDistinct(r.find(place|0xff), &seen)
	if owner != 0 {
		t.Fatalf("owner %d, want the first by name", owner)
	}
	if got := fmt.Sprint(r.shares(2)[0] > 0, r.shares(2)[1] > 0); got != "true true" {
		t.Fatalf("shares %v", r.shares(2))
	}
}

func TestBehindTheLastPointComesTheFirst(t *testing.T) {
	r := ring{5<<ownerBits | 1, 9 << ownerBits}
	for _, c := range []struct {
		place uint64
		want  int
	}{{0, 0}, {5, 0}, {6, 1}, {9, 1}, {10, 0}, {1<<48 - 1, 0}} {
		if got := r.find(c.place << ownerBits); got != c.want {
			t.Errorf("place %d: point %d, want %d", c.place, got, c.want)
		}
	}
}
