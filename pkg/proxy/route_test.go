package proxy

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/affinity"
	"github.com/mqttlb/mqttlb/pkg/backend"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

func ring(members []*backend.Backend) *affinity.Table {
	return must(affinity.Build(members, affinity.Options{Balance: affinity.Ring}))
}

// onRing places a rig's clients on a ring, by these keys.
func onRing(keys ...HashKey) setup {
	return func(_ *Options, po *PoolOptions) { po.Table, po.HashKeys = ring(po.Table.Backends()), keys }
}

func four(t *testing.T) []string {
	var addresses []string
	for range 4 {
		a, _ := recorder(t)
		addresses = append(addresses, a)
	}
	return addresses
}

// home is where the ring puts a key.
func (r *rig) home(key []byte) string {
	b, ok := r.pool.Options().Table.Pick(key, 0)
	if !ok {
		r.t.Fatalf("no home for %q", key)
	}
	return b.Name
}

func TestKeysThatPlaceAClient(t *testing.T) {
	header := func(i int) string { return fmt.Sprintf("PROXY TCP4 198.51.100.%d 192.0.2.1 4000 1883\r\n", i) }
	for _, tt := range []struct {
		name   string
		keys   []HashKey
		setups []setup
		header bool
		tls    bool
		key    func(i int) []byte
	}{
		{"client_id", []HashKey{HashClientID}, nil, false, false, func(i int) []byte { return fmt.Appendf(nil, "dev-%d", i) }},
		{"client_id before source_ip", []HashKey{HashClientID, HashSourceIP}, nil, false, false, func(i int) []byte { return fmt.Appendf(nil, "dev-%d", i) }},
		{"source_ip of the socket", []HashKey{HashSourceIP}, nil, false, false, func(int) []byte { return []byte{127, 0, 0, 1} }},
		{"source_ip of the PROXY header", []HashKey{HashSourceIP}, []setup{acceptProxy(false)}, true, false, func(i int) []byte { return []byte{198, 51, 100, byte(i)} }},
		{"sni", []HashKey{HashSNI, HashClientID}, []setup{terminate(nil)}, false, true, func(i int) []byte { return fmt.Appendf(nil, "host-%d.example", i) }},
		{"sni that is not there", []HashKey{HashSNI, HashClientID}, nil, false, false, func(i int) []byte { return fmt.Appendf(nil, "dev-%d", i) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, four(t), append(tt.setups, onRing(tt.keys...))...)
			used := map[string]bool{}
			for i := range 24 {
				c := r.dial()
				if tt.header {
					c.send([]byte(header(i)))
				}
				if tt.tls {
					c = c.overTLS(&tls.Config{InsecureSkipVerify: true, ServerName: fmt.Sprintf("HOST-%d.example", i)})
				}
				c.send(connect311(fmt.Sprintf("dev-%d", i)))
				c.expect(connack311)
				c.Close()
				e := r.end()
				if want := r.home(tt.key(i)); e.Backend != want || e.Attempt != 1 {
					t.Errorf("client %d on %s, attempt %d, want %s", i, e.Backend, e.Attempt, want)
				}
				used[e.Backend] = true
			}
			if _, constant := used[r.home([]byte{127, 0, 0, 1})]; len(used) < 2 && (!constant || tt.name != "source_ip of the socket") {
				t.Errorf("all on %v", used)
			}
		})
	}
}

// Clients that leave their name to the broker have none to be placed by: on a
// ring all of them would be one bucket.
func TestEmptyClientIDsAreSpread(t *testing.T) {
	r := newRig(t, four(t), unloaded, onRing(HashClientID, HashSourceIP))
	for range 40 {
		c := r.dial()
		c.send(connect5(""))
		c.expect(mqtt.AppendConnack(nil, mqtt.V5, mqtt.Success))
	}
	for _, b := range r.backends {
		if n := b.Connections(); n != 10 {
			t.Errorf("%s holds %d of 40", b.Name, n)
		}
	}
}

// DESIGN: the same Client Identifier to the same node, always; a node's loss
// moves its clients only, its return disturbs no one.
func TestReconnectsGoHomeAndOnlyTheLostBackendsClientsMove(t *testing.T) {
	r := newRig(t, four(t), onRing(HashClientID))
	place := func(id string) string {
		c := r.dial()
		c.send(connect311(id))
		c.expect(connack311)
		c.Close()
		return r.end().Backend
	}
	const clients = 60
	before := map[string]string{}
	for i := range clients {
		id := fmt.Sprintf("dev-%06d", i)
		before[id] = place(id)
		if again := place(id); again != before[id] {
			t.Errorf("%s: %s, then %s", id, before[id], again)
		}
	}
	r.backends[0].SetHealth(false, "test")
	for id, b := range before {
		if now := place(id); now == "b1" || b != "b1" && now != b {
			t.Errorf("%s moved from %s to %s when b1 went down", id, b, now)
		}
	}
	r.backends[0].SetHealth(true, "")
	for id, b := range before {
		if now := place(id); now != b {
			t.Errorf("%s is on %s, not home on %s", id, now, b)
		}
	}
}

