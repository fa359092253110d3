package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mqttlb/mqttlb/e2e/rig"
)

const password = "open-sesame-4711"

// held is an address that the test listens on. Whoever tries to bind it fails,
// which has another exit code than what is wrong in a file: so a run that ends
// with exit code 2 has not tried.
func held(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", freeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// C026: what is wrong is told whole, with file, line and key, before a port is
// opened; by check and by run alike.
func TestAWrongConfigurationIsToldWholeAndBindsNothing(t *testing.T) {
	certs := newPKI(t)
	own, other := certs.server(t, "lb", rig.ECDSA), certs.server(t, "other", rig.ECDSA)
	garbage := writeFile(t, certs.dir, "garbage.pem", "-----BEGIN CERTIFICATE-----\nno base64!\n-----END CERTIFICATE-----\n")
	empty := writeFile(t, certs.dir, "empty.pem", "")
	listen := held(t)

	// Line 1 is the first of the text.
	good := `listeners:
  - name: tls
    address: "` + listen + `"
    pool: brokers
    tls: {mode: terminate, certificates: [{cert: "` + own.Cert + `", key: "` + own.Key + `"}]}
pools:
  - name: brokers
    backends:
      - {name: one, address: "127.0.0.1:1"}
      - {name: two, address: "127.0.0.1:2"}
    health: {username: check, password: ` + password + `}
`
	edit := func(pairs ...string) string {
		t.Helper()
		for i := 0; i < len(pairs); i += 2 {
			if !strings.Contains(good, pairs[i]) {
				t.Fatalf("nothing to edit: %q", pairs[i])
			}
		}
		return strings.NewReplacer(pairs...).Replace(good)
	}
	tlsLine := "certificates: [{cert: \"" + own.Cert + "\", key: \"" + own.Key + "\"}]"
	for _, c := range []struct {
		name, config string
		want         []string // after "FILE", in this order, one a line
	}{
		{"a misspelt key at the top", edit("pools:", "pool:"), []string{`:6: pool: unknown .*pools`}},
		{"a misspelt key inside", edit("health: {", "health: {intervall: 5s, "), []string{`:11: pools\[0\]\.health\.intervall: .*interval`}},
		{"a time without a unit", edit("health: {", "health: {interval: 30, "), []string{`:11: pools\[0\]\.health\.interval: .*30s`}},
		{"yes for a number", edit("name: one, ", `name: one, weight: "yes", `), []string{`:9: pools\[0\]\.backends\[0\]\.weight: `}},
		{"a key twice", edit("    pool: brokers\n", "    pool: brokers\n    pool: brokers\n"), []string{`:5: listeners\[0\]\.pool: `}},
		{"a backend's name twice", edit("name: two", "name: one"), []string{`:10: pools\[0\]\.backends\[1\]\.name: `}},
		{"a negative weight", edit("name: one, ", "name: one, weight: -1, "), []string{`:9: pools\[0\]\.backends\[0\]\.weight: `}},
		{"a file that is not there", edit(own.Key, own.Key+".gone"), []string{`:5: listeners\[0\]\.tls\.certificates\[0\]\.key: .*` + regexp.QuoteMeta(own.Key) + `\.gone`}},
		{"no backends", edit("    backends:\n", "    backends: []\n", `      - {name: one, address: "127.0.0.1:1"}`+"\n", "", `      - {name: two, address: "127.0.0.1:2"}`+"\n", ""), []string{`:8: pools\[0\]\.backends: `}},
		{"a pool that is not there", edit("pool: brokers", "pool: brokerz"), []string{`:4: listeners\[0\]\.pool: .*brokers`}},
		{"an address without a port", edit(`"127.0.0.1:1"`, "127.0.0.1"), []string{`:9: pools\[0\]\.backends\[0\]\.address: .*port`}},
		{"no YAML", "listeners: [", []string{`.*YAML`}},
		{"several at once", edit("name: two", "name: one", "health: {", "health: {riise: 2, ", "mode: terminate", "mode: stop"), []string{
			`:5: listeners\[0\]\.tls\.mode: `, `:10: pools\[0\]\.backends\[1\]\.name: `, `:11: pools\[0\]\.health\.riise: .*rise`,
		}},

		{"a key of another certificate", edit(own.Key, other.Key), []string{`:5: listeners\[0\]\.tls\.certificates\[0\]\.cert: .*` + regexp.QuoteMeta(other.Key) + `.*does not belong to`}},
		{"a certificate that is garbage", edit(own.Cert, garbage), []string{`:5: listeners\[0\]\.tls\.certificates\[0\]\.cert: .*garbage\.pem`}},
		{"a key file that is empty", edit(own.Key, empty), []string{`:5: listeners\[0\]\.tls\.certificates\[0\]\.cert: .*empty\.pem`}},
		{"a client CA that is a key", edit(tlsLine, tlsLine+", verify: required, client_ca: \""+own.Key+"\""), []string{`:5: listeners\[0\]\.tls\.client_ca: .*lb-key\.pem`}},
		{"a pool's CA that is garbage", edit("    backends:", "    tls: {ca: \""+garbage+"\"}\n    backends:"), []string{`:8: pools\[0\]\.tls\.ca: .*garbage\.pem`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := writeFile(t, t.TempDir(), "mqttlb.yaml", c.config)
			for _, command := range []string{"check", "run"} {
				stdout, stderr, code := mqttlb(t, nil, command, "-c", file)
				if code != 2 {
					t.Errorf("%s: exit code %d, want 2", command, code)
				}
				if stdout != "" {
					t.Errorf("%s: on standard output: %s", command, stdout)
				}
				if strings.Contains(stdout+stderr, password) {
					t.Errorf("%s prints the password: %s", command, stderr)
				}
				lines := strings.Split(strings.TrimSpace(stderr), "\n")
				if len(lines) != len(c.want) {
					t.Errorf("%s: %d problems, want %d:\n%s", command, len(lines), len(c.want), stderr)
					continue
				}
				for i, want := range c.want {
					if !regexp.MustCompile(`^` + regexp.QuoteMeta(file) + want).MatchString(lines[i]) {
						t.Errorf("%s: %s\nwant %s", command, lines[i], want)
					}
				}
			}
		})
	}

	t.Run("nothing is wrong", func(t *testing.T) {
		file := writeFile(t, t.TempDir(), "mqttlb.yaml", good)
		if stdout, stderr, code := mqttlb(t, nil, "check", "-c", file); code != 0 || stdout != "ok: 1 listener, 1 pool, 2 backends\n" || stderr != "" {
			t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
		}
	})
}

// A password that stands where another kind of value belongs, or twice, is
// talked about without being shown.
func TestNoMessageShowsASecret(t *testing.T) {
	for name, health := range map[string]string{
		"twice":             "{username: u, password: " + password + ", password: " + password + "}",
		"a list":            "{username: u, password: [" + password + "]}",
		"without user name": "{password: " + password + ", bogus: 1}",
		"with a tcp check":  "{type: tcp, username: u, password: " + password + "}",
		"no YAML":           "{username: u, password: \"" + password + "}",
	} {
		file := writeFile(t, t.TempDir(), "mqttlb.yaml", fmt.Sprintf(`listeners:
  - {name: plain, address: %q, pool: brokers}
pools:
  - {name: brokers, backends: [{name: one, address: "127.0.0.1:1"}], health: %s}
`, held(t), health))
		stdout, stderr, code := mqttlb(t, nil, "check", "-c", file)
		if code != 2 || strings.Contains(stdout+stderr, password) {
			t.Errorf("%s: exit code %d, %s%s", name, code, stdout, stderr)
		}
	}
}

func TestAPortInUseIsNamedWithKeyAndMend(t *testing.T) {
	taken, free := held(t), freeAddr(t)
	l := prepareLB(t, fmt.Sprintf(`
listeners:
  - {name: free, address: %q, pool: brokers}
  - {name: taken, address: %q, pool: brokers}
pools:
  - {name: brokers, backends: [{name: one, address: "127.0.0.1:1"}]}
`, free, taken))
	_, stderr, code := mqttlb(t, nil, "run", "-c", l.file)
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	for _, part := range []string{l.file + ":4: listeners[1].address: ", taken, "another process listens there", "choose another port"} {
		if !strings.Contains(stderr, part) {
			t.Errorf("%q is not in: %s", part, stderr)
		}
	}
	for _, addr := range []string{free, l.admin} {
		if !refusesConnections(t, addr) {
			t.Errorf("%s is still open", addr)
		}
	}
}

func TestTheEnvironmentWinsOverTheFile(t *testing.T) {
	broker := brokers(t, 1)[0]
	l := prepareLB(t, fmt.Sprintf(`
listeners:
  - {name: plain, address: %q, pool: brokers}
pools:
  - {name: brokers, backends: %s}
log: {level: error, format: text}
`, freeAddr(t), flow(broker)))
	binary := must(rig.Build())(t)
	l.admin = freeAddr(t) // not the one in the file
	p := must(rig.Start(rig.Command{
		Name: "mqttlb", Path: binary, Args: []string{"run"},
		Env: []string{"MQTTLB_CONFIG=" + l.file, "MQTTLB_ADMIN_ADDRESS=" + l.admin, "MQTTLB_LOG_LEVEL=info", "MQTTLB_LOG_FORMAT=json"},
	}))(t)
	t.Cleanup(p.Kill)
	awaitLine(t, p, 0, `"msg":"ready to balance"`, `"level":"INFO"`)
	if code, body := l.get(t, "/healthz"); code != 200 {
		t.Errorf("/healthz at the variable's address: %d, %s", code, body)
	}

	for env, want := range map[string]string{
		"MQTTLB_ADMIN_ADRESS=127.0.0.1:1": "MQTTLB_ADMIN_ADDRESS",
		"MQTTLB_SHUTDOWN_TIMEOUT=30":      "30s",
	} {
		name, _, _ := strings.Cut(env, "=")
		_, stderr, code := mqttlb(t, []string{env}, "check", "-c", l.file)
		if code != 2 || !strings.Contains(stderr, name) || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %s; want 2 and %q", env, code, stderr, want)
		}
	}
}

