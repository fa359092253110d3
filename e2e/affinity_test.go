package e2e

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/mqttlb/mqttlb/e2e/rig"
)

// stickyConfig is a plain listener in front of the brokers, in this order.
func stickyConfig(listen string, brokers ...*rig.Mosquitto) string {
	return fmt.Sprintf(`
listeners:
  - {name: plain, address: %q, pool: brokers}
pools:
  - name: brokers
    backends: %s
`, listen, flow(brokers...))
}

// ids makes n Client Identifiers.
func ids(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("device-%04d", i)
	}
	return all
}

// forEach does something for each id, a few at a time.
func forEach(t *testing.T, ids []string, do func(id string) error) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(16)
	for _, id := range ids {
		g.Go(func() error { return do(id) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// C016: two replicas whose backend lists differ in order only.
func TestTenThousandReconnectsOfAThousandClientsThroughTwoReplicasGoHome(t *testing.T) {
	const clients, rounds = 1000, 10
	three := brokers(t, 3)
	reversed := slices.Clone(three)
	slices.Reverse(reversed)
	var replicas []*lb
	var ways []way
	for _, order := range [][]*rig.Mosquitto{three, reversed} {
		addr := freeAddr(t)
		replicas = append(replicas, readyLB(t, stickyConfig(addr, order...)))
		ways = append(ways, way{addr: addr})
	}
	seen := newCensus(three...)
	devices := ids(clients)
	for round := range rounds {
		forEach(t, devices, func(id string) error {
			d, err := ways[round%2].tryJoin(t, id)
			if err == nil {
				d.leave()
			}
			return err
		})
	}

	homes := seen.homes(t, clients*rounds)
	perBroker := map[string]int{}
	for id, at := range seen.of(t, clients*rounds) {
		perBroker[homes[id]]++
		if at[homes[id]] != rounds {
			t.Errorf("%s came %v, want %d times to one broker", id, at, rounds)
		}
	}
	for _, b := range three {
		if n := perBroker[b.Name]; n < clients/4 || n > clients/2 {
			t.Errorf("%s is home to %d of %d clients: that is no balance", b.Name, n, clients)
		}
	}
	// What operators are told is what happens, whichever replica they ask.
	for i, id := range devices[:40] {
		if order := replicas[i%2].explain(t, id); order[0] != homes[id] {
			t.Errorf("ring explain says that %s belongs to %s, it went to %s", id, order[0], homes[id])
		}
	}
}

func TestKillOneOfThree(t *testing.T) {
	const clients = 300
	three := brokers(t, 3)
	addr := freeAddr(t)
	l := readyLB(t, stickyConfig(addr, three...)+`
    health: {interval: 200ms, fast_interval: 100ms}
`)
	to := way{addr: addr}
	seen := newCensus(three...)
	devices := map[string]*device{}
	all := ids(clients)
	for _, id := range all {
		devices[id] = to.join(t, id)
	}
	homes := seen.homes(t, clients)
	victim := three[1]
	var orphans, others []string
	for _, id := range all {
		if homes[id] == victim.Name {
			orphans = append(orphans, id)
		} else {
			others = append(others, id)
		}
	}
	if len(orphans) < clients/5 {
		t.Fatalf("%s has %d of %d clients; the test needs more to say something", victim.Name, len(orphans), clients)
	}
	everyoneElseIsThere := func(ids []string) {
		t.Helper()
		forEach(t, ids, func(id string) error { return devices[id].ping() })
	}

	victim.Kill()
	forEach(t, orphans, func(id string) error {
		if err := devices[id].end(); err != nil && !isOver(err) {
			return fmt.Errorf("%s: %w in place of an end", id, err)
		}
		return devices[id].Close()
	})
	everyoneElseIsThere(others)

	// They come back at once, before any check can have noticed.
	living := slices.DeleteFunc(slices.Clone(three), func(b *rig.Mosquitto) bool { return b == victim })
	seen = newCensus(living...)
	for _, id := range orphans {
		devices[id] = to.join(t, id)
	}
	spares := seen.homes(t, len(orphans))
	forEach(t, orphans[:min(20, len(orphans))], func(id string) error {
		if order := l.explain(t, id); order[0] != victim.Name || order[1] != spares[id] {
			return fmt.Errorf("%s went to %s, its order is %v", id, spares[id], order)
		}
		return nil
	})
	if len(spares) != len(orphans) {
		t.Errorf("%d clients came to the others, want the %d that lost their broker", len(spares), len(orphans))
	}
	for _, b := range living {
		if !slices.Contains(valuesOf(spares), b.Name) {
			t.Errorf("none of %d orphans went to %s: their load is to be shared", len(orphans), b.Name)
		}
	}
	l.awaitState(t, "brokers", victim.Name, "down")
	everyoneElseIsThere(all)

	// Its return is noticed, and disturbs nobody.
	if err := victim.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.awaitState(t, "brokers", victim.Name, "up")
	everyoneElseIsThere(all)
	l.awaitMetric(t, 0, "mqttlb_backend_connections", "backend="+victim.Name)
	if n := l.metric(t, "mqttlb_connections_ended_total"); n != float64(len(orphans)) {
		t.Errorf("%v connections have ended in all, want the %d of the broker that was killed", n, len(orphans))
	}

	// Whoever connects again goes home.
	seen = newCensus(three...)
	for _, id := range all {
		devices[id].leave()
		devices[id] = to.join(t, id)
	}
	for id, home := range seen.homes(t, clients) {
		if home != homes[id] {
			t.Errorf("%s belongs to %s and went to %s", id, homes[id], home)
		}
	}
}

func valuesOf(m map[string]string) (values []string) {
	for _, v := range m {
		values = append(values, v)
	}
	return values
}
