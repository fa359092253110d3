package e2e

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// startBroker starts our own broker, built with the race detector unless the
// options name another binary. When the test ends it must end too: in order,
// and without a data race.
func startBroker(t *testing.T, o rig.BrokerOptions) *rig.Broker {
	t.Helper()
	if o.Binary == "" {
		o.Binary = must(rig.BuildBrokerRace())(t)
	}
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	b, err := rig.StartBroker(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !b.Running() { // the test has failed between an end and a start
			return
		}
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
		if code := b.ExitCode(); code != 0 {
			t.Errorf("broker: exit code %d", code)
		}
		judgeLog(t, b)
		if t.Failed() {
			t.Logf("the last lines of the broker:\n%s", b.Log().Tail(40))
		}
	})
	return b
}

// crash ends a broker by SIGKILL.
func crash(t *testing.T, b *rig.Broker) {
	t.Helper()
	b.Kill()
	judgeLog(t, b)
}

// restart starts a broker again that has ended.
func restart(t *testing.T, b *rig.Broker) {
	t.Helper()
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// judgeLog fails the test when the broker has raced or panicked.
func judgeLog(t *testing.T, b *rig.Broker) {
	t.Helper()
	log := b.Log().Since(0)
	if i := indexLine(log, "WARNING: DATA RACE", "panic:", "fatal error:"); i >= 0 {
		t.Errorf("broker:\n%s", strings.Join(log[i:min(i+60, len(log))], "\n"))
	}
}

// speaker is a device that knows what it speaks, and what is asked of it when
// a message comes.
type speaker struct {
	*device
	v      mqtt.Version
	lastID uint16
}

// speak connects and must be let in.
func (w way) speak(t testing.TB, o mqtt.ConnectOptions) (*speaker, mqtt.Connack) {
	t.Helper()
	d, ack, err := w.connect(t, o)
	if err != nil || !ack.Accepted() {
		t.Fatalf("%s: 0x%02x, %v", o.ClientID, ack.Code, err)
	}
	return &speaker{device: d, v: max(o.Version, mqtt.V31)}, ack
}

// guest connects with a clean session of MQTT 5.0.
func (w way) guest(t testing.TB, id string) *speaker {
	t.Helper()
	s, _ := w.speak(t, mqtt.ConnectOptions{Version: mqtt.V5, ClientID: id, CleanStart: true})
	return s
}

// keeper connects with MQTT 5.0 and a session that outlives the connection.
func (w way) keeper(t testing.TB, id string) (*speaker, mqtt.Connack) {
	t.Helper()
	return w.speak(t, mqtt.ConnectOptions{Version: mqtt.V5, ClientID: id, Properties: kept})
}

// kept is a session expiry of an hour.
var kept = mqtt.Properties(nil).AppendUint(mqtt.PropSessionExpiryInterval, 3600)

func (s *speaker) send(t testing.TB, b []byte) {
	t.Helper()
	if _, err := s.Write(b); err != nil {
		t.Fatalf("%s: %v", s.id, err)
	}
}

// next reads a packet that has to be of the type.
func (s *speaker) next(t testing.TB, want mqtt.PacketType) []byte {
	t.Helper()
	p, err := s.packet()
	if err != nil || mqtt.PacketType(p[0]>>4) != want {
		t.Fatalf("%s: % x, %v in place of %v", s.id, p[:min(len(p), 64)], err, want)
	}
	return p
}

func (s *speaker) nextID() uint16 {
	s.lastID++
	return s.lastID
}

// wants subscribes at a QoS, and must be granted it.
func (s *speaker) wants(t testing.TB, qos byte, filters ...string) {
	t.Helper()
	m := mqtt.Subscribe{PacketID: s.nextID()}
	for _, f := range filters {
		m.Subscriptions = m.Subscriptions.Append(mqtt.Subscription{Filter: []byte(f), QoS: qos})
	}
	s.send(t, mqtt.AppendSubscribe(nil, s.v, m))
	a, _, err := mqtt.ParseSuback(s.next(t, mqtt.TypeSuback), s.v)
	for i := range filters {
		if err != nil || a.Codes[i] != qos {
			t.Fatalf("%s: subscribed to %s: % x, %v", s.id, filters[i], a.Codes, err)
		}
	}
}

// says publishes a message, waits for the end of its QoS, and gives the
// broker's answer. It is for those who are sent nothing else meanwhile.
func (s *speaker) says(t testing.TB, m rig.Message) mqtt.Reason {
	t.Helper()
	p := mqtt.Publish{QoS: byte(m.QoS), Retain: m.Retained, Topic: []byte(m.Topic), Payload: []byte(m.Payload)}
	if m.QoS > 0 {
		p.PacketID = s.nextID()
	}
	s.send(t, mqtt.AppendPublish(nil, s.v, p))
	switch m.QoS {
	case 1:
		return s.answer(t, mqtt.TypePuback, p.PacketID)
	case 2:
		if r := s.answer(t, mqtt.TypePubrec, p.PacketID); r >= 0x80 {
			return r
		}
		s.send(t, mqtt.AppendAck(nil, s.v, mqtt.Ack{Type: mqtt.TypePubrel, PacketID: p.PacketID}))
		return s.answer(t, mqtt.TypePubcomp, p.PacketID)
	}
	return mqtt.Success
}

func (s *speaker) answer(t testing.TB, want mqtt.PacketType, id uint16) mqtt.Reason {
	t.Helper()
	a, _, err := mqtt.ParseAck(s.next(t, want), s.v)
	if err != nil || a.PacketID != id {
		t.Fatalf("%s: %v of %d, %v; want that of %d", s.id, want, a.PacketID, err, id)
	}
	return a.Reason
}

// hears waits for a message and does what its QoS asks for.
func (s *speaker) hears(t testing.TB) rig.Message {
	t.Helper()
	p, _, err := mqtt.ParsePublish(s.next(t, mqtt.TypePublish), s.v)
	if err != nil {
		t.Fatalf("%s: %v", s.id, err)
	}
	switch p.QoS {
	case 1:
		s.send(t, mqtt.AppendAck(nil, s.v, mqtt.Ack{Type: mqtt.TypePuback, PacketID: p.PacketID}))
	case 2:
		s.send(t, mqtt.AppendAck(nil, s.v, mqtt.Ack{Type: mqtt.TypePubrec, PacketID: p.PacketID}))
		s.answer(t, mqtt.TypePubrel, p.PacketID)
		s.send(t, mqtt.AppendAck(nil, s.v, mqtt.Ack{Type: mqtt.TypePubcomp, PacketID: p.PacketID}))
	}
	return rig.Message{Topic: string(p.Topic), Payload: string(p.Payload), QoS: int(p.QoS), Retained: p.Retain}
}

// hearsUntil collects messages up to and without that on the topic.
func (s *speaker) hearsUntil(t testing.TB, topic string) (all []rig.Message) {
	t.Helper()
	for {
		m := s.hears(t)
		if m.Topic == topic {
			return all
		}
		all = append(all, m)
	}
}

// hearsTo collects payloads up to the one named, at QoS 2 with the answers of
// several messages under way at once.
func (s *speaker) hearsTo(t testing.TB, last string) (all []string) {
	t.Helper()
	held := map[uint16]bool{}
	for len(all) == 0 || all[len(all)-1] != last {
		p, err := s.packet()
		if err != nil {
			t.Fatalf("%s: %v after %q", s.id, err, all)
		}
		if mqtt.PacketType(p[0]>>4) == mqtt.TypePubrel {
			a, _, err := mqtt.ParseAck(p, s.v)
			if err != nil {
				t.Fatalf("%s: %v", s.id, err)
			}
			delete(held, a.PacketID)
			s.send(t, mqtt.AppendAck(nil, s.v, mqtt.Ack{Type: mqtt.TypePubcomp, PacketID: a.PacketID}))
			continue
		}
		m, _, err := mqtt.ParsePublish(p, s.v)
		if err != nil {
			t.Fatalf("%s: %v", s.id, err)
		}
		if m.QoS < 2 || !held[m.PacketID] {
			all = append(all, string(m.Payload))
		}
		switch m.QoS {
		case 1:
			s.send(t, mqtt.AppendAck(nil, s.v, mqtt.Ack{Type: mqtt.TypePuback, PacketID: m.PacketID}))
		case 2:
			held[m.PacketID] = true
			s.send(t, mqtt.AppendAck(nil, s.v, mqtt.Ack{Type: mqtt.TypePubrec, PacketID: m.PacketID}))
		}
	}
	return all
}

// stream is one line of a field case's file.
type stream struct {
	label string
	want  string
	bytes []byte
}

// fieldCase reads the streams of testdata/NAME.hex.
func fieldCase(t *testing.T, name string) (all []stream) {
	t.Helper()
	text := string(must(os.ReadFile(filepath.Join("testdata", name+".hex")))(t))
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		part := strings.Fields(line)
		if len(part) != 3 {
			t.Fatalf("%s: %q", name, line)
		}
		all = append(all, stream{part[0], part[1], must(hex.DecodeString(part[2]))(t)})
	}
	return all
}

// behind starts mqttlb before a broker: a plain listener and a TLS one. The
// broker's listener "proxy" is told who the clients are.
func behind(t *testing.T, b *rig.Broker, own pair) (l *lb, plain, encrypted string) {
	t.Helper()
	plain, encrypted = freeAddr(t), freeAddr(t)
	l = readyLB(t, fmt.Sprintf(`
listeners:
  - {name: plain, address: %q, pool: brokers}
  - {name: tls, address: %q, pool: brokers, tls: {mode: terminate, certificates: [{cert: %q, key: %q}]}}
pools:
  - {name: brokers, send_proxy: v2, health: {type: mqtt}, backends: [{name: broker, address: %q}]}
`, plain, encrypted, own.Cert, own.Key, b.Listener("proxy")))
	return l, plain, encrypted
}
