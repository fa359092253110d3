package e2e

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/e2e/rig/rigtest"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// A checker in front that only connects must be refused by the kernel while
// no client can be served: before a backend is up, and from the first moment
// of a shutdown.
func TestTheHealthPortIsOpenExactlyWhileReady(t *testing.T) {
	gate, httpHealth, plain := freeAddr(t), freeAddr(t), freeAddr(t)
	port := must(rig.FreePort())(t)
	l := startLB(t, fmt.Sprintf(`
listeners:
  - {name: plain, address: %q, pool: brokers}
pools:
  - {name: brokers, backends: [{name: broker, address: %q}], health: {interval: 100ms, fast_interval: 100ms}}
health_endpoint: {tcp: %q, http: %q}
shutdown_timeout: 4s
`, plain, rig.Local(port), gate, httpHealth))

	expect := func(when string, ready bool, reason string) {
		t.Helper()
		if refusesConnections(t, gate) == ready {
			t.Errorf("%s: a TCP checker sees the opposite of ready=%t", when, ready)
		}
		r, status := l.report(t), http.StatusOK
		if !ready {
			status = http.StatusServiceUnavailable
		}
		if r.Status != status || r.Ready != ready || !strings.Contains(strings.Join(r.Reasons, "; "), reason) {
			t.Errorf("%s: /readyz gives %d, %+v; want %d and %q", when, r.Status, r, status, reason)
		}
		if code, body := l.get(t, "/healthz"); code != http.StatusOK {
			t.Errorf("%s: /healthz gives %d, %s", when, code, body)
		}
		for path, want := range map[string]int{"/readyz": status, "/healthz": http.StatusOK, "/metrics": http.StatusNotFound} {
			resp, err := http.Get("http://" + httpHealth + path)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s: health_endpoint.http%s gives %d, want %d", when, path, resp.StatusCode, want)
			}
		}
	}

	expect("no backend is up", false, "pool brokers has no backend that is up")
	_, ack, err := way{addr: plain}.connect(t, mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "early", CleanStart: true})
	if err != nil || ack.Reason() != mqtt.ServerUnavailable {
		t.Errorf("a client meanwhile: %v, %v; want %v", ack.Reason(), err, mqtt.ServerUnavailable)
	}

	broker := rigtest.Mosquitto(t, rig.MosquittoOptions{Name: "broker", Port: port})
	l.awaitLine(t, 0, "health endpoint open")
	expect("a backend is up", true, "")

	from := l.Log().Len()
	broker.Kill()
	l.awaitLine(t, from, "health endpoint shut")
	expect("the backend is down again", false, "no backend that is up")
	if err := broker.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.awaitLine(t, from, "health endpoint open")
	expect("and back", true, "")

	// The connections are let go one after the other; the last is still served
	// when the port has been shut for long.
	var devices []*device
	for _, id := range ids(3) {
		devices = append(devices, way{addr: plain}.join(t, id))
	}
	from = l.Log().Len()
	if err := l.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	l.awaitLine(t, from, "health endpoint shut")
	expect("draining", false, "shutting down")
	alive := slices.ContainsFunc(devices, func(d *device) bool { return d.ping() == nil })
	if !alive {
		t.Error("no connection was left while draining: the test says nothing")
	}
	if !refusesConnections(t, plain) {
		t.Error("a client is taken while draining")
	}
	for _, d := range devices {
		d.Close()
	}
	l.awaitEnd(t)
}

// A port that somebody holds for a moment takes nobody out for good.
func TestTheHealthPortIsTriedAgainWhenItWasTaken(t *testing.T) {
	holder, err := net.Listen("tcp", freeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	gate := holder.Addr().String()
	broker := brokers(t, 1)[0]
	l := readyLB(t, fmt.Sprintf(`
listeners:
  - {name: plain, address: %q, pool: brokers}
pools:
  - {name: brokers, backends: %s}
health_endpoint: {tcp: %q}
`, freeAddr(t), flow(broker), gate))
	l.awaitLine(t, 0, "level=ERROR", "health endpoint cannot listen, trying again", gate)
	holder.Close()
	l.awaitLine(t, 0, "health endpoint open")
	if refusesConnections(t, gate) {
		t.Error("refused")
	}
}
