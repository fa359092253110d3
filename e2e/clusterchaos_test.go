package e2e

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/e2e/rig"
)

// make chaos sets these. A seed gives the same faults in the same order; when they
// come hangs on the machine, too.
var (
	chaosSeed     = flag.Uint64("seed", 1, "of the chaos; 0: another one each time")
	chaosDuration = flag.Duration("duration", 45*time.Second, "of the chaos; 0 is none")
)

// chaos does things to a cluster that it has to bear.
type chaos struct {
	t    *testing.T
	c    *rig.Cluster
	rand *rand.Rand
}

// faults are what may happen, and how often beside the others. Each gives what it
// did, and leaves all nodes running.
var faults = []struct {
	name   string
	weight int
	strike func(*chaos) string
}{
	{"kill", 4, func(x *chaos) string {
		n, away := x.node(), x.upTo(3*time.Second)
		crash(x.t, n)
		<-time.After(away)
		restart(x.t, n)
		return fmt.Sprintf("%s for %v", n.Name, away)
	}},
	{"stop", 3, func(x *chaos) string {
		n := x.node()
		return fmt.Sprintf("%s for %v", n.Name, x.freeze(15*time.Second, n))
	}},
	// Two that stand still leave the third without a majority, and it knows.
	{"cut off", 2, func(x *chaos) string {
		n := x.node()
		var others []*rig.Broker
		for _, o := range x.c.Nodes {
			if o != n {
				others = append(others, o)
			}
		}
		return fmt.Sprintf("%s for %v", n.Name, x.freeze(12*time.Second, others...))
	}},
	{"restart", 2, func(x *chaos) string {
		n := x.node()
		if err := n.Stop(); err != nil {
			x.t.Error(err)
		}
		judgeLog(x.t, n)
		restart(x.t, n)
		return n.Name
	}},
	{"kill all", 1, func(x *chaos) string {
		x.c.Kill()
		for _, n := range x.c.Nodes {
			judgeLog(x.t, n)
		}
		if err := x.c.Start(x.t.Context()); err != nil {
			x.t.Fatal(err)
		}
		return "at once"
	}},
}

func (x *chaos) node() *rig.Broker { return x.c.Nodes[x.rand.IntN(len(x.c.Nodes))] }

func (x *chaos) upTo(most time.Duration) time.Duration {
	return time.Duration(x.rand.Int64N(int64(most))).Round(10 * time.Millisecond)
}

// freeze has nodes stand still.
func (x *chaos) freeze(most time.Duration, nodes ...*rig.Broker) time.Duration {
	still := x.upTo(most)
	x.signal(syscall.SIGSTOP, nodes)
	<-time.After(still)
	x.signal(syscall.SIGCONT, nodes)
	return still
}

func (x *chaos) signal(s syscall.Signal, nodes []*rig.Broker) {
	for _, n := range nodes {
		if err := n.Signal(s); err != nil {
			x.t.Fatal(err)
		}
	}
}

func (x *chaos) pick() int {
	sum := 0
	for _, f := range faults {
		sum += f.weight
	}
	at := x.rand.IntN(sum)
	for i, f := range faults {
		if at -= f.weight; at < 0 {
			return i
		}
	}
	panic("weights do not add up")
}

// The cluster bears whatever happens to its nodes, for as long as -duration says.
func TestAClusterBearsChaos(t *testing.T) {
	if *chaosDuration == 0 {
		t.Skip("-duration 0")
	}
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64N(1_000_000)
	}
	t.Logf("seed %d, %v: make chaos SEED=%[1]d DURATION=%[2]v", seed, *chaosDuration)
	c := startCluster(t, rig.ClusterOptions{Binary: must(rig.BuildBroker())(t), Extra: "durability: 1s\nlog: {level: warn}\n"})
	l, addr := before(t, c, "mqtt")
	l.run(t)
	awaitAll(t, l, c)
	s := startTraffic(t, trafficOptions{name: "chaos", addr: addr, writers: 4, readers: 20, rate: 500, silence: 4 * time.Second})
	x := &chaos{t: t, c: c, rand: rand.New(rand.NewPCG(seed, 0))}
	struck, worst := map[string]int{}, time.Duration(0)
	for begun := time.Now(); time.Since(begun) < *chaosDuration && !t.Failed(); {
		s.acknowledged(100 + x.rand.IntN(1000))
		s.stall()
		at, f := since(begun), faults[x.pick()]
		what := f.strike(x)
		s.acknowledged(100)
		stall := s.stall()
		struck[f.name]++
		worst = max(worst, stall)
		t.Logf("%v: %s: %s; no acknowledgement for %v", at, f.name, what, stall)
	}
	healthy(t, c)
	s.judge()
	var all []string
	for _, name := range slices.Sorted(maps.Keys(struck)) {
		all = append(all, fmt.Sprintf("%s %d", name, struck[name]))
	}
	t.Logf("seed %d: %d messages acknowledged, %d delivered; %v; longest time without an acknowledgement %v", seed, s.acked.Load(), s.delivered.Load(), all, worst)
}
