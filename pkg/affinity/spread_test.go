package affinity

import (
	"math"
	"strings"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/backend"
)

func TestLeastConnectionsFillsByWeight(t *testing.T) {
	all := []*backend.Backend{
		up(backend.Spec{Name: "a", Weight: 100}),
		up(backend.Spec{Name: "b", Weight: 200}),
		up(backend.Spec{Name: "c", Weight: 300}),
	}
	table := build(t, all, Options{Balance: LeastConnections})
	if b := place(t, table, []byte("x")); b != all[2] {
		t.Errorf("the first went to %s, not to the one that can bear most", b.Name)
	}
	for range 599 {
		place(t, table, []byte("x"))
	}
	for i, want := range []int64{100, 200, 300} {
		if got := all[i].Connections(); got != want {
			t.Errorf("%s holds %d, want %d", all[i].Name, got, want)
		}
	}
}

func TestLeastConnectionsFillsUpTheNewcomer(t *testing.T) {
	all := pool(3, "b%d")
	table := build(t, all, Options{Balance: LeastConnections})
	hold(t, all[0], 20)
	hold(t, all[1], 20)
	for range 19 {
		if b := place(t, table, []byte("x")); b != all[2] {
			t.Fatalf("went to %s", b.Name)
		}
	}
}

// Replicas that start together must not all begin with one backend.
func TestLeastConnectionsBreaksTiesByLot(t *testing.T) {
	table := build(t, pool(4, "b%d"), Options{Balance: LeastConnections})
	count := map[string]int{}
	const n = 4000
	for range n {
		w := table.Walk(nil)
		b, _ := w.Next()
		count[b.Name]++
	}
	for name, got := range count {
		if math.Abs(float64(got)-n/4) > 6*math.Sqrt(n*0.25*0.75) {
			t.Errorf("%s won %d of %d ties", name, got, n)
		}
	}
}

func TestRandomDrawsByWeight(t *testing.T) {
	all := []*backend.Backend{
		up(backend.Spec{Name: "a", Weight: 100}),
		up(backend.Spec{Name: "b", Weight: 300}),
		up(backend.Spec{Name: "c", Weight: 600}),
	}
	table := build(t, all, Options{Balance: Random})
	const n = 10_000
	for range n {
		place(t, table, []byte("one key"))
	}
	for _, b := range all {
		p := float64(b.Weight) / 1000
		if got := float64(b.Connections()); math.Abs(got-n*p) > 6*math.Sqrt(n*p*(1-p)) {
			t.Errorf("%s drew %.0f of %d, weight %d of 1000", b.Name, got, n, b.Weight)
		}
	}
}

func TestRoundRobinTakesTurns(t *testing.T) {
	for _, c := range []struct {
		name string
		all  []*backend.Backend
		want string
	}{
		{"alike", []*backend.Backend{
			up(backend.Spec{Name: "c"}), up(backend.Spec{Name: "a"}), up(backend.Spec{Name: "b"}),
		}, "abcabc"},
		{"smoothly by weight", []*backend.Backend{
			up(backend.Spec{Name: "a", Weight: 500}), up(backend.Spec{Name: "b"}), up(backend.Spec{Name: "c"}),
		}, "aabacaa" + "aabacaa"},
		// Its turns fall to all the others, not to the next in line.
		{"past one that is down", []*backend.Backend{
			up(backend.Spec{Name: "a"}), backend.New(backend.Spec{Name: "b"}), up(backend.Spec{Name: "c"}), up(backend.Spec{Name: "d"}),
		}, "acdacd"},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := build(t, c.all, Options{Balance: RoundRobin})
			var got strings.Builder
			for range c.want {
				got.WriteString(place(t, table, []byte("one key")).Name)
			}
			if got.String() != c.want {
				t.Fatalf("turns %s, want %s", got.String(), c.want)
			}
		})
	}
}

// Its turns fall to the others alike, although it is asked each time.
func TestRoundRobinIsFairPastOneThatIsFull(t *testing.T) {
	all := []*backend.Backend{
		up(backend.Spec{Name: "a"}), up(backend.Spec{Name: "b", MaxConnections: 1}), up(backend.Spec{Name: "c"}), up(backend.Spec{Name: "d"}),
	}
	table := build(t, all, Options{Balance: RoundRobin})
	for range 1 + 300 {
		place(t, table, []byte("one key"))
	}
	for i, want := range []int64{100, 1, 100, 100} {
		if got := all[i].Connections(); got < want-1 || got > want+1 {
			t.Errorf("%s holds %d, want %d give or take one", all[i].Name, got, want)
		}
	}
}
