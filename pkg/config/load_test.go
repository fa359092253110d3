package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// write puts a configuration into a file of its own and gives its path.
func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// load gives the configuration, or the problems with the folder of the file
// cut off, so that tables can hold them as people read them.
func load[C any, P schema[C]](t *testing.T, l LoaderOf[C, P], name, content string) (*C, string) {
	t.Helper()
	path := write(t, name, content)
	c, err := l.Load(path)
	if err == nil {
		return c, ""
	}
	if _, ok := err.(*Problems); !ok {
		t.Fatalf("the error is a %T, want *Problems: %v", err, err)
	}
	return nil, strings.ReplaceAll(err.Error(), filepath.Dir(path)+string(filepath.Separator), "")
}

func TestDefaultIsWhatRunDoesWithoutAFile(t *testing.T) {
	c := Default()
	if len(c.Listeners) != 1 || len(c.Pools) != 1 {
		t.Fatalf("%d listeners and %d pools, want one of each", len(c.Listeners), len(c.Pools))
	}
	l, p := c.Listeners[0], c.Pools[0]
	if l.Name != "mqtt" || l.Address != "127.0.0.1:1883" || l.Pool != "brokers" || l.TLS.Mode != TLSOff {
		t.Errorf("listener %+v", l)
	}
	want := []Backend{
		{Name: "b1", Address: "127.0.0.1:18831", Weight: 100, State: BackendActive},
		{Name: "b2", Address: "127.0.0.1:18832", Weight: 100, State: BackendActive},
		{Name: "b3", Address: "127.0.0.1:18833", Weight: 100, State: BackendActive},
	}
	if p.Name != "brokers" || !reflect.DeepEqual(p.Backends, want) {
		t.Errorf("pool %q with %+v", p.Name, p.Backends)
	}
	for _, address := range []string{l.Address, c.Admin.Address} {
		if !netip.MustParseAddrPort(address).Addr().IsLoopback() {
			t.Errorf("%s is not on loopback", address)
		}
	}
	if c.HealthEndpoint != (HealthEndpoint{}) {
		t.Errorf("health endpoints are off by default, got %+v", c.HealthEndpoint)
	}
}

func TestAdminListensOnLoopbackWhereAFileSaysNothing(t *testing.T) {
	c, problems := load(t, Loader{}, "c.yaml", minimal)
	if problems != "" {
		t.Fatal(problems)
	}
	if c.Admin.Address != "127.0.0.1:9091" {
		t.Errorf("admin listens on %q", c.Admin.Address)
	}
}

// minimal has what must be there, and no more.
const minimal = `
listeners: [{name: mqtt, address: "127.0.0.1:1883", pool: p}]
pools: [{name: p, backends: [{name: b1, address: "127.0.0.1:18831"}]}]
`

