package e2e

import (
	"regexp"
	"testing"

	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/pkg/health"
)

// arrival is the line that mosquitto writes for a client that it lets in.
var arrival = regexp.MustCompile(`: New client connected from \S+ as (\S+) \(p\d`)

// census counts the arrivals at brokers from a moment on, by the brokers' own
// word.
type census struct {
	brokers []*rig.Mosquitto
	from    []int
}

func newCensus(brokers ...*rig.Mosquitto) *census {
	c := &census{brokers: brokers, from: make([]int, len(brokers))}
	for i, b := range brokers {
		c.from[i] = b.Log().Len()
	}
	return c
}

// of gives for each Client Identifier how often it came to which broker, when
// n have come in all.
func (c *census) of(t *testing.T, n int) map[string]map[string]int {
	t.Helper()
	var seen map[string]map[string]int
	await(t, "arrivals at the brokers", func() bool {
		total := 0
		seen = map[string]map[string]int{}
		for i, b := range c.brokers {
			for _, line := range b.Log().Since(c.from[i]) {
				m := arrival.FindStringSubmatch(line)
				if m == nil || isCheck(m[1]) {
					continue
				}
				if seen[m[1]] == nil {
					seen[m[1]] = map[string]int{}
				}
				seen[m[1]][b.Name]++
				total++
			}
		}
		return total >= n
	})
	return seen
}

// homes is of for clients each of which came to one broker only.
func (c *census) homes(t *testing.T, n int) map[string]string {
	t.Helper()
	homes := map[string]string{}
	for id, at := range c.of(t, n) {
		if len(at) != 1 {
			t.Errorf("%s came to several brokers: %v", id, at)
		}
		for broker := range at {
			homes[id] = broker
		}
	}
	return homes
}

// isCheck says whether a Client Identifier is that of a health check.
func isCheck(id string) bool {
	return len(id) >= len(health.ClientIDPrefix) && id[:len(health.ClientIDPrefix)] == health.ClientIDPrefix
}
