package e2e

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// pki is the certificates of one test, in files.
type pki struct {
	dir string
	ca  *rig.CA
	// CA is the authority's own certificate.
	CA string
}

func newPKI(t *testing.T) *pki {
	t.Helper()
	p := &pki{dir: t.TempDir(), ca: must(rig.NewCA("throwaway CA"))(t)}
	p.CA = must(p.ca.WriteCert(p.dir, "ca"))(t)
	return p
}

// pair is a certificate and its key.
type pair struct{ Cert, Key string }

// issue signs a certificate; its name is that of its files.
func (p *pki) issue(t *testing.T, r rig.Request) pair {
	t.Helper()
	c := must(p.ca.Issue(r))(t)
	cert, key, err := c.Write(p.dir, r.Name)
	if err != nil {
		t.Fatal(err)
	}
	return pair{cert, key}
}

// server is a certificate for 127.0.0.1.
func (p *pki) server(t *testing.T, name string, key rig.KeyType) pair {
	t.Helper()
	return p.issue(t, rig.Request{Name: name, Hosts: []string{"127.0.0.1"}, Key: key})
}

func (p *pki) device(t *testing.T, name string) pair {
	t.Helper()
	return p.issue(t, rig.Request{Name: name, Client: true})
}

// trust is a client's TLS settings that trust this authority.
func (p *pki) trust() *tls.Config {
	return &tls.Config{RootCAs: p.ca.Pool(), ServerName: "127.0.0.1"}
}

// tlsStar starts three brokers whose clients hear each other, each with a
// second listener that speaks TLS itself. It gives the addresses of both
// kinds, as lists of backends.
func tlsStar(t *testing.T, certs *pki) (plain, encrypted string) {
	t.Helper()
	own := certs.server(t, "brokers", rig.ECDSA)
	var brokers []rig.MosquittoOptions
	var backends []string
	for i := range 3 {
		addr := freeAddr(t)
		_, port, _ := strings.Cut(addr, ":")
		name := fmt.Sprintf("broker-%d", i+1)
		brokers = append(brokers, rig.MosquittoOptions{Dir: certs.dir, Name: name, Extra: []string{
			"listener " + port + " 127.0.0.1", "certfile " + own.Cert, "keyfile " + own.Key,
		}})
		backends = append(backends, fmt.Sprintf("{name: %s, address: %q}", name, addr))
	}
	star, err := rig.StartStar(within(t), brokers...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := star.Stop(); err != nil {
			t.Error(err)
		}
	})
	return flow(star.Brokers...), "[" + strings.Join(backends, ", ") + "]"
}

// Every client speaks to every other one, through each kind of listener, at
// each QoS.
func TestRealClientsThroughEachKindOfListener(t *testing.T) {
	certs := newPKI(t)
	plain, encrypted := tlsStar(t, certs)
	ecdsa, rsa := certs.server(t, "lb-ecdsa", rig.ECDSA), certs.server(t, "lb-rsa", rig.RSA)
	dev := certs.device(t, "device")
	addr := map[string]string{}
	for _, name := range []string{"plain", "tls", "mtls", "passthrough"} {
		addr[name] = freeAddr(t)
	}
	both := fmt.Sprintf("certificates: [{cert: %q, key: %q}, {cert: %q, key: %q}]", rsa.Cert, rsa.Key, ecdsa.Cert, ecdsa.Key)
	l := readyLB(t, fmt.Sprintf(`
listeners:
  - {name: plain, address: %q, pool: brokers}
  - {name: tls, address: %q, pool: brokers, tls: {mode: terminate, %s}}
  - {name: mtls, address: %q, pool: brokers, tls: {mode: terminate, %s, verify: required, client_ca: %q}}
  - {name: passthrough, address: %q, pool: brokers-tls, tls: {mode: passthrough}}
pools:
  - {name: brokers, backends: %s}
  - {name: brokers-tls, backends: %s}
`, addr["plain"], addr["tls"], both, addr["mtls"], both, certs.CA, addr["passthrough"], plain, encrypted))

	for _, listener := range []struct {
		name string
		to   target
	}{
		{"plain", target{addr: addr["plain"]}},
		{"tls", target{addr: addr["tls"], ca: certs.CA}},
		{"mtls", target{addr: addr["mtls"], ca: certs.CA, cert: dev.Cert, key: dev.Key}},
		{"passthrough", target{addr: addr["passthrough"], ca: certs.CA}},
	} {
		t.Run(listener.name, func(t *testing.T) {
			ctx := within(t)
			topic := "from/" + listener.name
			var clients []messenger
			for i, lib := range libraries {
				c, err := lib.join(t, listener.to, fmt.Sprintf("client-%d", i), topic)
				if err != nil {
					t.Fatalf("%s: %v", lib.name, err)
				}
				clients = append(clients, c)
			}
			for i, sender := range clients {
				for qos := range 3 {
					want := rig.Message{Topic: topic, Payload: fmt.Sprintf("%s at QoS %d", libraries[i].name, qos), QoS: qos}
					if err := sender.Publish(ctx, want.Topic, want.Payload, qos); err != nil {
						t.Fatalf("%s: %v", want.Payload, err)
					}
					for j, c := range clients {
						if got, err := c.Next(ctx); err != nil || got != want {
							t.Fatalf("%s received %+v, %v; want %+v", libraries[j].name, got, err, want)
						}
					}
				}
			}
			if n := l.metric(t, "mqttlb_connections", "listener="+listener.name); n < float64(len(libraries)) {
				t.Errorf("%v connections at the listener, want at least one for each of %d clients", n, len(libraries))
			}
		})
	}
}

