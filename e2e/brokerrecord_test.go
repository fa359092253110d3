package e2e

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// A session that subscribes without end is told when its record is full, beside
// the largest will that CONNECT can bring, and all that it was granted is there
// after a crash.
func TestASessionIsToldWhenItsRecordIsFull(t *testing.T) {
	for _, v := range []mqtt.Version{mqtt.V311, mqtt.V5} {
		t.Run(v.String(), func(t *testing.T) {
			b := startBroker(t, rig.BrokerOptions{Extra: "durability: 1s\n"})
			w := way{addr: b.Addr()}
			o := mqtt.ConnectOptions{Version: v, ClientID: "hoarder", Will: &mqtt.Will{Topic: "will", Payload: make([]byte, 65535)}}
			refusal := byte(0x80)
			if v == mqtt.V5 {
				o.Properties, refusal = kept, byte(mqtt.QuotaExceeded)
				for range 7 {
					o.Will.Properties = o.Will.Properties.AppendUser("k", strings.Repeat("v", 65535))
					o.Will.Properties = o.Will.Properties.AppendUser(strings.Repeat("k", 65535), "v")
				}
			}
			s, _ := w.speak(t, o)
			granted := 0
			for codes := []byte{1}; codes[len(codes)-1] == 1; {
				var more []string
				for i := range 50 {
					more = append(more, filterOf(granted+i))
				}
				codes = s.subscribes(t, more...)
				granted += bytes.Count(codes, []byte{1})
			}
			if want := 1 << 20 / 4000; granted < want-10 || granted > want+10 {
				t.Errorf("%d filters of 4,000 bytes were granted, want about %d", granted, want)
			}
			if code := s.subscribes(t, filterOf(granted))[0]; code != refusal {
				t.Errorf("one more is answered 0x%02x, want 0x%02x", code, refusal)
			}
			if code := s.subscribes(t, filterOf(0))[0]; code != 1 {
				t.Errorf("one that it has is answered 0x%02x", code)
			}
			s.Close()

			crash(t, b)
			restart(t, b)
			again, ack := w.speak(t, o)
			if !ack.SessionPresent {
				t.Fatal("the session is gone")
			}
			if got := brokerFigure(t, b, "broker_subscriptions"); int(got) != granted {
				t.Errorf("%v subscriptions after the crash, want %d", got, granted)
			}
			if code := again.subscribes(t, filterOf(granted))[0]; code != refusal {
				t.Errorf("one more after the crash is answered 0x%02x, want 0x%02x", code, refusal)
			}
		})
	}
}

func filterOf(n int) string { return fmt.Sprintf("%04d/%s", n, strings.Repeat("f", 3995)) }

// subscribes asks for QoS 1 and gives the answers.
func (s *speaker) subscribes(t *testing.T, filters ...string) []byte {
	t.Helper()
	m := mqtt.Subscribe{PacketID: s.nextID()}
	for _, f := range filters {
		m.Subscriptions = m.Subscriptions.Append(mqtt.Subscription{Filter: []byte(f), QoS: 1})
	}
	s.send(t, mqtt.AppendSubscribe(nil, s.v, m))
	a, _, err := mqtt.ParseSuback(s.next(t, mqtt.TypeSuback), s.v)
	if err != nil || len(a.Codes) != len(filters) {
		t.Fatalf("%s: SUBACK % x, %v", s.id, a.Codes, err)
	}
	return a.Codes
}