func TestTOMLAndJSONServeAsWellAsYAML(t *testing.T) {
	broker := brokers(t, 1)[0]
	for name, format := range map[string]string{
		"mqttlb.toml": `
shutdown_timeout = "1s"
[admin]
address = %q
[[listeners]]
name = "plain"
address = %q
pool = "brokers"
[[pools]]
name = "brokers"
[[pools.backends]]
name = "broker"
address = %q
`,
		"mqttlb.json": `{
  "shutdown_timeout": "1s",
  "admin": {"address": %q},
  "listeners": [{"name": "plain", "address": %q, "pool": "brokers"}],
  "pools": [{"name": "brokers", "backends": [{"name": "broker", "address": %q}]}]
}`,
	} {
		t.Run(filepath.Ext(name), func(t *testing.T) {
			l := &lb{admin: freeAddr(t)}
			addr := freeAddr(t)
			text := fmt.Sprintf(format, l.admin, addr, broker.Addr())
			l.file = writeFile(t, t.TempDir(), name, text)
			l.start(t)
			if err := (way{addr: addr}).join(t, "device").ping(); err != nil {
				t.Error(err)
			}
			if order := l.explain(t, "device"); order[0] != "broker" {
				t.Errorf("ring explain: %v", order)
			}

			// Mistakes have their line in every format.
			wrong := strings.Replace(text, "address", "adress", 2)
			file := writeFile(t, t.TempDir(), name, wrong)
			line := 1 + strings.Count(wrong[:strings.LastIndex(wrong, "adress")], "\n")
			_, stderr, code := mqttlb(t, nil, "check", "-c", file)
			if want := fmt.Sprintf("%s:%d: listeners[0].adress: ", file, line); code != 2 || !strings.Contains(stderr, want) {
				t.Errorf("exit code %d, %s; want 2 and %q", code, stderr, want)
			}
		})
	}
}

