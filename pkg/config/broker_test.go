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

// minimalBroker has what must be there, and no more.
const minimalBroker = `
listeners: [{name: mqtt, address: "127.0.0.1:1883"}]
`

func TestDefaultBrokerIsWhatRunDoesWithoutAFile(t *testing.T) {
	b := DefaultBroker()
	if len(b.Listeners) != 1 || b.Listeners[0].Address != "127.0.0.1:1883" || b.Listeners[0].TLS.Mode != TLSOff {
		t.Errorf("listeners %+v", b.Listeners)
	}
	if b.Data != "broker-data" {
		t.Errorf("data in %q, want a folder where it is started", b.Data)
	}
	if a := b.Admin.Address; !netip.MustParseAddrPort(a).Addr().IsLoopback() || a == Default().Admin.Address {
		t.Errorf("admin on %s: want loopback, and not mqttlb's port", a)
	}
	if b.HealthEndpoint != (HealthEndpoint{}) {
		t.Errorf("health endpoints are off by default, got %+v", b.HealthEndpoint)
	}

	same, problems := load(t, BrokerLoader{}, "c.yaml", minimalBroker)
	if problems != "" {
		t.Fatal(problems)
	}
	same.Data = b.Data
	b.src, same.src = nil, nil
	if !reflect.DeepEqual(b, same) {
		t.Errorf("the built-in default has other defaults than a file:\n%+v\n%+v", b, same)
	}
}

func TestBrokerValues(t *testing.T) {
	b, err := BrokerLoader{SkipFiles: true}.Load("../../configs/broker.yaml")
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	check("node", b.Node, Node{Name: "broker-1", Announce: true})
	check("data", b.Data, "/var/lib/broker")
	check("drain", b.Drain, BrokerDrain{Redirect: "mqtt.example.com:8883"})
	check("durability", b.Durability, Durability1s)
	check("store", b.Store, Store{MaxBytes: 20 << 30})
	check("from", b.Listeners[0].AcceptProxy.From[1], netip.MustParsePrefix("10.2.0.7/32"))
	check("tls", TLS(b.Listeners[0].TLS).Mode, TLSTerminate)
	check("limits of the first listener", b.Listeners[0].Limits, BrokerListenerLimits{
		Connections: 50000, ConnectTimeout: 5 * time.Second,
		PerIP: PerIP{Connections: 200, Rate: 50, Exempt: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("203.0.113.7/32")}},
	})
	check("the second listener", b.Listeners[1], BrokerListener{
		Name: "mqtt", Address: "127.0.0.1:1883",
		TLS:    BrokerTLS{Mode: TLSOff, Verify: VerifyNone, MinVersion: "1.2"},
		Limits: BrokerListenerLimits{ConnectTimeout: 10 * time.Second},
	})
	check("limits", b.Limits, BrokerLimits{
		MaxTopicLength: 1 << 10, MaxPacketSize: 256 << 10, ReceiveMaximum: 100, Inflight: 20, TopicAliasMaximum: 10,
		MaxKeepAlive: 10 * time.Minute, MaxSessionExpiry: 7 * 24 * time.Hour,
		MaxQueued: 20000, MaxQueuedBytes: 16 << 20, QueuePolicy: DropOldest,
	})
}

func TestBrokerDataIsRelativeToTheFile(t *testing.T) {
	path := write(t, "c.yaml", minimalBroker)
	b, err := BrokerLoader{}.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(filepath.Dir(path), "broker-data"); b.Data != want {
		t.Errorf("got %s, want %s", b.Data, want)
	}
}

