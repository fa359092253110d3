package e2e

import (
	"fmt"
	"testing"

	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// Sessions and retained messages in number come back after a crash, each with
// what is its own. How long 100,000 of each take, `make bench-broker` tells.
func TestManySessionsAndRetainedMessagesAreThereAfterACrash(t *testing.T) {
	const count = 1000
	b := startBroker(t, rig.BrokerOptions{Extra: "durability: 1s\nlog: {level: warn}\n"})
	w := way{addr: b.Addr()}
	devices := ids(count)
	topic := func(id string) string { return "many/" + id + "/in" }
	version := func(id string) mqtt.Version { // half of them each
		if id[len(id)-1]%2 == 0 {
			return mqtt.V311
		}
		return mqtt.V5
	}
	come := func(id string) (*speaker, mqtt.Connack) {
		o := mqtt.ConnectOptions{Version: version(id), ClientID: id}
		if o.Version == mqtt.V5 {
			o.Properties = kept
		}
		return w.speak(t, o)
	}
	for _, id := range devices {
		s, ack := come(id)
		if ack.SessionPresent {
			t.Fatalf("%s: a session is there before its first time", id)
		}
		s.wants(t, 1, topic(id))
		s.send(t, mqtt.AppendDisconnect(nil, s.v, mqtt.Success))
		s.Close()
	}
	publisher := w.guest(t, "publisher")
	for _, id := range devices {
		publisher.says(t, rig.Message{Topic: "many/" + id + "/kept", Payload: id, QoS: 1, Retained: true})
		publisher.says(t, rig.Message{Topic: topic(id), Payload: "missed by " + id, QoS: 1})
	}

	crash(t, b)
	restart(t, b)
	publisher = w.guest(t, "publisher")
	for _, id := range devices {
		s, ack := come(id)
		if !ack.SessionPresent {
			t.Fatalf("%s: the session is gone", id)
		}
		publisher.says(t, rig.Message{Topic: topic(id), Payload: "for " + id, QoS: 1})
		for _, payload := range []string{"missed by " + id, "for " + id} {
			want := rig.Message{Topic: topic(id), Payload: payload, QoS: 1}
			if m := s.hears(t); m != want {
				t.Fatalf("%s received %+v, want %+v", id, m, want)
			}
		}
		s.Close()
	}
	late := w.guest(t, "late")
	late.wants(t, 1, "many/+/kept")
	left := map[string]bool{}
	for range devices {
		m := late.hears(t)
		if left[m.Payload] || !m.Retained || m.Topic != fmt.Sprintf("many/%s/kept", m.Payload) {
			t.Fatalf("retained %+v", m)
		}
		left[m.Payload] = true
	}
}