// What the repository shows as examples is what the binary takes, once the
// certificates are there that only their owner has.
func TestTheExamplesAreTakenByTheBinary(t *testing.T) {
	certs := newPKI(t)
	for _, name := range []string{"server", "ecdsa", "rsa", "mqttlb"} {
		p := certs.server(t, name, map[string]rig.KeyType{"rsa": rig.RSA}[name])
		for from, to := range map[string]string{p.Cert: name + ".crt", p.Key: name + ".key"} {
			if err := os.Rename(from, filepath.Join(certs.dir, to)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{"devices-ca", "brokers-ca"} {
		writeFile(t, certs.dir, name+".crt", string(must(os.ReadFile(certs.CA))(t)))
	}
	root := must(rig.Root())(t)
	for _, name := range []string{"plain", "tls-offload", "mtls", "passthrough", "mixed", "reference"} {
		text := string(must(os.ReadFile(filepath.Join(root, "configs", name+".yaml")))(t))
		file := writeFile(t, certs.dir, name+".yaml", strings.ReplaceAll(text, "/etc/mqttlb/tls", certs.dir))
		if stdout, stderr, code := mqttlb(t, nil, "check", "-c", file); code != 0 || !strings.HasPrefix(stdout, "ok: ") {
			t.Errorf("%s: exit code %d, %s%s", name, code, stdout, stderr)
		}
	}
}
