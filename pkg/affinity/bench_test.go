package affinity

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/backend"
)

func BenchmarkWalk(b *testing.B) {
	keys := forms[1].ids(1 << 16)
	for _, size := range []int{3, 50} {
		for name, o := range map[string]Options{
			"ring":              {},
			"ring_bounded":      {LoadFactor: 1.25},
			"least_connections": {Balance: LeastConnections},
			"round_robin":       {Balance: RoundRobin},
			"random":            {Balance: Random},
		} {
			b.Run(fmt.Sprintf("%s/backends=%d", name, size), func(b *testing.B) {
				table := build(b, pool(size, "b%d"), o)
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					w := table.Walk(keys[i%len(keys)])
					w.Next()
					i++
				}
			})
		}
	}
}

// BenchmarkRingByPoints is the measurement behind pointsPerWeight: what more
// points cost (time to build, time to find) and bring (worst heaviest/mean of
// all schemes and forms, 100,000 ids each, as a metric).
func BenchmarkRingByPoints(b *testing.B) {
	for _, size := range []int{3, 10, 50} {
		for _, perWeight := range []int{1, 4, 16, 32, 64, 128} {
			b.Run(fmt.Sprintf("backends=%d/points=%d", size, perWeight*100), func(b *testing.B) {
				worst := 0.0
				for _, scheme := range schemes {
					table := build(b, pool(size, scheme), Options{})
					table.ring = newRing(table.members, perWeight)
					for _, form := range forms {
						heaviest, _ := spread(b, table, form.ids(100_000))
						worst = max(worst, heaviest)
					}
				}
				members := pool(size, "b%d")
				for b.Loop() {
					newRing(members, perWeight)
				}
				b.ReportMetric(worst, "heaviest/mean")
			})
		}
	}
}

// BenchmarkStickinessByLoadFactor is the measurement behind "off by default":
// of 20,000 clients that reconnect at random, the percentage that does not come
// to its home, while all is well and after one backend has died and returned.
func BenchmarkStickinessByLoadFactor(b *testing.B) {
	for _, size := range []int{3, 10} {
		for _, factor := range []float64{0, 2, 1.5, 1.25, 1.1, 1.05} {
			b.Run(fmt.Sprintf("backends=%d/factor=%g", size, factor), func(b *testing.B) {
				var filling, steady, returned float64
				for b.Loop() {
					filling, steady, returned = stickiness(b, size, factor)
				}
				b.ReportMetric(filling, "%filling")
				b.ReportMetric(steady, "%steady")
				b.ReportMetric(returned, "%returned")
			})
		}
	}
}

func stickiness(t testing.TB, size int, factor float64) (filling, steady, returned float64) {
	all := pool(size, "b%d")
	table := build(t, all, Options{LoadFactor: factor})
	keys := forms[0].ids(20_000)
	at := make([]*backend.Backend, len(keys))
	r := rand.New(rand.NewPCG(1, 1))
	away := 0
	connect := func(i int) {
		if at[i] != nil {
			at[i].Release()
		}
		at[i] = place(t, table, keys[i])
		if at[i] != home(t, table, keys[i]) {
			away++
		}
	}
	percent := func(of int) float64 {
		p := 100 * float64(away) / float64(of)
		away = 0
		return p
	}
	for i := range keys {
		connect(i)
	}
	filling = percent(len(keys))
	reconnects := len(keys) / 4
	for range reconnects {
		connect(r.IntN(len(keys)))
	}
	steady = percent(reconnects)

	all[0].SetHealth(false, "dead")
	for i := range keys {
		if at[i] == all[0] {
			connect(i)
		}
	}
	all[0].SetHealth(true, "")
	away = 0
	for range reconnects {
		connect(r.IntN(len(keys)))
	}
	return filling, steady, percent(reconnects)
}
