package e2e

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/e2e/rig/rigtest"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// startCluster starts three nodes, built with the race detector unless the
// options name another binary. When the test ends they must end too: in order,
// and without a data race.
func startCluster(t *testing.T, o rig.ClusterOptions) *rig.Cluster {
	t.Helper()
	if o.Binary == "" {
		o.Binary = must(rig.BuildBrokerRace())(t)
	}
	o.Dir = t.TempDir()
	c, err := rig.StartCluster(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, n := range c.Nodes {
			_ = n.Signal(syscall.SIGCONT) // the test has failed while it stood still
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		for _, n := range c.Nodes {
			if code := n.ExitCode(); code != 0 && !t.Failed() {
				t.Errorf("%s: exit code %d", n.Name, code)
			}
			judgeLog(t, n)
			if t.Failed() {
				t.Logf("the last lines of %s:\n%s", n.Name, n.Log().Tail(40))
			}
		}
	})
	healthy(t, c)
	return c
}

// healthy waits until all nodes are there and hold all that they should.
func healthy(t *testing.T, c *rig.Cluster) {
	t.Helper()
	if err := c.Healthy(rigtest.Context(t, 2*patience)); err != nil {
		t.Fatal(err)
	}
}

// nodeWay is the way to a node.
func nodeWay(n *rig.Broker) way { return way{addr: n.Addr()} }

// before starts mqttlb before a cluster. check is how it checks the nodes: tcp
// asks their health-check port.
func before(t *testing.T, c *rig.Cluster, check string) (l *lb, addr string) {
	t.Helper()
	addr = freeAddr(t)
	var backends []string
	for _, n := range c.Nodes {
		backends = append(backends, fmt.Sprintf("{name: %s, address: %q}", n.Options.Name, n.Addr()))
	}
	if check == "tcp" {
		check = fmt.Sprintf("tcp, port: %d", c.Nodes[0].Options.Health)
	}
	l = prepareLB(t, fmt.Sprintf(`
listeners:
  - {name: mqtt, address: %q, pool: brokers}
pools:
  - name: brokers
    backends: [%s]
    health: {type: %s, interval: 500ms, fast_interval: 200ms, timeout: 1s, fall: 2}
    on_marked_down: close
    dial: {timeout: 1s, connack_timeout: 5s}
`, addr, strings.Join(backends, ", "), check))
	l.binary = must(rig.Build())(t)
	return l, addr
}

// awaitAll waits until mqttlb sees all nodes.
func awaitAll(t *testing.T, l *lb, c *rig.Cluster) {
	t.Helper()
	for _, n := range c.Nodes {
		l.awaitState(t, "brokers", n.Options.Name, "up")
	}
}

// since is a time for people.
func since(begun time.Time) time.Duration { return time.Since(begun).Round(10 * time.Millisecond) }

// brokerCommand runs a command of the broker's binary to its end.
func brokerCommand(t *testing.T, args ...string) (out string, exitCode int) {
	t.Helper()
	cmd := exec.CommandContext(within(t), must(rig.BuildBroker())(t), args...)
	b, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// awaitStatus waits until `broker cluster status`, asked of a node, ends with the
// code and says the text.
func awaitStatus(t *testing.T, n *rig.Broker, code int, says string) {
	t.Helper()
	out, got := "", -1
	defer func() {
		if t.Failed() {
			t.Logf("broker cluster status of %s: exit code %d, want %d and %q\n%s", n.Name, got, code, says, out)
		}
	}()
	await(t, "the status of "+n.Name, func() bool {
		out, got = brokerCommand(t, "cluster", "status", "--admin", n.Admin())
		return got == code && strings.Contains(out, says)
	})
}

// insistent connects until it is let in: while leaders are elected nobody is.
func (w way) insistent(t *testing.T, o mqtt.ConnectOptions) (s *speaker, ack mqtt.Connack) {
	t.Helper()
	await(t, o.ClientID+" to be let in", func() bool {
		d, answer, err := w.connect(t, o)
		if err != nil || !answer.Accepted() {
			return false
		}
		s, ack = &speaker{device: d, v: max(o.Version, mqtt.V31)}, answer
		return true
	})
	return s, ack
}
