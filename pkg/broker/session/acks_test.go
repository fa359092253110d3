package session

import (
	"fmt"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// The states of an exchange towards the client: nothing with this identifier,
// QoS 1 sent, QoS 2 sent, QoS 2 released.
var exchanges = []string{"unknown", "qos1", "qos2", "released"}

func inExchange(t *testing.T, state string, connect *mqtt.Connect) (*Session, *Connection) {
	s, c := online(Limits{}, connect)
	switch state {
	case "qos1":
		give(t, s, 1, 1, 1)
	case "qos2", "released":
		give(t, s, 2, 1, 1)
	}
	sentBy(c, t0)
	if state == "released" {
		c.Pubrec(1, mqtt.Success)
	}
	s.Snapshot(nil)
	return s, c
}

func TestEveryAcknowledgementInEveryState(t *testing.T) {
	const refused = mqtt.UnspecifiedError
	type row struct {
		state, packet string
		reason        mqtt.Reason
		outcome       string // done, ignored, error, or what is sent
		urgency       Urgency
	}
	for _, tt := range []row{
		{"unknown", "PUBACK", 0, "ignored", Saved},
		{"qos1", "PUBACK", 0, "done", Soon},
		{"qos1", "PUBACK", mqtt.NoMatchingSubscribers, "done", Soon},
		{"qos1", "PUBACK", refused, "done", Soon}, // [MQTT-4.4.0-2]
		{"qos2", "PUBACK", 0, "error", Saved},
		{"released", "PUBACK", 0, "error", Saved},

		{"unknown", "PUBREC", 0, "PUBREL 0x92", Saved},
		{"unknown", "PUBREC", refused, "PUBREL 0x92", Saved},
		{"qos1", "PUBREC", 0, "error", Saved},
		{"qos2", "PUBREC", 0, "PUBREL 0x00", First}, // [MQTT-4.3.3-4]
		{"qos2", "PUBREC", mqtt.NoMatchingSubscribers, "PUBREL 0x00", First},
		{"qos2", "PUBREC", refused, "done", Soon}, // [MQTT-4.4.0-2]
		{"released", "PUBREC", 0, "PUBREL 0x00", Saved},
		{"released", "PUBREC", refused, "PUBREL 0x00", Saved},

		{"unknown", "PUBCOMP", 0, "ignored", Saved},
		{"qos1", "PUBCOMP", 0, "error", Saved},
		{"qos2", "PUBCOMP", 0, "error", Saved},
		{"released", "PUBCOMP", 0, "done", Soon},
		{"released", "PUBCOMP", mqtt.PacketIdentifierNotFound, "done", Soon},
	} {
		t.Run(fmt.Sprintf("%s %s 0x%02x", tt.state, tt.packet, byte(tt.reason)), func(t *testing.T) {
			s, c := inExchange(t, tt.state, v5(60))
			before := s.InFlight()
			var known, send bool
			var pubrel mqtt.Reason
			var err error
			switch tt.packet {
			case "PUBACK":
				known, err = c.Puback(1, tt.reason)
			case "PUBREC":
				pubrel, send, err = c.Pubrec(1, tt.reason)
			case "PUBCOMP":
				known, err = c.Pubcomp(1, tt.reason)
			}
			outcome := "ignored"
			switch {
			case err != nil:
				closes(t, err, mqtt.ProtocolError)
				outcome = "error"
			case send:
				outcome = fmt.Sprintf("PUBREL 0x%02x", byte(pubrel))
			case s.InFlight() < before:
				outcome = "done"
			}
			if outcome != tt.outcome || s.Checkpoint() != tt.urgency {
				t.Errorf("%s, urgency %d; want %s, %d", outcome, s.Checkpoint(), tt.outcome, tt.urgency)
			}
			if it := s.flight.find(1); it != nil && it.state == released && it.msg != nil {
				t.Error("a message is held that is not needed any more")
			}
			if tt.packet != "PUBREC" && known != (tt.state != "unknown") {
				t.Errorf("known %v", known)
			}
		})
	}
}

func TestPacketIdentifier0IsInNoUse(t *testing.T) {
	for _, state := range exchanges {
		_, c := inExchange(t, state, v5(60))
		if known, err := c.Puback(0, 0); known || err != nil {
			t.Error(state, known, err)
		}
	}
}

func TestNoPublishOnceItsPubrelWasGiven(t *testing.T) { // [MQTT-4.3.3-6]
	s, _ := inExchange(t, "released", v5(60))
	for range 3 {
		same(t, "after a reconnect", sentBy(reconnect(s, v5(60), t0), t0), []string{"PUBREL 1"})
	}
	s = throughRecord(t, s, nil, t0)
	same(t, "after a restart", sentBy(s.Connect(v5(60), t0), t0), []string{"PUBREL 1"})
}

// A client may answer on its new connection what it got on the old one, before
// the server comes to send it again.
func TestAnAnswerToTheLastConnectionsPublishCounts(t *testing.T) {
	s, c := online(Limits{}, v5(60))
	give(t, s, 1, 1, 1)
	give(t, s, 2, 2, 3)
	sentBy(c, t0)
	c = reconnect(s, v5(60, receiveMaximum(2)), t0)
	c.Puback(1, mqtt.Success)
	if reason, send, err := c.Pubrec(3, mqtt.Success); reason != 0 || !send || err != nil {
		t.Fatal(reason, send, err)
	}
	give(t, s, 1, 4, 4)
	same(t, "only what has no answer", sentBy(c, t0), []string{"PUBLISH 2 #2 qos2 dup"})
	c.Pubcomp(3, mqtt.Success)
	same(t, "then new", sentBy(c, t0), []string{"PUBLISH 4 #4 qos1"})
	c = reconnect(s, v5(60), t0)
	c.Pubrec(2, mqtt.QuotaExceeded)
	c.Puback(4, mqtt.Success)
	same(t, "nothing is left", sentBy(c, t0), nil)
}

func TestASessionThatEndsWithItsConnectionNeedsNoRecords(t *testing.T) {
	for _, connect := range []*mqtt.Connect{v5(0), v311(true)} {
		s, c := online(Limits{}, connect)
		s.Snapshot(nil) // CONNACK: an owner and maybe a will are in it
		s.Subscribe(Subscription{Filter: "a"}, nil)
		give(t, s, 2, 1, 1)
		give(t, s, 1, 2, 2)
		sentBy(c, t0)
		c.Pubrec(1, 0)
		c.Pubcomp(1, 0)
		c.Puback(2, 0)
		s.Queue(Delivery{Message: msg(9), QoS: 1}, t0)
		s.Unsubscribe("a")
		if s.Checkpoint() != Saved || s.InFlight() != 0 {
			t.Errorf("%s: urgency %d", connect.Version, s.Checkpoint())
		}
	}
}