// C026, for the broker.
func TestBrokerMistakesAreNamedByLineAndPath(t *testing.T) {
	const (
		listener = `listeners: [{name: l, address: ":1"`
		end      = "}]\n"
	)
	for _, row := range []struct{ name, content, want string }{
		{"empty file", "", "c.yaml: listeners: is missing; list at least one"},
		{"misspelt", minimalBroker + "limits: {max_queud: 1}\n",
			`c.yaml:3: limits.max_queud: unknown key; did you mean "max_queued"?`},
		{"a level too high", minimalBroker + "max_packet_size: 1 MiB\n",
			`c.yaml:3: max_packet_size: unknown key; it is "max_packet_size" below "limits" here`},
		{"mosquitto's word", minimalBroker + "persistence_location: /var/lib/mosquitto/\n",
			`c.yaml:3: persistence_location: unknown key; it is called "data" here`},
		{"mosquitto's word in a group", minimalBroker + "limits: {max_inflight_messages: 20}\n",
			`c.yaml:3: limits.max_inflight_messages: unknown key; it is called "inflight" here`},
		{"mqttlb's key", minimalBroker + "pools: []\n",
			`c.yaml:3: pools: unknown key; known here are node, cluster, data, durability, store, listeners, limits, drain, admin, health_endpoint, log, shutdown_timeout`},
		{"mqttlb's mode", listener + ", tls: {mode: passthrough}" + end,
			`c.yaml:1: listeners[0].tls.mode: "passthrough" is not a word that this key knows; write one of off, terminate`},
		{"durability without a word", minimalBroker + "durability: 1\n",
			`c.yaml:3: durability: "1" is not a word that this key knows; did you mean "1s"? Allowed are always, 1s`},
		{"no message ever in flight", minimalBroker + "limits: {inflight: 0}\n",
			`c.yaml:3: limits.inflight: 0 is out of bounds; write a value from 1 to 65535`},
		{"a packet of 256 MB", minimalBroker + "limits: {max_packet_size: 256 MiB}\n",
			`c.yaml:3: limits.max_packet_size: 256 MiB is out of bounds; write a value from 1 KiB to 8 MiB`},

		{"two listeners of one name", `listeners: [{name: a, address: ":1"}, {name: a, address: ":2"}]`,
			`c.yaml:1: listeners[1].name: "a" is the name of listeners[0] (line 1) already; give each listener a name of its own`},
		{"two listeners on one address", `listeners: [{name: a, address: ":1"}, {name: b, address: "127.0.0.1:1"}]`,
			`c.yaml:1: listeners[1].address: "127.0.0.1:1" is taken by listeners[0].address (:1) already; choose another port`},
		{"a listener on admin's default", `listeners: [{name: a, address: ":9191"}]`,
			`c.yaml: admin.address: "127.0.0.1:9191" is taken by listeners[0].address (:9191) already; choose another port`},
		{"verify without TLS", listener + ", tls: {verify: required}" + end,
			`c.yaml:1: listeners[0].tls.verify: has no effect with mode: off; write mode: terminate, or remove the key`},
		{"TLS without a certificate", listener + ", tls: {mode: terminate}" + end,
			`c.yaml:1: listeners[0].tls.certificates: is missing, but mode: terminate needs a certificate; list at least one pair of cert and key`},
		{"a header from nobody", listener + ", accept_proxy: {}" + end,
			`c.yaml:1: listeners[0].accept_proxy.from: is missing; list at least one`},

		{"topics longer than packets", minimalBroker + "limits: {max_packet_size: 4 KiB}\n",
			`c.yaml:3: limits.max_packet_size: 4096 bytes have no room for a topic of 4096; raise it, or lower max_topic_length`},
		{"a queue without room for one packet", minimalBroker + "limits: {max_queued_bytes: 512 KiB}\n",
			`c.yaml:3: limits.max_queued_bytes: 524288 bytes are less than one packet of max_packet_size, 1048576; raise it, or lower max_packet_size`},
		{"parts of seconds", minimalBroker + "limits: {max_keep_alive: 500ms, max_session_expiry: 1h0.5s}\n",
			"c.yaml:3: limits.max_keep_alive: 500ms is no whole number of seconds, which is what MQTT counts in; write e.g. \"1s\"\n" +
				"c.yaml:3: limits.max_session_expiry: 1h0m0.5s is no whole number of seconds, which is what MQTT counts in; write e.g. \"1h0m1s\""},
		{"a store without room", minimalBroker + "store: {max_bytes: 1 MiB}\n",
			`c.yaml:3: store.max_bytes: 1048576 bytes leave no room to work in; write at least 64 MiB, or 0 for as much as the disk has`},
		{"a wrong limit is told once", minimalBroker + "limits: {max_packet_size: 1 B}\n",
			`c.yaml:3: limits.max_packet_size: 1 B is out of bounds; write a value from 1 KiB to 8 MiB`},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, got := load(t, BrokerLoader{SkipFiles: true}, "c.yaml", row.content); got != row.want {
				t.Errorf("got\n%s\nwant\n%s", got, row.want)
			}
		})
	}
}

