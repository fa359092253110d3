package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/e2e/rig/rigtest"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

const (
	rsaSuite   = "ECDHE-RSA-AES128-GCM-SHA256"
	ecdsaSuite = "ECDHE-ECDSA-AES128-GCM-SHA256"
)

// handshake has openssl connect, as a device would that knows one suite, and
// gives what it says; err when there is no connection.
func handshake(t *testing.T, addr, ca, suite, serverName string) (string, error) {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		if err := rig.Install(context.Background(), "openssl"); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"s_client", "-connect", addr, "-CAfile", ca, "-verify_return_error", "-tls1_2", "-cipher", suite}
	if serverName == "" {
		args = append(args, "-noservername")
	} else {
		args = append(args, "-servername", serverName)
	}
	out, err := exec.CommandContext(within(t), "openssl", args...).CombinedOutput() // its stdin is empty: it leaves at once
	return string(out), err
}

// C009: devices that can do RSA only, and others that can do ECDSA only, at
// one port with certificates of both kinds for each of two names.
func TestEachDeviceGetsACertificateOfTheKindThatItCanUse(t *testing.T) {
	certs := newPKI(t)
	var list []string
	for _, host := range []string{"a.test", "b.test"} {
		for _, key := range []rig.KeyType{rig.ECDSA, rig.RSA} {
			name := host + "-" + string(key)
			p := certs.issue(t, rig.Request{Name: name, Hosts: []string{host}, Key: key})
			list = append(list, fmt.Sprintf("{cert: %q, key: %q}", p.Cert, p.Key))
		}
	}
	addr := freeAddr(t)
	broker := brokers(t, 1)[0]
	readyLB(t, fmt.Sprintf(`
listeners:
  - {name: tls, address: %q, pool: brokers, tls: {mode: terminate, certificates: [%s]}}
pools:
  - {name: brokers, backends: %s}
`, addr, strings.Join(list, ", "), flow(broker)))

	for suite, kind := range map[string]string{rsaSuite: "rsa", ecdsaSuite: "ecdsa"} {
		for name, subject := range map[string]string{
			"a.test":  "a.test-" + kind,
			"b.test":  "b.test-" + kind,
			"":        "a.test-" + kind, // the first of the list whose key fits
			"unknown": "a.test-" + kind,
		} {
			out, err := handshake(t, addr, certs.CA, suite, name)
			if err != nil || !strings.Contains(out, "CN = "+subject) && !strings.Contains(out, "CN="+subject) || !strings.Contains(out, suite) {
				t.Errorf("%s and server name %q: %v, want the certificate %s:\n%s", suite, name, err, subject, out)
			}
		}
	}
}

func TestTheLogNamesTheCauseWhenNoCertificateFits(t *testing.T) {
	certs := newPKI(t)
	own := certs.server(t, "lb", rig.ECDSA)
	addr := freeAddr(t)
	broker := brokers(t, 1)[0]
	l := readyLB(t, fmt.Sprintf(`
listeners:
  - {name: tls, address: %q, pool: brokers, tls: {mode: terminate, certificates: [{cert: %q, key: %q}]}}
pools:
  - {name: brokers, backends: %s}
`, addr, own.Cert, own.Key, flow(broker)))
	if out, err := handshake(t, addr, certs.CA, rsaSuite, ""); err == nil {
		t.Errorf("a device that can do RSA only connected:\n%s", out)
	}
	line := l.awaitLine(t, 0, `msg="connection refused"`, "stage=handshake")
	for _, part := range []string{"it takes keys of type RSA", "the certificates here have ECDSA", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"} {
		if !strings.Contains(line, part) {
			t.Errorf("the log does not say %q: %s", part, line)
		}
	}
	if out, err := handshake(t, addr, certs.CA, ecdsaSuite, ""); err != nil {
		t.Errorf("a device that can do ECDSA: %v\n%s", err, out)
	}
}