func TestTheThreeFormatsSayTheSame(t *testing.T) {
	read := func(name string) *Config {
		c, err := Loader{SkipFiles: true}.Load(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		c.src = nil
		return c
	}
	c := read("all.yaml")
	for _, name := range []string{"all.toml", "all.json"} {
		if other := read(name); !reflect.DeepEqual(c, other) {
			t.Errorf("%s differs:\n%+v\n%+v", name, other, c)
		}
	}

	check := func(what string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	check("from", c.Listeners[0].AcceptProxy.From, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.7/32")})
	check("trust_identity", c.Listeners[0].AcceptProxy.TrustIdentity, true)
	check("max_connect_size", c.Listeners[0].Limits.MaxConnectSize, 64<<10)
	check("connect_timeout", c.Listeners[0].Limits.ConnectTimeout, 90*time.Second)
	check("limits of the second listener", c.Listeners[1].Limits, Limits{ConnectTimeout: 10 * time.Second, MaxConnectSize: 128 << 10})
	check("sni is in lower case", c.Listeners[1].Routes[0].SNI, []string{"a.example.com"})
	check("min_version", c.Listeners[1].TLS.MinVersion, "1.3")
	check("relative paths start at the file's folder, absolute ones stay", c.Listeners[1].TLS.Certificates, []Certificate{{Cert: filepath.Join("testdata", "a.crt"), Key: "/abs/a.key"}})
	check("one word is a list of one", c.Pools[0].HashKey, []HashKey{HashSourceIP})
	check("an empty group is there", c.Pools[0].TLS, &BackendTLS{})
	check("fast_interval is not above the interval", c.Pools[0].Health.FastInterval, 500*time.Millisecond)
	check("weights", []int{c.Pools[0].Backends[0].Weight, c.Pools[0].Backends[1].Weight}, []int{200, 100})
	check("state", c.Pools[0].Backends[1].State, BackendDrain)
	check("admin is switched off", c.Admin.Address, "")
	check("a written zero is no default", c.ShutdownTimeout, time.Duration(0))
}

func TestDefaultsThatHangOnOtherKeys(t *testing.T) {
	const (
		plain       = `{name: plain, address: ":1", pool: p}`
		passthrough = `{name: passthrough, address: ":2", pool: p, tls: {mode: passthrough}}`
		tcp         = `{name: tcp, address: ":3", pool: p, protocol: tcp}`
		routed      = `{name: routed, address: ":4", routes: [{sni: a.example.com, pool: p}], tls: {mode: passthrough}}`
		elsewhere   = `{name: elsewhere, address: ":5", pool: other}`
	)
	for _, row := range []struct {
		name, listeners, pool string
		hash                  []HashKey
		health                HealthType
	}{
		{"a listener that reads CONNECT", plain, ``, []HashKey{HashClientID}, HealthMQTT},
		{"passthrough", passthrough, ``, []HashKey{HashSourceIP}, HealthTCP},
		{"tcp", tcp, ``, []HashKey{HashSourceIP}, HealthTCP},
		{"passthrough by a route", routed, ``, []HashKey{HashSourceIP}, HealthTCP},
		{"either kind", plain + "," + passthrough, ``, []HashKey{HashClientID, HashSourceIP}, HealthMQTT},
		{"no listener", elsewhere, ``, []HashKey{HashClientID}, HealthMQTT},
		{"no ring", plain, `balance: random, `, nil, HealthMQTT},
		{"what is written stays", tcp, `hash_key: [client_id, source_ip], health: {type: none}, `, []HashKey{HashClientID, HashSourceIP}, HealthNone},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, problems := load(t, Loader{}, "c.yaml", `
listeners: [`+row.listeners+`]
pools:
  - {name: p, `+row.pool+`backends: [{name: b1, address: "b1:1"}]}
  - {name: other, backends: [{name: b1, address: "b1:1"}]}`)
			if problems != "" {
				t.Fatal(problems)
			}
			if p := c.Pools[0]; !reflect.DeepEqual(p.HashKey, row.hash) || p.Health.Type != row.health {
				t.Errorf("hash_key %v, health.type %s; want %v, %s", p.HashKey, p.Health.Type, row.hash, row.health)
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	for _, row := range []struct {
		name    string
		environ []string
		want    string // the admin address, or the problems
	}{
		{"wins over the file", []string{"MQTTLB_ADMIN_ADDRESS=127.0.0.1:7"}, "127.0.0.1:7"},
		{"empty counts as not set", []string{"MQTTLB_ADMIN_ADDRESS="}, "127.0.0.1:9"},
		{"others' variables do not matter", []string{"ADMIN_ADDRESS=x", "PATH=/bin"}, "127.0.0.1:9"},
		{"the name of the file is no key", []string{"MQTTLB_CONFIG=/etc/mqttlb.yaml"}, "127.0.0.1:9"},
		{"Kubernetes describes a Service called mqttlb", []string{"MQTTLB_SERVICE_HOST=10.0.0.1", "MQTTLB_PORT=tcp://10.0.0.1:1883", "MQTTLB_PORT_1883_TCP=tcp://10.0.0.1:1883"}, "127.0.0.1:9"},
		{"unknown", []string{"MQTTLB_ADMIN_ADRESS=topsecret"}, "environment variable MQTTLB_ADMIN_ADRESS: unknown; did you mean MQTTLB_ADMIN_ADDRESS?"},
		{"lists can't be set", []string{"MQTTLB_LISTENERS=x"}, "environment variable MQTTLB_LISTENERS: unknown; known are MQTTLB_ADMIN_ADDRESS, MQTTLB_CONFIG, MQTTLB_HEALTH_ENDPOINT_HTTP, MQTTLB_HEALTH_ENDPOINT_TCP, MQTTLB_LOG_FORMAT, MQTTLB_LOG_LEVEL, MQTTLB_SHUTDOWN_TIMEOUT"},
		{"wrong values are named by the variable", []string{"MQTTLB_SHUTDOWN_TIMEOUT=30", "MQTTLB_ADMIN_ADDRESS=9091", "MQTTLB_LOG_LEVEL=infos"},
			`environment variable MQTTLB_LOG_LEVEL: log.level: "infos" is not a word that this key knows; did you mean "info"? Allowed are debug, info, warn, error
environment variable MQTTLB_ADMIN_ADDRESS: admin.address: "9091" has no host; write host:port, e.g. "127.0.0.1:9091", or ":9091" for all addresses
environment variable MQTTLB_SHUTDOWN_TIMEOUT: shutdown_timeout: "30" has no unit; write "30s" for seconds; ms, s, m and h are known`},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, got := load(t, Loader{Environ: row.environ}, "c.yaml", minimal+"admin: {address: \"127.0.0.1:9\"}\n")
			if c != nil {
				got = c.Admin.Address
			}
			if sortedLines(got) != sortedLines(row.want) {
				t.Errorf("got\n%s\nwant\n%s", got, row.want)
			}
		})
	}
	t.Run("reaches keys whose group is not in the file", func(t *testing.T) {
		c, problems := load(t, Loader{Environ: []string{"MQTTLB_HEALTH_ENDPOINT_TCP=:9092", "MQTTLB_LOG_LEVEL=warn", "MQTTLB_SHUTDOWN_TIMEOUT=1s"}}, "c.yaml", minimal)
		if problems != "" {
			t.Fatal(problems)
		}
		if c.HealthEndpoint.TCP != ":9092" || c.Log.Level != "warn" || c.Log.Format != LogText || c.ShutdownTimeout != time.Second {
			t.Errorf("%+v %+v %s", c.HealthEndpoint, c.Log, c.ShutdownTimeout)
		}
	})
}

func TestAlsoAddsProblemsToTheSameRun(t *testing.T) {
	l := Loader{Also: func(c *Config) []Problem {
		return []Problem{
			c.Problem("listeners[0].address", "is in use", ""),
			c.Problem("pools[0].backends[0].weight", "said already", ""),
		}
	}}
	_, got := load(t, l, "c.yaml", strings.Replace(minimal, "name: b1", "name: b1, weight: -1", 1))
	want := `c.yaml:2: listeners[0].address: is in use
c.yaml:3: pools[0].backends[0].weight: -1 is out of bounds; write a value from 1 to 1000; to take the backend out of service, set state: drain or maint`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestProblemsAfterLoadingAreLocated(t *testing.T) {
	c, problems := load(t, Loader{Environ: []string{"MQTTLB_LOG_LEVEL=warn"}}, "c.yaml", minimal)
	if problems != "" {
		t.Fatal(problems)
	}
	for key, want := range map[string]string{
		"pools[0].backends[0].address": "c.yaml:3: pools[0].backends[0].address: x; y",
		"pools[0].dial.timeout":        "c.yaml:3: pools[0].dial.timeout: x; y", // a default: the pool's line
		"admin.address":                "c.yaml: admin.address: x; y",
		"log.level":                    "environment variable MQTTLB_LOG_LEVEL: log.level: x; y",
		"":                             "c.yaml: x; y",
	} {
		p := c.Problem(key, "x", "y")
		if i := strings.LastIndexByte(p.File, filepath.Separator); i >= 0 {
			p.File = p.File[i+1:]
		}
		if p.String() != want {
			t.Errorf("got %s, want %s", p, want)
		}
	}
}

func TestFilesThatCantBeRead(t *testing.T) {
	_, got := load(t, Loader{}, "c.ini", "")
	if want := "c.ini: the name does not tell the format; let it end in .yaml, .toml or .json"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	_, err := Loader{}.Load(filepath.Join("testdata", "absent.yaml"))
	if want := filepath.Join("testdata", "absent.yaml") + ": can't be read: no such file or directory; name a file that mqttlb may read"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestAByteOrderMarkIsNoPartOfTheFile(t *testing.T) {
	for name, content := range map[string]string{"c.yaml": minimal, "c.json": `{"listeners":[{"name":"l","address":":1","pool":"p"}],"pools":[{"name":"p","backends":[{"name":"b","address":"b:1"}]}]}`} {
		if _, problems := load(t, Loader{}, name, "\xef\xbb\xbf"+content); problems != "" {
			t.Error(problems)
		}
	}
}
