package session

import (
	"testing"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

func publish(t *testing.T, c *Connection, qos byte, id uint16, want Receipt) {
	t.Helper()
	if r, err := c.Publish(qos, id); err != nil || r != want {
		t.Fatalf("PUBLISH %d: receipt %d, %v; want %d", id, r, err, want)
	}
}

func pubrel(t *testing.T, c *Connection, id uint16, want Release) {
	t.Helper()
	if r, err := c.Pubrel(id); err != nil || r != want {
		t.Fatalf("PUBREL %d: release %d, %v; want %d", id, r, err, want)
	}
}

func answers(t *testing.T, what string, got, want *Connection) {
	t.Helper()
	if got != want {
		t.Fatalf("%s is owed to %p, want %p", what, got, want)
	}
}

func TestAQoS2PublicationIsTakenOnce(t *testing.T) { // [MQTT-4.3.3-10]
	s, c := online(Limits{}, v5(60))
	publish(t, c, 2, 7, Fresh)
	publish(t, c, 2, 7, Wait)
	answers(t, "PUBCOMP before PUBREL", s.Forgotten(7), nil)
	answers(t, "PUBREC", s.Stored(7, mqtt.Success), c)
	answers(t, "a second PUBREC", s.Stored(7, mqtt.UnspecifiedError), nil)
	publish(t, c, 2, 7, Repeat)
	answers(t, "PUBCOMP before PUBREL", s.Forgotten(7), nil)
	pubrel(t, c, 7, Forget)
	pubrel(t, c, 7, Forgetting)
	publish(t, c, 2, 7, Repeat)
	answers(t, "PUBCOMP", s.Forgotten(7), c)
	pubrel(t, c, 7, Unknown) // 0x92
	publish(t, c, 2, 7, Fresh)
}

func TestQoS1AndQoS0AreNewEachTime(t *testing.T) {
	_, c := online(Limits{}, v5(60))
	publish(t, c, 0, 0, Fresh)
	publish(t, c, 1, 7, Fresh)
	publish(t, c, 1, 7, Fresh) // the same again, whatever its DUP says (5 §4.3.2)
	if c.Pending() != 2 {
		t.Errorf("%d pending", c.Pending())
	}
	for left := 1; left >= 0; left-- {
		if !c.Acked() || c.Pending() != left {
			t.Errorf("%d pending, want %d", c.Pending(), left)
		}
	}
}

func TestPubrelBeforePubrecIsAProtocolError(t *testing.T) {
	_, c := online(Limits{}, v5(60))
	publish(t, c, 2, 7, Fresh)
	_, err := c.Pubrel(7)
	closes(t, err, mqtt.ProtocolError)
}

func TestARefusedQoS2PublicationFreesItsIdentifier(t *testing.T) {
	s, c := online(Limits{ReceiveMaximum: 1}, v5(60))
	publish(t, c, 2, 7, Fresh)
	answers(t, "PUBREC 0x97", s.Stored(7, mqtt.QuotaExceeded), c)
	publish(t, c, 2, 7, Fresh)
	answers(t, "PUBREC", s.Stored(7, mqtt.NoMatchingSubscribers), c)
	publish(t, c, 2, 7, Repeat)
}

func TestAnswersGoToTheConnectionThatAsked(t *testing.T) {
	s, one := online(Limits{}, v5(60))
	publish(t, one, 1, 5, Fresh)
	publish(t, one, 2, 6, Fresh)
	publish(t, one, 2, 7, Fresh)
	publish(t, one, 2, 8, Fresh)
	s.Stored(8, mqtt.Success)
	pubrel(t, one, 8, Forget)
	two := reconnect(s, v5(60), t0)

	if one.Acked() {
		t.Error("PUBACK of another connection's identifier")
	}
	publish(t, two, 2, 6, Wait)
	answers(t, "PUBREC 6, asked again", s.Stored(6, mqtt.Success), two)
	answers(t, "PUBREC 7, not asked again", s.Stored(7, mqtt.Success), nil)
	publish(t, two, 2, 7, Repeat)
	pubrel(t, two, 8, Forgetting)
	answers(t, "PUBCOMP 8, asked again", s.Forgotten(8), two)
	pubrel(t, two, 6, Forget)
	two.Lost(t0)
	answers(t, "PUBCOMP 6, client away", s.Forgotten(6), nil)
	answers(t, "PUBCOMP 6, twice", s.Forgotten(6), nil)
	answers(t, "PUBREC 9, unheard of", s.Stored(9, mqtt.Success), nil)
	if got := s.Inbound(); len(got) != 1 || got[0] != 7 {
		t.Errorf("left: %v", got)
	}
}

func TestReceiveMaximumOfTheServer(t *testing.T) { // [MQTT-3.3.4-7]
	s, c := online(Limits{ReceiveMaximum: 3}, v5(60))
	over := func(qos byte, id uint16) {
		t.Helper()
		_, err := c.Publish(qos, id)
		closes(t, err, mqtt.ReceiveMaximumExceeded)
	}
	publish(t, c, 1, 1, Fresh)
	publish(t, c, 2, 2, Fresh)
	publish(t, c, 2, 3, Fresh)
	publish(t, c, 2, 3, Wait) // is counted already
	publish(t, c, 0, 0, Fresh)
	over(1, 4)
	over(2, 4)
	s.Stored(2, mqtt.Success) // PUBREC makes no room
	over(1, 4)
	pubrel(t, c, 2, Forget)
	over(1, 4)
	s.Forgotten(2) // PUBCOMP does
	publish(t, c, 1, 4, Fresh)
	over(1, 5)
	c.Acked() // PUBACK does
	publish(t, c, 1, 5, Fresh)
	over(2, 6)
	s.Stored(3, mqtt.UnspecifiedError) // a PUBREC that refuses does
	publish(t, c, 2, 6, Fresh)
	if got := s.Inbound(); len(got) != 1 || got[0] != 6 {
		t.Errorf("identifiers %v: what was over is among them, or not what was taken", got)
	}

	t.Run("starts anew with each connection", func(t *testing.T) {
		c = reconnect(s, v5(60), t0)
		publish(t, c, 1, 10, Fresh)
		publish(t, c, 1, 11, Fresh)
		publish(t, c, 2, 6, Wait)
		over(1, 12)
	})
	t.Run("does not exist in 3.x", func(t *testing.T) {
		_, c := online(Limits{ReceiveMaximum: 1}, v311(false))
		publish(t, c, 1, 1, Fresh)
		publish(t, c, 2, 2, Fresh)
		publish(t, c, 2, 3, Fresh)
		if c.Pending() != 3 {
			t.Errorf("%d pending", c.Pending())
		}
	})
}

func TestARestartForgetsNoIdentifierAndLosesNoMessage(t *testing.T) {
	s, _ := online(Limits{}, v5(60))
	s = throughRecord(t, s, nil, t0)
	s.Remember(9, 3, 9)
	if got := s.Inbound(); len(got) != 2 || got[0] != 3 || got[1] != 9 {
		t.Fatalf("%v", got)
	}
	c := s.Connect(v5(60), t0)
	publish(t, c, 2, 3, Redo) // it may have a record and not be in the log
	publish(t, c, 2, 3, Wait)
	answers(t, "PUBREC", s.Stored(3, mqtt.Success), c)
	publish(t, c, 2, 3, Repeat)
	pubrel(t, c, 9, Forget) // had its PUBREC, so it was stored
	answers(t, "PUBCOMP", s.Forgotten(9), c)
}

// Each side assigns its own identifiers; the same number means two things.
func TestTheIdentifiersOfTheTwoDirectionsAreApart(t *testing.T) {
	s, c := online(Limits{}, v5(60))
	give(t, s, 2, 1, 1)
	same(t, "out", sentBy(c, t0), []string{"PUBLISH 1 #1 qos2"})
	publish(t, c, 2, 1, Fresh)
	s.Stored(1, mqtt.Success)
	pubrel(t, c, 1, Forget)
	s.Forgotten(1)
	if s.InFlight() != 1 {
		t.Fatal("the client's exchange ended the server's")
	}
	publish(t, c, 2, 1, Fresh)
	c.Pubrec(1, mqtt.Success)
	c.Pubcomp(1, mqtt.Success)
	if s.InFlight() != 0 || len(s.Inbound()) != 1 {
		t.Fatal("the server's exchange ended the client's")
	}
}
