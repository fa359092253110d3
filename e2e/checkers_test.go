package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mqttlb/mqttlb/e2e/rig"
)

// C018: cloud balancers and kubelets connect and leave, all day.
func TestCheckersThatConnectAndLeaveAreNoNews(t *testing.T) {
	certs := newPKI(t)
	own := certs.server(t, "lb", rig.ECDSA)
	broker := brokers(t, 1)[0]
	addr := map[string]string{"plain": freeAddr(t), "tls": freeAddr(t), "passthrough": freeAddr(t)}
	l := readyLB(t, fmt.Sprintf(`
listeners:
  - {name: plain, address: %q, pool: brokers}
  - {name: tls, address: %q, pool: brokers, tls: {mode: terminate, certificates: [{cert: %q, key: %q}]}}
  - {name: passthrough, address: %q, pool: untouched, tls: {mode: passthrough}}
pools:
  - {name: brokers, backends: %s}
  - {name: untouched, backends: %s}
log: {level: debug}
`, addr["plain"], addr["tls"], own.Cert, own.Key, addr["passthrough"], flow(broker), flow(broker)))
	from, open := l.Log().Len(), openFiles(t, l.PID())

	const each = 100
	checkers := 0.0
	for _, address := range addr {
		to := way{addr: address}
		for range each {
			must(to.dial(t))(t).socket.Close() // FIN
			must(to.dial(t))(t).reset()
		}
		for range 3 { // those that stay until they have been accepted
			d := must(to.dial(t))(t)
			l.awaitMetric(t, checkers+2*each+1, "mqttlb_connections_total")
			d.socket.Close()
			checkers++
		}
		checkers += 2 * each
		l.awaitMetric(t, checkers, "mqttlb_connections_ended_total", "reason=no_bytes")
	}
	l.awaitMetric(t, 0, "mqttlb_connections")
	for _, line := range l.Log().Since(from) {
		if !strings.Contains(line, "level=DEBUG") {
			t.Errorf("above debug: %s", line)
		}
	}
	if n := countLines(l.Log().Since(from), "why=no_bytes"); n != int(checkers) {
		t.Errorf("%d debug lines for %v checkers", n, checkers)
	}
	for _, metric := range []string{"mqttlb_backend_connect_seconds", "mqttlb_connect_refused_total", "mqttlb_tls_handshake_failures_total"} {
		if n := l.metric(t, metric); n != 0 {
			t.Errorf("%s is %v after nothing but checkers", metric, n)
		}
	}
	await(t, "the descriptors to be back", func() bool { return openFiles(t, l.PID()) <= open+2 }) // the scrape's own

	// Ends of sessions, polite or not, are no errors either.
	from = l.Log().Len()
	for _, id := range ids(100) {
		way{addr: addr["plain"]}.join(t, id).leave()
		way{addr: addr["tls"], tls: certs.trust()}.join(t, id).socket.Close()
	}
	l.awaitMetric(t, 200, "mqttlb_connections_ended_total", "stage=relay")
	for _, line := range l.Log().Since(from) {
		if !strings.Contains(line, "level=DEBUG") && !strings.Contains(line, `level=INFO msg="connection ended"`) {
			t.Errorf("above info: %s", line)
		}
	}
	if n := countLines(l.Log().Since(from), `msg="connection ended"`); n != 200 {
		t.Errorf("%d lines for 200 connections, want one each", n)
	}
}

// openFiles counts the descriptors of a process.
func openFiles(t *testing.T, pid int) int {
	t.Helper()
	fds, err := os.ReadDir(filepath.Join("/proc", fmt.Sprint(pid), "fd"))
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}
