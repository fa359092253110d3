package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// closedLists are the values that a label may have where the configuration
// does not give them.
var closedLists = map[string][]string{
	"stage": {"accept", "proxy_header", "handshake", "connect", "admit", "route", "dial", "connack", "relay"},
	"by":    {"client", "backend", "mqttlb"},
	"reason": {
		"closed", "reset", "timeout", "unresponsive", "idle", "half_close_timeout", "no_bytes", "untrusted_peer",
		"bad_proxy_header", "tls_failed", "not_tls", "bad_certificate", "client_cert_missing", "not_mqtt", "malformed", "protocol_error",
		"unsupported_version", "identifier_rejected", "too_large", "limit", "no_route", "address_limit", "address_rate", "no_backend", "backends_full",
		"unreachable", "no_resources", "closed_early", "connack_timeout", "bad_connack", "refused", "marked_down", "shutdown", "error",
		// of health checks
		"unresolved", "tls", "protocol", "server_unavailable", "connack_refused", "subscribe_refused", "local", "other",
	},
	"direction": {"from_clients", "from_backends"},
	"resumed":   {"true", "false"},
	"listener":  {"plain", "tls"},
	"pool":      {"brokers"},
	"backend":   {"small", "large", "gone"},
}

// One of each kind of event, and each metric of the design has its series,
// with labels of closed lists only.
func TestMetricsTellWhatHappened(t *testing.T) {
	certs := newPKI(t)
	own := certs.server(t, "lb", rig.ECDSA)
	both := brokers(t, 2)
	plain, encrypted := freeAddr(t), freeAddr(t)
	l := readyLB(t, fmt.Sprintf(`
listeners:
  - {name: plain, address: %q, pool: brokers}
  - {name: tls, address: %q, pool: brokers, tls: {mode: terminate, certificates: [{cert: %q, key: %q}]}}
pools:
  - name: brokers
    backends:
      - {name: small, address: %q, max_connections: 1, weight: 1000}
      - {name: large, address: %q, weight: 1}
      - {name: gone, address: %q, weight: 1}
`, plain, encrypted, own.Cert, own.Key, both[0].Addr(), both[1].Addr(), freeAddr(t)))

	// Nearly everybody belongs to the backend that has room for one.
	first := way{addr: plain}.join(t, "device-1")
	second := way{addr: plain}.join(t, "device-2")
	third := way{addr: encrypted, tls: certs.trust()}.join(t, "device-3")
	if _, ack, err := (way{addr: plain}).connect(t, mqtt.ConnectOptions{Version: mqtt.V311}); err != nil || ack.Code != 2 {
		t.Errorf("an empty Client Identifier without a clean session: 0x%02x, %v", ack.Code, err)
	}
	garbage := must(way{addr: plain}.dial(t))(t)
	garbage.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	garbage.end()
	stranger := certs.trust()
	stranger.RootCAs = newPKI(t).ca.Pool()
	if _, err := (way{addr: encrypted, tls: stranger}).tryJoin(t, "distrusts"); err == nil {
		t.Error("a client trusted a stranger's certificate")
	}
	if err := first.ping(); err != nil {
		t.Error(err)
	}
	third.leave()
	second.reset()
	l.awaitMetric(t, 5, "mqttlb_connections_ended_total")

	for _, want := range []struct {
		value  float64
		metric string
		labels string
	}{
		{1, "mqttlb_connections", "listener=plain"},
		{0, "mqttlb_connections", "listener=tls"},
		{4, "mqttlb_connections_total", "listener=plain"},
		{2, "mqttlb_connections_total", "listener=tls"},
		{1, "mqttlb_connections_ended_total", "stage=relay reason=closed"},
		{1, "mqttlb_connections_ended_total", "stage=relay by=client reason=reset"},
		{1, "mqttlb_connections_ended_total", "stage=connect by=mqttlb reason=identifier_rejected"},
		{1, "mqttlb_connections_ended_total", "stage=connect by=mqttlb reason=not_mqtt"},
		{1, "mqttlb_connections_ended_total", "stage=handshake by=client reason=tls_failed"},
		{1, "mqttlb_connect_refused_total", "listener=plain reason=identifier_rejected"},
		{1, "mqttlb_connect_refused_total", "listener=plain reason=not_mqtt"},
		{1, "mqttlb_tls_handshake_seconds", "listener=tls resumed=false"},
		{1, "mqttlb_tls_handshake_failures_total", "listener=tls reason=tls_failed"},
		{2, "mqttlb_connect_seconds", "listener=plain"},
		{1, "mqttlb_connect_seconds", "listener=tls"},
		{1, "mqttlb_backend_up", "pool=brokers backend=small"},
		{1, "mqttlb_backend_up", "pool=brokers backend=large"},
		{0, "mqttlb_backend_up", "pool=brokers backend=gone"},
		{1, "mqttlb_backend_connections", "pool=brokers"},
		{3, "mqttlb_backend_connect_seconds", "pool=brokers"},
		{2, "mqttlb_backend_spilled_total", "pool=brokers backend=small"},
	} {
		if got := l.metric(t, want.metric, strings.Fields(want.labels)...); got != want.value {
			t.Errorf("%s{%s} is %v, want %v", want.metric, want.labels, got, want.value)
		}
	}
	for metric, labels := range map[string]string{
		"mqttlb_bytes_total":                "listener=plain direction=from_clients",
		"mqttlb_check_failures_total":       "pool=brokers backend=gone reason=refused",
		"mqttlb_certificate_expiry_seconds": "listener=tls",
	} {
		if got := l.metric(t, metric, strings.Fields(labels)...); got <= 0 {
			t.Errorf("%s{%s} is %v, want more than nothing", metric, labels, got)
		}
	}

	for name, family := range l.scrape(t) {
		if !strings.HasPrefix(name, "mqttlb_") {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if name == "mqttlb_certificate_expiry_seconds" && label.GetName() == "subject" {
					continue // of our own certificates
				}
				if !slices.Contains(closedLists[label.GetName()], label.GetValue()) {
					t.Errorf("%s: label %s=%q is of no closed list", name, label.GetName(), label.GetValue())
				}
			}
		}
	}
}
