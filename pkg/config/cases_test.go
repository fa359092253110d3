package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// C026: a misspelt key kept its default in silence, or a program refused to
// start and said nowhere why. Here each mistake is named by file, line, full
// path and mend.
func TestC026EachMistakeIsNamedByLineAndPath(t *testing.T) {
	for _, row := range []struct{ name, content, want string }{
		{"misspelt at top level", minimal + "admn: {address: \":1\"}\n",
			`c.yaml:4: admn: unknown key; did you mean "admin"?`},
		{"misspelt and nested", lines(
			`listeners: [{name: l, address: ":1", pool: p}]`,
			`pools:`,
			`  - name: p`,
			`    backends:`,
			`      - name: b1`,
			`        adress: b1:1883`),
			`c.yaml:6: pools[0].backends[0].adress: unknown key; did you mean "address"?`},
		{"misspelt security setting", strings.Replace(minimal, "pool: p", "pool: p,\n  tls: {mode: terminate, certificates: [{cert: a, key: a}],\n    verfy: required}", 1),
			`c.yaml:4: listeners[0].tls.verfy: unknown key; did you mean "verify"?`},
		{"spelt like a field of code", with("listeners[0]", "idleTimeout: 5s"),
			`c.yaml:2: listeners[0].idleTimeout: unknown key; did you mean "idle_timeout"?`},
		{"in capitals", minimal + "Log: {level: info}\n",
			`c.yaml:4: Log: unknown key; did you mean "log"?`},
		{"a level too high", with("pools[0]", "interval: 5s"),
			`c.yaml:3: pools[0].interval: unknown key; it is "interval" below "health" here`},
		{"a level too high and glued", with("pools[0]", "dial_attempts: 3"),
			`c.yaml:3: pools[0].dial_attempts: unknown key; it is "attempts" below "dial" here`},
		{"LoadMaster's word", lines(`listeners: [{name: l, address: ":1", pool: p}]`, `pools: [{name: p, real_servers: []}]`),
			`c.yaml:2: pools[0].real_servers: unknown key; it is called "backends" here`},
		{"nothing like any key", with("listeners[0]", "zebra: 1"),
			`c.yaml:2: listeners[0].zebra: unknown key; known here are name, address, pool, routes, protocol, tls, accept_proxy, limits, idle_timeout`},

		{"30 without unit", with("listeners[0]", "idle_timeout: 30"),
			`c.yaml:2: listeners[0].idle_timeout: "30" has no unit; write "30s" for seconds; ms, s, m and h are known`},
		{`"30" without unit`, with("listeners[0]", `idle_timeout: "30"`),
			`c.yaml:2: listeners[0].idle_timeout: "30" has no unit; write "30s" for seconds; ms, s, m and h are known`},
		{"time in words", with("listeners[0]", "idle_timeout: soon"),
			`c.yaml:2: listeners[0].idle_timeout: "soon" is not a time; write a number with its unit, e.g. "30s"; ms, s, m and h are known`},
		{"time below zero", with("listeners[0]", "idle_timeout: -5s"),
			`c.yaml:2: listeners[0].idle_timeout: -5s is out of bounds; write a value from 0s to 168h`},
		{`"yes" for true`, with("listeners[0]", `accept_proxy: {from: 10.0.0.1, trust_identity: "yes"}`),
			`c.yaml:2: listeners[0].accept_proxy.trust_identity: "yes" is not true or false; write true or false, without quotes`},
		{"text for a number", with("pools[0]", `load_factor: "1.5"`),
			`c.yaml:3: pools[0].load_factor: "1.5" is text, not a number; write it without quotes`},
		{"fraction for a whole number", with("listeners[0]", "limits: {connections: 1.5}"),
			`c.yaml:2: listeners[0].limits.connections: "1.5" is not a whole number; write a number from 0 to 10000000`},
		{"number for a name", lines(`listeners: [{name: 1, address: ":1", pool: p}]`, `pools: [{name: p, backends: [{name: b1, address: "b:1"}]}]`),
			`c.yaml:1: listeners[0].name: "1" is a whole number, not text; put it in quotes`},
		{"text for a group", with("listeners[0]", "tls: terminate"),
			`c.yaml:2: listeners[0].tls: is text where a group of keys belongs; write keys of their own below it: mode, certificates, verify, client_ca, min_version, alpn`},
		{"group for a list", with("listeners[0]", "routes: {sni: a}"),
			`c.yaml:2: listeners[0].routes: is a group of keys where a list belongs; write a list, even of one item`},
		{"list for a value", with("listeners[0]", "protocol: [mqtt]"),
			`c.yaml:2: listeners[0].protocol: is a list where a single value belongs; write one of mqtt, tcp`},
		{"nothing behind the colon", minimal + "admin:\n",
			`c.yaml:4: admin: has no value; write one, or remove the key`},
		{"size in kilobytes of which kind", with("listeners[0]", "limits: {max_connect_size: 64 KB}"),
			`c.yaml:2: listeners[0].limits.max_connect_size: "64 KB" is not a size; write a number of bytes, or one with the unit B, KiB or MiB, e.g. "64 KiB"`},
		{"size out of bounds", with("listeners[0]", "limits: {max_connect_size: 1 GiB}"),
			`c.yaml:2: listeners[0].limits.max_connect_size: 1 GiB is out of bounds; write a value from 64 B to 16 MiB`},
		{"word that is not on the list", with("pools[0]", "send_proxy: v3"),
			`c.yaml:3: pools[0].send_proxy: "v3" is not a word that this key knows; did you mean "v1"? Allowed are off, v1, v2`},
		{"false for off", with("pools[0]", "send_proxy: false"),
			`c.yaml:3: pools[0].send_proxy: is false; write "off"`},
		{"date for text", with("listeners[0]", "protocol: 2026-01-01"),
			`c.yaml:2: listeners[0].protocol: "2026-01-01" is not a word that this key knows; write one of mqtt, tcp`},
		{"the same word twice", with("pools[0]", "hash_key: [source_ip, source_ip]"),
			`c.yaml:3: pools[0].hash_key[1]: "source_ip" is in the list already; keep it once`},

		{"duplicate key", minimal + "log: {level: info}\nlog: {level: debug}\n",
			`c.yaml:5: log: is written twice, first in line 4; keep one of them`},
		{"duplicate backend name", lines(
			`listeners: [{name: l, address: ":1", pool: p}]`,
			`pools:`,
			`  - name: p`,
			`    backends:`,
			`      - {name: b1, address: "10.0.0.1:1883"}`,
			`      - {name: b1, address: "10.0.0.2:1883"}`),
			`c.yaml:6: pools[0].backends[1].name: "b1" is the name of pools[0].backends[0] (line 5) already; give each backend of a pool a name of its own: it is the backend's place on the ring`},
		{"weight -1", with("backends[0]", "weight: -1"),
			`c.yaml:3: pools[0].backends[0].weight: -1 is out of bounds; write a value from 1 to 1000; to take the backend out of service, set state: drain or maint`},
		{"empty backend list", lines(`listeners: [{name: l, address: ":1", pool: p}]`, `pools: [{name: p, backends: []}]`),
			`c.yaml:2: pools[0].backends: is an empty list; list at least one`},
		{"backend list with nothing in it", lines(`listeners: [{name: l, address: ":1", pool: p}]`, `pools:`, `  - name: p`, `    backends:`),
			`c.yaml:4: pools[0].backends: has no value; write one, or remove the key`},
		{"no backend list", lines(`listeners: [{name: l, address: ":1", pool: p}]`, `pools: [{name: p}]`),
			`c.yaml:2: pools[0].backends: is missing; list at least one`},
		{"key file that is not there", with("listeners[0]", "tls: {mode: terminate, certificates: [{cert: c.yaml, key: b.key}]}"),
			`c.yaml:2: listeners[0].tls.certificates[0].key: "b.key" does not exist; make the file, or mend the path; a relative one starts at the folder of the configuration file`},
		{"empty file", "", "c.yaml: listeners: is missing; list at least one\nc.yaml: pools: is missing; list at least one"},
		{"list for a file", "- a\n", `c.yaml:1: is a list, not a configuration; begin with a key, e.g. "listeners:"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, got := load(t, Loader{SkipFiles: !strings.Contains(row.name, "file that")}, "c.yaml", row.content); got != row.want {
				t.Errorf("got\n%s\nwant\n%s", got, row.want)
			}
		})
	}
}

func lines(l ...string) string { return strings.Join(l, "\n") + "\n" }

// with puts one more key into minimal, in the line of its group.
func with(group, key string) string {
	before := map[string]string{
		"listeners[0]": "name: mqtt, ",
		"pools[0]":     "name: p, ",
		"backends[0]":  "name: b1, ",
	}[group]
	return strings.Replace(minimal, before, before+key+", ", 1)
}

func TestC026AllMistakesAreToldInOneRun(t *testing.T) {
	for _, name := range []string{"wrong.yaml", "wrong.toml", "wrong.json"} {
		t.Run(name, func(t *testing.T) {
			content, err := os.ReadFile(filepath.Join("testdata", name))
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(filepath.Join("testdata", name+".problems"))
			if err != nil {
				t.Fatal(err)
			}
			if _, got := load(t, Loader{Environ: []string{"MQTTLB_LOG_LEVL=debug"}}, name, string(content)); got+"\n" != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// Whatever is wrong around a password, no message shows it. The last rows are
// mistakes that make a parser take the password for something else.
func TestC026NothingSecretIsPrinted(t *testing.T) {
	const secret = "tops3cret"
	for _, health := range []string{
		`{type: tcp, username: u, password: tops3cret}`,
		`{password: tops3cret}`,
		`{username: u, pasword: tops3cret}`,
		`{username: u, password: [tops3cret]}`,
		`{username: u, password: {tops3cret: 1}}`,
		`{username: u, password: tops3cret, password: tops3cret2}`,
		`{username: u, password:tops3cret}`,
		`{username: u, password: *tops3cret}`,
		`{username: u, password: !tops3cret x}`,
		`{username: u, password: "tops3cret`,
		`{username: u, password: tops3cret: x}`,
		`password:tops3cret`,
		`tops3cret`,
	} {
		_, got := load(t, Loader{}, "c.yaml", with("pools[0]", "health: "+health))
		if got == "" {
			t.Errorf("%s was taken", health)
		}
		if strings.Contains(got, secret) {
			t.Errorf("%s: the message shows the password:\n%s", health, got)
		}
	}
	for name, content := range map[string]string{
		"bare.toml":      "[[pools]]\nhealth.password = tops3cret\n",
		"open.toml":      "[[pools]]\nhealth.password = \"tops3cret\n",
		"twice.toml":     "[[pools]]\nhealth.password = \"tops3cret\"\nhealth.password = \"tops3cret\"\n",
		"bare.json":      `{"pools": [{"health": {"password": tops3cret}}]}`,
		"open.json":      `{"pools": [{"health": {"password": "tops3cret}}]}`,
		"number.json":    `{"pools": [{"health": {"password": 7355608}}]}`,
		"pem.yaml":       with("listeners[0]", "tls: {mode: terminate, certificates: [{cert: c.yaml, key: \"-----BEGIN PRIVATE KEY-----\\ntops3cret\"}]}"),
		"address.yaml":   with("backends[0]", `state: "mqtt://joe:tops3cret@b1"`),
		"url.yaml":       strings.Replace(minimal, "127.0.0.1:18831", "mqtt://joe:tops3cret@10.0.0.1:1883/tops3cret", 1),
		"bareurl.yaml":   strings.Replace(minimal, "127.0.0.1:18831", "joe:tops3cret@10.0.0.1", 1),
		"wrongport.yaml": strings.Replace(minimal, "127.0.0.1:18831", "joe/tops3cret@10.0.0.1:x", 1),
	} {
		_, got := load(t, Loader{}, name, content)
		if got == "" || strings.Contains(got, secret) || strings.Contains(got, "7355608") {
			t.Errorf("%s: got %q", name, got)
		}
	}
	if _, got := load(t, Loader{Environ: []string{"MQTTLB_PASSWORD=tops3cret"}}, "c.yaml", minimal); got == "" || strings.Contains(got, secret) {
		t.Errorf("environment: got %q", got)
	}
}