func TestBrokerDataMustBeAFolderOrCanBecomeOne(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const mend = "; name a folder, or where one can be made"
	for _, row := range []struct{ name, data, want string }{
		{"is there", dir, ""},
		{"is to be made", filepath.Join(dir, "new"), ""},
		{"is a file", file, `"` + file + `" is not a folder` + mend},
		{"is to be made with what is above it", filepath.Join(dir, "a", "b"), ""},
		{"is in a file", filepath.Join(file, "new"), `"` + file + `" is not a folder` + mend},
		{"is deep in a file", filepath.Join(file, "a", "b"), `"` + file + `" is not a folder` + mend},
		{"is nothing", "", `is empty; write the path of a folder, e.g. "/var/lib/broker"`},
		{"is text", "a\nb", `is not the path of a folder; write e.g. "/var/lib/broker"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			// In quotes of JSON, which YAML has too.
			_, got := load(t, BrokerLoader{}, "c.yaml", minimalBroker+"data: \""+strings.ReplaceAll(row.data, "\n", `\n`)+"\"\n")
			got = strings.TrimPrefix(got, "c.yaml:3: data: ")
			if got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}

func TestBrokerFilesAreNamedWithTheProgram(t *testing.T) {
	_, err := BrokerLoader{}.Load(filepath.Join("testdata", "absent.yaml"))
	if err == nil || !strings.HasSuffix(err.Error(), "; name a file that broker may read") {
		t.Errorf("got %v", err)
	}
}

func TestBrokerEnvironment(t *testing.T) {
	for _, row := range []struct {
		name     string
		variable string
		value    func(*Broker) any
		want     any // the value, or the problems
	}{
		{"text", "MQTTLB_BROKER_NODE_NAME=b2", func(b *Broker) any { return b.Node.Name }, "b2"},
		{"truth", "MQTTLB_BROKER_NODE_ANNOUNCE=true", func(b *Broker) any { return b.Node.Announce }, true},
		{"a number", "MQTTLB_BROKER_LIMITS_INFLIGHT=7", func(b *Broker) any { return b.Limits.Inflight }, 7},
		{"a size", "MQTTLB_BROKER_LIMITS_MAX_PACKET_SIZE=2 MiB", func(b *Broker) any { return b.Limits.MaxPacketSize }, 2 << 20},
		{"a size without unit", "MQTTLB_BROKER_STORE_MAX_BYTES=1073741824", func(b *Broker) any { return b.Store.MaxBytes }, 1 << 30},
		{"a time", "MQTTLB_BROKER_LIMITS_MAX_KEEP_ALIVE=5m", func(b *Broker) any { return b.Limits.MaxKeepAlive }, 5 * time.Minute},
		{"a folder", "MQTTLB_BROKER_DATA=/", func(b *Broker) any { return b.Data }, "/"},

		{"no truth", "MQTTLB_BROKER_NODE_ANNOUNCE=yes", nil,
			`environment variable MQTTLB_BROKER_NODE_ANNOUNCE: node.announce: "yes" is not true or false; write true or false, without quotes`},
		{"no number", "MQTTLB_BROKER_LIMITS_INFLIGHT=many", nil,
			`environment variable MQTTLB_BROKER_LIMITS_INFLIGHT: limits.inflight: "many" is not a whole number; write a number from 1 to 65535`},
		{"out of bounds", "MQTTLB_BROKER_LIMITS_INFLIGHT=0", nil,
			`environment variable MQTTLB_BROKER_LIMITS_INFLIGHT: limits.inflight: 0 is out of bounds; write a value from 1 to 65535`},
		{"misspelt", "MQTTLB_BROKER_DTA=/", nil, `environment variable MQTTLB_BROKER_DTA: unknown; did you mean MQTTLB_BROKER_DATA?`},
		{"mqttlb's own", "MQTTLB_ADMIN_ADDRESS=:1", func(b *Broker) any { return b.Admin.Address }, "127.0.0.1:9191"},
		{"another program's", "BROKER_URL=redis://", func(b *Broker) any { return b.Admin.Address }, "127.0.0.1:9191"},
		{"Kubernetes describes a Service called mqttlb-broker", "MQTTLB_BROKER_SERVICE_HOST=10.0.0.1", func(b *Broker) any { return b.Admin.Address }, "127.0.0.1:9191"},
	} {
		t.Run(row.name, func(t *testing.T) {
			b, got := load(t, BrokerLoader{Environ: []string{row.variable}}, "c.yaml", minimalBroker)
			switch {
			case b == nil:
				if got != row.want {
					t.Errorf("got  %s\nwant %s", got, row.want)
				}
			case row.value == nil:
				t.Errorf("taken, want %s", row.want)
			case !reflect.DeepEqual(row.value(b), row.want):
				t.Errorf("got %v, want %v", row.value(b), row.want)
			}
		})
	}
	t.Run("is not mqttlb's", func(t *testing.T) {
		if _, problems := load(t, Loader{Environ: []string{"MQTTLB_BROKER_DATA=/", "MQTTLB_BROKER_SERVICE_HOST=10.0.0.1"}}, "c.yaml", minimal); problems != "" {
			t.Error(problems)
		}
	})
}