func TestTLSVersionsAndProtocolsAreWhatTheListenerSays(t *testing.T) {
	certs := newPKI(t)
	own := certs.server(t, "lb", rig.ECDSA)
	addr := freeAddr(t)
	broker := brokers(t, 1)[0]
	readyLB(t, fmt.Sprintf(`
listeners:
  - {name: tls, address: %q, pool: brokers, tls: {mode: terminate, certificates: [{cert: %q, key: %q}], min_version: "1.3", alpn: [mqtt, x-amzn-mqtt-ca]}}
pools:
  - {name: brokers, backends: %s}
`, addr, own.Cert, own.Key, flow(broker)))
	for _, c := range []struct {
		name   string
		newest uint16
		alpn   []string
		got    string // the protocol agreed on
		in     bool
	}{
		{"TLS 1.3", tls.VersionTLS13, nil, "", true},
		{"TLS 1.2", tls.VersionTLS12, nil, "", false},
		{"our second protocol", tls.VersionTLS13, []string{"x-amzn-mqtt-ca"}, "x-amzn-mqtt-ca", true},
		{"both, ours first", tls.VersionTLS13, []string{"x-amzn-mqtt-ca", "mqtt"}, "mqtt", true},
		{"another protocol", tls.VersionTLS13, []string{"http/1.1"}, "", false},
	} {
		cfg := certs.trust()
		cfg.MaxVersion, cfg.NextProtos = c.newest, c.alpn
		d, err := way{addr: addr, tls: cfg}.tryJoin(t, "device")
		if (err == nil) != c.in {
			t.Errorf("%s: %v, want in: %t", c.name, err, c.in)
			continue
		}
		if c.in {
			if got := d.Conn.(*tls.Conn).ConnectionState().NegotiatedProtocol; got != c.got {
				t.Errorf("%s: the protocol is %q, want %q", c.name, got, c.got)
			}
		}
	}
}

// pool.tls: the way to the broker is encrypted again, both sides show
// certificates, and a broker that can't prove its name is not used.
func TestReencryptionProvesBothSides(t *testing.T) {
	certs, strangers := newPKI(t), newPKI(t)
	own, lbCert := certs.server(t, "broker", rig.ECDSA), certs.device(t, "the-balancer")
	broker := rigtest.Mosquitto(t, rig.MosquittoOptions{
		Name:  "broker",
		TLS:   &rig.MosquittoTLS{Cert: own.Cert, Key: own.Key, ClientCA: certs.CA},
		Extra: []string{"use_identity_as_username true"},
	})
	addr := map[string]string{}
	var listeners strings.Builder
	for _, name := range []string{"good", "wrong-ca", "wrong-name", "no-certificate"} {
		addr[name] = freeAddr(t)
		fmt.Fprintf(&listeners, "  - {name: %s, address: %q, pool: %s}\n", name, addr[name], name)
	}
	backends := flow(broker)
	l := readyLB(t, fmt.Sprintf(`
listeners:
%spools:
  - {name: good, backends: %s, tls: {ca: %q, cert: %q, key: %q}}
  - {name: wrong-ca, backends: %s, tls: {ca: %q, cert: %q, key: %q}}
  - {name: wrong-name, backends: %s, tls: {ca: %q, cert: %q, key: %q, server_name: other.test}}
  - {name: no-certificate, backends: %s, tls: {ca: %q}}
`, listeners.String(),
		backends, certs.CA, lbCert.Cert, lbCert.Key,
		backends, strangers.CA, lbCert.Cert, lbCert.Key,
		backends, certs.CA, lbCert.Cert, lbCert.Key,
		backends, certs.CA))

	if err := (way{addr: addr["good"]}).join(t, "device").ping(); err != nil {
		t.Error(err)
	}
	// The broker takes the user name from our certificate.
	awaitLine(t, broker.Process, 0, "New client connected", " as device ", "u'the-balancer'")

	for name, reasons := range map[string][]string{
		"wrong-ca":   {"tls"},
		"wrong-name": {"tls"},
		// In TLS 1.3 the broker refuses after the handshake has ended for the
		// client; its alert and its close race with CONNECT.
		"no-certificate": {"tls", "reset", "closed"},
	} {
		reason := l.awaitState(t, name, "broker", "down")
		if word, _, _ := strings.Cut(reason, ": "); !slices.Contains(reasons, word) {
			t.Errorf("%s: down for %q, want one of %q", name, reason, reasons)
		}
		_, ack, err := way{addr: addr[name]}.connect(t, mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "device-of-" + name, CleanStart: true})
		if err != nil || ack.Reason() != mqtt.ServerUnavailable {
			t.Errorf("%s: %v, %v; want %v", name, ack.Reason(), err, mqtt.ServerUnavailable)
		}
	}
	if n := countLines(broker.Log().Since(0), " as device-of-"); n != 0 {
		t.Errorf("%d clients came through to a broker that was not proven", n)
	}
}
