package config

import (
	"strings"
	"testing"
)

const (
	terminate = "tls: {mode: terminate, certificates: [{cert: a, key: a}]}"
	twoPools  = `
pools:
  - {name: p, backends: [{name: b1, address: "b1:1"}]}
  - {name: q, backends: [{name: b1, address: "b1:1"}]}
`
)

func TestRulesBetweenKeys(t *testing.T) {
	for _, row := range []struct{ name, content, want string }{
		{"two pools of one name", lines(
			`listeners: [{name: l, address: ":1", pool: p}]`,
			`pools:`,
			`  - {name: p, backends: [{name: b1, address: "b1:1"}]}`,
			`  - {name: p, backends: [{name: b1, address: "b1:1"}]}`),
			`c.yaml:4: pools[1].name: "p" is the name of pools[0] (line 3) already; give each pool a name of its own`},
		{"two pools with backends of one name", "listeners: [{name: l, address: \":1\", pool: p}]" + twoPools, ``},
		{"no pool of that name", `listeners: [{name: l, address: ":1", pool: zebra}]` + twoPools,
			`c.yaml:1: listeners[0].pool: there is no pool "zebra"; the pools are p, q`},
		{"no pool of a route's name", `listeners: [{name: l, address: ":1", tls: {mode: passthrough}, routes: [{sni: a.b, pool: pp}]}]` + twoPools,
			`c.yaml:1: listeners[0].routes[0].pool: there is no pool "pp"; did you mean "p"?`},
		{"neither pool nor routes", `listeners: [{name: l, address: ":1"}]` + twoPools,
			`c.yaml:1: listeners[0].pool: is missing; name the pool that takes the connections, or list routes`},

		{"certificates without mode", with("listeners[0]", "tls: {certificates: [{cert: a, key: a}]}"),
			`c.yaml:2: listeners[0].tls.certificates: has no effect with mode: off; write mode: terminate, or remove the key`},
		{"verify in passthrough", with("listeners[0]", "tls: {mode: passthrough, verify: required}"),
			`c.yaml:2: listeners[0].tls.verify: has no effect with mode: passthrough; write mode: terminate, or remove the key`},
		{"terminate without certificates", with("listeners[0]", "tls: {mode: terminate}"),
			`c.yaml:2: listeners[0].tls.certificates: is missing, but mode: terminate needs a certificate; list at least one pair of cert and key`},
		{"verify without client_ca", with("listeners[0]", strings.Replace(terminate, "terminate,", "terminate, verify: optional,", 1)),
			`c.yaml:2: listeners[0].tls.client_ca: is missing, but verify: optional needs it; name the PEM file with the authorities of the client certificates`},
		{"client_ca without verify", with("listeners[0]", strings.Replace(terminate, "terminate,", "terminate, client_ca: a,", 1)),
			`c.yaml:2: listeners[0].tls.client_ca: has no effect without verify: no client certificate is asked for; write verify: required or verify: optional, or remove client_ca`},
		{"a wrong mode is told once", with("listeners[0]", "tls: {mode: terminat, verify: required}"),
			`c.yaml:2: listeners[0].tls.mode: "terminat" is not a word that this key knows; did you mean "terminate"? Allowed are off, terminate, passthrough`},

		{"routes without TLS", with("listeners[0]", "routes: [{sni: a.b, pool: p}]"),
			`c.yaml:2: listeners[0].routes: have no effect without TLS: there is no server name to go by; write tls: {mode: terminate} or {mode: passthrough}, or use pool`},
		{"a route that takes nothing", with("listeners[0]", "tls: {mode: passthrough}, routes: [{pool: p}]"),
			`c.yaml:2: listeners[0].routes[0].sni: is missing, and so is alpn; say what this route takes; the listener's pool takes the rest`},
		{"a route behind its like", with("listeners[0]", "tls: {mode: passthrough}, routes: [{sni: [A.b, c.d], pool: p}, {sni: [a.b], pool: p}, {sni: a.b, alpn: mqtt, pool: p}]"),
			`c.yaml:2: listeners[0].routes[1]: never gets sni a.b with alpn any: routes[0] takes it already; remove one of the two`},
		{"a route by a protocol that is never negotiated", with("listeners[0]", terminate+", routes: [{alpn: mqtt, pool: p}]"),
			`c.yaml:2: listeners[0].routes[0].alpn: is never negotiated: tls.alpn of the listener does not have it; add it to tls.alpn`},
		{"a route by a protocol that passes through", with("listeners[0]", "tls: {mode: passthrough}, routes: [{alpn: mqtt, pool: p}]"), ``},

		{"client_id in passthrough", `listeners: [{name: l, address: ":1", pool: p, tls: {mode: passthrough}}]` + strings.Replace(twoPools, "name: p,", "name: p, hash_key: client_id,", 1),
			`c.yaml:3: pools[0].hash_key: listener "l" can't know client_id: it passes TLS through; add a key to fall back on, e.g. hash_key: [client_id, source_ip]`},
		{"client_id by tcp", `listeners: [{name: l, address: ":1", pool: p, protocol: tcp}]` + strings.Replace(twoPools, "name: p,", "name: p, hash_key: client_id,", 1),
			`c.yaml:3: pools[0].hash_key: listener "l" can't know client_id: it reads nothing of the connection; add a key to fall back on, e.g. hash_key: [client_id, source_ip]`},
		{"client_id by tcp in TLS", `listeners: [{name: l, address: ":1", pool: p, protocol: tcp, ` + terminate + `}]` + strings.Replace(twoPools, "name: p,", "name: p, hash_key: client_id,", 1),
			`c.yaml:3: pools[0].hash_key: listener "l" can't know client_id: it does not read MQTT; add a key to fall back on, e.g. hash_key: [client_id, source_ip]`},
		{"sni without TLS", with("pools[0]", "hash_key: sni"),
			`c.yaml:3: pools[0].hash_key: listener "mqtt" can't know sni: it has no TLS; add a key to fall back on, e.g. hash_key: [sni, source_ip]`},
		{"several keys and none to be known", `listeners: [{name: l, address: ":1", pool: p, protocol: tcp}]` + strings.Replace(twoPools, "name: p,", "name: p, hash_key: [client_id, sni],", 1),
			`c.yaml:3: pools[0].hash_key: listener "l" can know none of [client_id sni]: it reads nothing of the connection; add a key to fall back on, e.g. hash_key: [client_id, source_ip]`},
		{"a key to fall back on", `listeners: [{name: l, address: ":1", pool: p, protocol: tcp}]` + strings.Replace(twoPools, "name: p,", "name: p, hash_key: [client_id, source_ip],", 1), ``},
		{"hash_key without ring", with("pools[0]", "balance: random, hash_key: source_ip"),
			`c.yaml:3: pools[0].hash_key: has no effect with balance: random; remove the key`},
		{"load_factor without ring", with("pools[0]", "balance: round_robin, load_factor: 1.5"),
			`c.yaml:3: pools[0].load_factor: has no effect with balance: round_robin; remove the key`},
		{"load_factor that leaves no room", with("pools[0]", "load_factor: 1"),
			`c.yaml:3: pools[0].load_factor: 1 leaves no room above the mean; write 0 for off, or at least 1.05`},
		{"load_factor that is no number", with("pools[0]", "load_factor: .nan"),
			`c.yaml:3: pools[0].load_factor: ".nan" is not a number; write e.g. 1.25`},
		{"load_factor off", with("pools[0]", "load_factor: 0"), ``},

		{"proxy_tlvs without v2", with("pools[0]", "send_proxy: v1, proxy_tlvs: [ssl]"),
			`c.yaml:3: pools[0].proxy_tlvs: has no effect with send_proxy: v1; only v2 carries them; remove the key`},
		{"health.proxy without send_proxy", with("pools[0]", "health: {proxy: proxy}"),
			`c.yaml:3: pools[0].health.proxy: has no effect with send_proxy: off; remove the key`},
		{"TLS in TLS", `listeners: [{name: l, address: ":1", pool: p, tls: {mode: passthrough}}]` + strings.Replace(twoPools, "name: p,", "name: p, tls: {},", 1),
			`c.yaml:3: pools[0].tls: would put TLS around the clients' own TLS, which listener "l" passes through; give that listener a pool without tls`},
		{"certificate without key", with("pools[0]", "tls: {cert: a}"),
			`c.yaml:3: pools[0].tls.key: is missing, but cert is there; name the key of the certificate`},
		{"key without certificate", with("pools[0]", "tls: {key: a}"),
			`c.yaml:3: pools[0].tls.cert: is missing, but key is there; name the certificate of the key`},

		{"mqtt's keys for a tcp check", with("pools[0]", "health: {type: tcp, topic: a, username: u}"),
			"c.yaml:3: pools[0].health.topic: has no effect with type: tcp; remove the key\nc.yaml:3: pools[0].health.username: has no effect with type: tcp; remove the key"},
		{"keys for no check", with("pools[0]", "health: {type: none, interval: 5s}"),
			`c.yaml:3: pools[0].health.interval: has no effect with type: none; remove the key`},
		{"a port for no check", strings.Replace(with("pools[0]", "health: {type: none}"), `{name: b1,`, `{name: b1, health_port: 9192,`, 1),
			`c.yaml:3: pools[0].backends[0].health_port: has no effect with health of type: none; remove the key`},
		{"password without user name", with("pools[0]", "health: {password: x}"),
			`c.yaml:3: pools[0].health.username: is missing, but password is there; MQTT 3.1.1 has no password without a user name; write one`},
		{"fast_interval above the interval", with("pools[0]", "health: {interval: 1s, fast_interval: 2s}"),
			`c.yaml:3: pools[0].health.fast_interval: 2s is longer than the interval of 1s; write at most the interval`},
		{"plain check of a TLS port", `listeners: [{name: l, address: ":1", pool: p, tls: {mode: passthrough}}]` + strings.Replace(twoPools, "name: p,", "name: p, health: {type: mqtt},", 1),
			`c.yaml:3: pools[0].health.type: the check would speak MQTT in the clear to a port that takes TLS: listener "l" passes TLS through; write type: tcp, or name a plain MQTT port of the backends in health.port`},
		{"plain check of a plain port", `listeners: [{name: l, address: ":1", pool: p, tls: {mode: passthrough}}]` + strings.Replace(twoPools, "name: p,", "name: p, health: {type: mqtt, port: 1883},", 1), ``},

		{"two listeners on one address", `listeners: [{name: a, address: "127.0.0.1:1", pool: p}, {name: b, address: "127.0.0.1:1", pool: p}]` + twoPools,
			`c.yaml:1: listeners[1].address: "127.0.0.1:1" is taken by listeners[0].address (127.0.0.1:1) already; choose another port`},
		{"admin on a listener's port", minimal + `admin: {address: ":1883"}`,
			`c.yaml:4: admin.address: ":1883" is taken by listeners[0].address (127.0.0.1:1883) already; choose another port`},
		{"a listener on admin's default", strings.Replace(minimal, "127.0.0.1:1883", ":9091", 1),
			`c.yaml: admin.address: "127.0.0.1:9091" is taken by listeners[0].address (:9091) already; choose another port`},
		{"health endpoints on one address", minimal + `health_endpoint: {tcp: ":9092", http: ":9092"}`,
			`c.yaml:4: health_endpoint.http: ":9092" is taken by health_endpoint.tcp (:9092) already; choose another port`},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, got := load(t, Loader{SkipFiles: true}, "c.yaml", row.content); got != row.want {
				t.Errorf("got\n%s\nwant\n%s", got, row.want)
			}
		})
	}
}

func TestOverlap(t *testing.T) {
	for _, row := range []struct {
		a, b string
		want bool
	}{
		{"127.0.0.1:1", "127.0.0.1:2", false},
		{"127.0.0.1:1", "127.0.0.2:1", false},
		{":1", "127.0.0.1:1", true},
		{":1", "[::1]:1", true},
		{"[::]:1", "127.0.0.1:1", true},
		{"0.0.0.0:1", "127.0.0.1:1", true},
		{"0.0.0.0:1", "[::1]:1", false},
		{"[::1]:1", "[0:0::1]:1", true},
		{"localhost:1", "LOCALHOST:1", true},
		{"a.example.com:1", "b.example.com:1", false},
		{":0", ":0", false},
		{"", "", false},
	} {
		if overlap(row.a, row.b) != row.want || overlap(row.b, row.a) != row.want {
			t.Errorf("%q and %q: want %v", row.a, row.b, row.want)
		}
	}
}
