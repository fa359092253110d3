package config

import (
	"reflect"
	"strings"
	"testing"
)

func TestTextKinds(t *testing.T) {
	long := strings.Repeat("a", 300)
	for _, row := range []struct{ is, text, want string }{
		{"name", "broker-1.example.com:1883", "broker-1.example.com:1883"},
		{"name", "b 1", `!"b 1" holds ' ', which a name can't have there`},
		{"name", "-b", `!"-b" holds '-', which a name can't have there`},
		{"name", "büro", `!"büro" holds 'ü', which a name can't have there`},
		{"name", long, "!the name is 300 bytes long"},

		{"listen", ":1883", ":1883"},
		{"listen", "[::1]:0", "[::1]:0"},
		{"listen", "localhost:1883", "localhost:1883"},
		{"listen", "*:1883", `!"*:1883" has "*" for a host`},
		{"listen", "1883", `!"1883" has no host`},
		{"listen", "127.0.0.1", `!"127.0.0.1" has no port`},
		{"listen", "127.0.0.1:mqtt", `!"127.0.0.1:mqtt" has the port "mqtt"`},
		{"listen", "127.0.0.1:65536", `!"127.0.0.1:65536" has the port "65536"`},
		{"listen", "127.0.0.1:01883", `!"127.0.0.1:01883" has the port "01883"`},
		{"listen", "::1:1883", `!"::1:1883" has no port`},
		{"listen", "a:b:c", `!"a:b:c" is not host:port`},

		{"dial", "10.0.0.7:1883", "10.0.0.7:1883"},
		{"dial", "[fe80::1%eth0]:1883", "[fe80::1%eth0]:1883"},
		{"dial", "my_broker.internal.:1883", "my_broker.internal.:1883"},
		{"dial", ":1883", `!":1883" has no host`},
		{"dial", "10.0.0.7:0", `!"10.0.0.7:0" has the port "0"`},
		{"dial", "10.0.0.7", `!"10.0.0.7" has no port`},
		{"dial", "fd00::7", `!"fd00::7" has no port`},
		{"dial", "bro ker:1883", `!"bro ker:1883" has a host that is neither a name nor an address`},
		{"dial", "-a:1883", `!"-a:1883" has a host that is neither a name nor an address`},
		{"dial", "mqtt://10.0.0.7:1883", "!is a URL (mqtt://)"},
		{"dial", "joe:x@10.0.0.7:1883", `!"…@10.0.0.7:1883" is not host:port`},

		{"prefix", "10.0.0.0/8", "10.0.0.0/8"},
		{"prefix", "10.0.0.7", "10.0.0.7/32"},
		{"prefix", "fd00::/8", "fd00::/8"},
		{"prefix", "10.0.0.7/8", `!"10.0.0.7/8" has bits set behind its first 8`},
		{"prefix", "::ffff:10.0.0.7", `!"::ffff:10.0.0.7" is not a range of addresses`},
		{"prefix", "10.0.0.0/33", `!"10.0.0.0/33" is not a range of addresses`},

		{"sni", "MQTT.example.com.", "mqtt.example.com"},
		{"sni", "*.example.com", "*.example.com"},
		{"sni", "a.*.com", `!"a.*.com" is not a host name`},
		{"sni", "example.com:8883", `!"example.com:8883" is not a host name`},
		{"sni", "10.0.0.7", `!"10.0.0.7" is an address, and clients name no server when they connect to an address`},
		{"server_name", "Broker.internal", "broker.internal"},
		{"server_name", "10.0.0.7", "10.0.0.7"},
		{"server_name", "*.internal", `!"*.internal" is not a host name`},

		{"alpn", "mqtt", "mqtt"},
		{"alpn", long, "!the protocol name is 300 bytes long"},
		{"topic", "mqttlb/check", "mqttlb/check"},
		{"topic", "a/+/b", `!"a/+/b" holds a wildcard`},
		{"topic", "$SYS/x", `!"$SYS/x" begins with "$", where brokers let nobody publish`},
		{"topic", "a\x00", "!is not a topic of MQTT"},
		{"file", "./tls/../a.crt", "a.crt"},
		{"file", long, "!is not the path of a file"},
		{"file", "-----BEGIN CERTIFICATE-----", "!is PEM text, not the path of a file"},
	} {
		got, fault := textKinds[row.is].check(row.text)
		if fault != nil {
			got = "!" + fault.what
		}
		if got != row.want {
			t.Errorf("%s %q: got %q, want %q", row.is, row.text, got, row.want)
		}
		if fault != nil && fault.mend == "" {
			t.Errorf("%s %q: no word on how to mend it", row.is, row.text)
		}
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int{
		"0": 0, "65536": 65536, "10 B": 10, "64KiB": 64 << 10, "64 KiB": 64 << 10, "2 MiB": 2 << 20, "1 GiB": 1 << 30, "-1 KiB": -1024,
		"": -9, "KiB": -9, "64 kib": -9, "1.5 KiB": -9, "9223372036854775807 KiB": -9,
	} {
		got, ok := parseSize(text)
		if !ok {
			got = -9
		}
		if got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	keys := keysOf(fieldsOf(reflect.TypeFor[Pool]()))
	for word, want := range map[string]string{
		"bakends": "backends", "backend": "backends", "Backends": "backends", "back_ends": "backends",
		"send-proxy": "send_proxy", "sendProxy": "send_proxy", "halth": "health", "dail": "dial", "tsl": "tls",
		"crl": "", "source": "", "discover": "", "x": "", "": "",
	} {
		if got := nearest(word, keys); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, row := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"abc", "abd", 1}, {"kitten", "sitting", 3},
	} {
		if got := distance(row.a, row.b); got != row.want || distance(row.b, row.a) != got {
			t.Errorf("%q to %q: %d, want %d", row.a, row.b, got, row.want)
		}
	}
}
