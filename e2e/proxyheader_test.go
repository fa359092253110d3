package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/e2e/rig/rigtest"
)

// RabbitMQ's MQTT plugin takes nothing without a PROXY header, and tells whose
// address it has read from it.
func TestRabbitMQSeesTheClientsAddress(t *testing.T) {
	r := rigtest.RabbitMQ(t, rig.RabbitMQOptions{ProxyProtocol: true})

	t.Run("and bears checks that say PROXY", func(t *testing.T) {
		from := r.Log().Len()
		services := rabbitServices(r, "proxy")
		l := startLB(t, services.config(t))
		for _, s := range services {
			l.awaitState(t, s.version, "rabbit", "up")
			way{addr: s.addr, from: s.from}.join(t, "client-"+s.from)
		}
		hosts, err := r.MQTTConnections(rigtest.Context(t, 2*patience))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range services {
			if got := hosts["client-"+s.from]; got != s.from {
				t.Errorf("send_proxy %s: RabbitMQ saw the client at %q, it is at %s", s.version, got, s.from)
			}
		}

		// A dozen checks and more, and not one of them is an error.
		const checks = 12
		await(t, "checks at RabbitMQ", func() bool {
			return countLines(r.Log().Since(from), "accepting MQTT connection") >= checks+len(services)
		})
		if bad := rabbitComplaints(r.Log().Since(from)); len(bad) > 0 {
			t.Errorf("RabbitMQ complains:\n%s", strings.Join(bad, "\n"))
		}
		if n := l.metric(t, "mqttlb_check_failures_total"); n != 0 {
			t.Errorf("%v checks failed", n)
		}
	})

	// Debian's RabbitMQ, 3.10, does not bear a header without addresses: it
	// crashes on LOCAL of version 2 and closes on UNKNOWN of version 1. That is
	// what health.proxy: proxy is for. A later one may pass this, too.
	t.Run("and what it makes of LOCAL is found out", func(t *testing.T) {
		services := rabbitServices(r, "local")
		l := startLB(t, services.config(t))
		for _, s := range services {
			switch state, reason := l.report(t).backend(s.version, "rabbit"); {
			case state == "up":
				t.Logf("send_proxy %s: it bears LOCAL", s.version)
			case state == "down" && strings.Contains(reason, "the backend closed the connection"):
				t.Logf("send_proxy %s: %s", s.version, reason)
			default:
				t.Errorf("send_proxy %s: %s, %q", s.version, state, reason)
			}
		}
	})
}

// rabbitService is a listener and a pool of its own for one version of the
// header; pool and listener are called as the version.
type rabbitService struct {
	version, command string
	addr             string
	from             string // where its client dials from
	backend          string
}

type rabbitServiceList []*rabbitService

func rabbitServices(r *rig.RabbitMQ, command string) rabbitServiceList {
	return rabbitServiceList{
		{version: "v1", command: command, from: "127.0.0.9", backend: r.Addr()},
		{version: "v2", command: command, from: "127.0.0.10", backend: r.Addr()},
	}
}

func (list rabbitServiceList) config(t *testing.T) string {
	t.Helper()
	var listeners, pools strings.Builder
	for _, s := range list {
		s.addr = freeAddr(t)
		fmt.Fprintf(&listeners, "  - {name: %s, address: %q, pool: %s}\n", s.version, s.addr, s.version)
		fmt.Fprintf(&pools, "  - {name: %s, backends: [{name: rabbit, address: %q}], send_proxy: %s, health: {proxy: %s, interval: 300ms, fast_interval: 300ms}}\n",
			s.version, s.backend, s.version, s.command)
	}
	return "listeners:\n" + listeners.String() + "pools:\n" + pools.String()
}

// rabbitComplaints are the warnings and errors in RabbitMQ's log, but for two
// that it has for the best of clients: a time limit between parts of its own,
// and the report of a supervisor that ends while its children do (3.10 writes
// one for about each twentieth mosquitto_pub).
func rabbitComplaints(log []string) (bad []string) {
	process := regexp.MustCompile(`\[(error|warning)\] (<\S+>)`)
	harmless := map[string]bool{}
	for _, line := range log {
		m := process.FindStringSubmatch(line)
		if m != nil && (strings.Contains(line, "amqp_channel_sup_sup") || strings.Contains(line, "AMQP 0-9-1 client call timeout")) {
			harmless[m[2]] = true
		}
	}
	for _, line := range log {
		if m := process.FindStringSubmatch(line); m != nil && !harmless[m[2]] {
			bad = append(bad, line)
		}
	}
	return bad
}

func countLines(lines []string, text string) (n int) {
	for _, line := range lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}