// A pool is swapped whole: those that are connected stay as they are.
func TestSwappedPoolServesTheNextClient(t *testing.T) {
	a, _ := recorder(t)
	b, _ := recorder(t)
	r := newRig(t, []string{a, b})
	old := r.connected("dev-1")
	o := *r.pool.Options()
	o.Table = ring(r.backends[1:])
	r.pool.Swap(o)
	c := r.connected("dev-1")
	c.Close()
	if e := r.end(); e.Backend != "b2" {
		t.Errorf("on %s", e.Backend)
	}
	old.closeWrite()
	old.expectEOF()
	if e := r.ended(StageRelay, ByClient, Closed); e.Backend != "b1" {
		t.Errorf("the old one was on %s", e.Backend)
	}
}

// protocol: tcp is for whatever has a server that may speak first.
func TestProtocolTCPLetsTheServerSpeakFirst(t *testing.T) {
	for name, s := range map[string]setup{
		"plain":        func(*Options, *PoolOptions) {},
		"tls":          terminate(nil),
		"proxy header": acceptProxy(false),
	} {
		t.Run(name, func(t *testing.T) {
			address := serve(t, func(p *peer) {
				p.send([]byte("220 ready\r\n"))
				line, _ := bufio.NewReader(p).ReadString('\n')
				p.send([]byte("you said " + line))
			})
			r := newRig(t, []string{address}, s, func(o *Options, po *PoolOptions) {
				o.Protocol, po.HashKeys = TCP, []HashKey{HashSourceIP}
			})
			c := r.dial()
			switch name {
			case "tls":
				c = c.overTLS(clientTLS())
			case "proxy header":
				c.send([]byte("PROXY TCP4 198.51.100.7 192.0.2.1 4000 25\r\n"))
			}
			c.expect([]byte("220 ready\r\n"))
			c.send([]byte("HELO\n"))
			b, err := io.ReadAll(c)
			if err != nil || string(b) != "you said HELO\n" {
				t.Errorf("got %q, %v", b, err)
			}
			c.Close()
			r.ended(StageRelay, ByBackend, Closed)
		})
	}
}

// What came along with the PROXY header opens the connection to the backend.
func TestProtocolTCPForwardsWhatCameWithTheHeader(t *testing.T) {
	got := make(chan string, 1)
	r := newRig(t, []string{serve(t, func(p *peer) {
		b, _ := p.rest()
		got <- string(b)
	})}, acceptProxy(false), func(o *Options, _ *PoolOptions) { o.Protocol = TCP })
	c := r.dial()
	c.send([]byte("PROXY UNKNOWN\r\nfirst words"))
	c.closeWrite()
	if b := <-got; b != "first words" {
		t.Errorf("the backend got %q", b)
	}
	c.expectEOF()
	if e := r.end(); e.FromClient != uint64(len("first words")) {
		t.Errorf("%d bytes counted", e.FromClient)
	}
}

func TestNamesMatchAsTheyShould(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"a.example", "a.example", true},
		{"a.example", "A.EXAMPLE", true},
		{"a.example", "b.example", false},
		{"*.example", "a.example", true},
		{"*.example", "a.b.example", false},
		{"*.example", "example", false},
		{"*.example", ".example", false},
		{"*.example", "", false},
		{"a.example", "", false},
	} {
		if got := matchName(tt.pattern, tt.name); got != tt.want {
			t.Errorf("%q for %q: %v", tt.pattern, tt.name, got)
		}
	}
}

// A terminating listener routes by what was negotiated, and answers in MQTT
// where nothing fits: TLS is up already.
func TestTerminatedConnectionWithoutARouteIsAnswered(t *testing.T) {
	r := newRig(t, []string{closedPort(t)}, terminate(nil), func(o *Options, _ *PoolOptions) {
		o.Routes = []Route{{SNI: []string{"other.example"}}}
	})
	c := r.dial().overTLS(clientTLS())
	if how, _ := outcome(r, c, nil, connect5("dev-1")); how != "connack=88,close" {
		t.Error(how)
	}
	c.Close()
	r.ended(StageRoute, ByMqttlb, NoRoute)
}