// A client without a valid certificate learns that, and no backend is dialled.
func TestMutualTLSRefusesWhoIsNotCertified(t *testing.T) {
	certs := newPKI(t)
	own := certs.server(t, "lb", rig.ECDSA)
	good := certs.device(t, "device")
	stranger := newPKI(t).device(t, "stranger")
	addr := freeAddr(t)
	broker := brokers(t, 1)[0]
	l := readyLB(t, fmt.Sprintf(`
listeners:
  - name: mtls
    address: %q
    pool: brokers
    tls: {mode: terminate, certificates: [{cert: %q, key: %q}], verify: required, client_ca: %q}
pools:
  - {name: brokers, backends: %s}
`, addr, own.Cert, own.Key, certs.CA, flow(broker)))

	clients := append(libraries, library{"a raw socket", func(t *testing.T, to target, id, _ string) (messenger, error) {
		_, _, err := way{addr: to.addr, tls: to.tls(t)}.connect(t, mqtt.ConnectOptions{ClientID: id, CleanStart: true})
		return nil, err
	}})
	for _, shown := range []struct {
		name, reason string
		pair
	}{{"no certificate", "client_cert_missing", pair{}}, {"one of another authority", "bad_certificate", stranger}} {
		refused := 0.0
		for _, lib := range clients {
			t.Run(lib.name+" with "+shown.name, func(t *testing.T) {
				_, err := lib.join(t, target{addr: addr, ca: certs.CA, cert: shown.Cert, key: shown.Key}, "intruder", "#")
				if err == nil {
					t.Fatal("let in")
				}
				t.Log(err) // what each makes of the alert is its own
				refused++
				l.awaitMetric(t, refused, "mqttlb_tls_handshake_failures_total", "listener=mtls", "reason="+shown.reason)
			})
		}
	}
	l.awaitMetric(t, 0, "mqttlb_connections", "listener=mtls")
	if n := l.metric(t, "mqttlb_backend_connect_seconds"); n != 0 {
		t.Errorf("the backend was dialled %v times for clients that were refused", n)
	}

	// The same way is open to whom it is for.
	cfg := target{addr: addr, ca: certs.CA, cert: good.Cert, key: good.Key}.tls(t)
	if err := (way{addr: addr, tls: cfg}).join(t, "device").ping(); err != nil {
		t.Error(err)
	}
	if n := l.metric(t, "mqttlb_backend_connect_seconds"); n != 1 {
		t.Errorf("%v dials for one client, want 1", n)
	}
}

// A listener in mode terminate and one pool for each server name.
func TestServerNamesLeadToPools(t *testing.T) {
	certs := newPKI(t)
	own := certs.issue(t, rig.Request{Name: "lb", Hosts: []string{"a.test", "x.b.test", "other.test", "127.0.0.1"}})
	addr := freeAddr(t)
	three := brokers(t, 3)
	readyLB(t, fmt.Sprintf(`
listeners:
  - name: tls
    address: %q
    pool: rest
    routes:
      - {sni: [a.test], pool: a}
      - {sni: ["*.b.test"], pool: b}
    tls: {mode: terminate, certificates: [{cert: %q, key: %q}]}
pools:
  - {name: a, backends: %s}
  - {name: b, backends: %s}
  - {name: rest, backends: %s}
`, addr, own.Cert, own.Key, flow(three[0]), flow(three[1]), flow(three[2])))
	for name, broker := range map[string]*rig.Mosquitto{
		"a.test":     three[0],
		"A.Test":     three[0],
		"x.b.test":   three[1],
		"other.test": three[2],
		"":           three[2], // a client that sends no server name
	} {
		cfg := certs.trust()
		cfg.ServerName = name
		if name == "" {
			cfg.ServerName = "127.0.0.1" // an address is never sent
		}
		seen := newCensus(three...)
		id := "asks-for-" + name
		d := way{addr: addr, tls: cfg}.join(t, id)
		if home := seen.homes(t, 1)[id]; home != broker.Name {
			t.Errorf("%q led to %s, want %s", name, home, broker.Name)
		}
		d.leave()
	}
}

// writeFile is for what a test lays down.
func writeFile(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
