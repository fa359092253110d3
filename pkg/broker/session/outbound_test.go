package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

func TestReceiveMaximumHoldsUpQoS1And2Only(t *testing.T) { // [MQTT-3.3.4-9]
	for _, tt := range []struct {
		name    string
		limits  Limits
		connect *mqtt.Connect
		want    int
	}{
		{"the client's Receive Maximum", Limits{}, v5(60, receiveMaximum(3)), 3},
		{"the server's own bound is lower", Limits{Inflight: 2}, v5(60, receiveMaximum(3)), 2},
		{"the server's own bound is higher", Limits{Inflight: 9}, v5(60, receiveMaximum(3)), 3},
		{"3.x has none of its own", Limits{Inflight: 4}, v311(false), 4},
		{"none at all", Limits{}, v5(60), 5},
	} {
		for qos := byte(1); qos <= 2; qos++ {
			t.Run(fmt.Sprintf("%s, QoS %d", tt.name, qos), func(t *testing.T) {
				s, c := online(tt.limits, tt.connect)
				give(t, s, qos, 1, 5)
				s.Queue(Delivery{Message: msg(99)}, t0)
				got := sentBy(c, t0)
				same(t, "sent", got, append(publishes(qos, 1, tt.want, ""), "PUBLISH 0 #99 qos0"))
			})
		}
	}
}

func TestEachEndOfAnExchangeMakesRoomForOneMore(t *testing.T) {
	s, c := online(Limits{}, v5(60, receiveMaximum(1)))
	give(t, s, 1, 1, 1)
	give(t, s, 2, 2, 3)
	give(t, s, 1, 4, 4)
	same(t, "first", sentBy(c, t0), []string{"PUBLISH 1 #1 qos1"})
	c.Puback(1, mqtt.Success)
	same(t, "after PUBACK", sentBy(c, t0), []string{"PUBLISH 2 #2 qos2"})
	c.Pubrec(2, mqtt.Success)
	same(t, "after PUBREC", sentBy(c, t0), nil)
	c.Pubcomp(2, mqtt.Success)
	same(t, "after PUBCOMP", sentBy(c, t0), []string{"PUBLISH 3 #3 qos2"})
	c.Pubrec(3, mqtt.QuotaExceeded)
	same(t, "after a PUBREC that refuses", sentBy(c, t0), []string{"PUBLISH 4 #4 qos1"})
}

func TestOrderIsKeptBetweenQoSWhereNothingHoldsItUp(t *testing.T) {
	s, c := online(Limits{}, v5(60))
	give(t, s, 1, 1, 1)
	s.Queue(Delivery{Message: msg(2)}, t0)
	give(t, s, 2, 3, 3)
	s.Queue(Delivery{Message: msg(4)}, t0)
	same(t, "sent", sentBy(c, t0), []string{
		"PUBLISH 1 #1 qos1", "PUBLISH 0 #2 qos0", "PUBLISH 2 #3 qos2", "PUBLISH 0 #4 qos0",
	})
}

func TestPacketIdentifiersGoThroughAllBeforeOneComesAgain(t *testing.T) { // [MQTT-2.2.1-4]
	s, c := online(Limits{}, v5(60))
	next := func(seq int) uint16 {
		give(t, s, 1, seq, seq)
		p, step := c.Next(t0)
		if step != Send {
			t.Fatalf("message %d: step %d", seq, step)
		}
		return p.PacketID
	}
	held := next(1) // stays unacknowledged
	want := held
	for seq := 2; seq <= 2*65535; seq++ {
		if want++; want == 0 {
			want = 1
		}
		if want == held {
			want++
		}
		id := next(seq)
		if id != want {
			t.Fatalf("message %d has packet identifier %d, want %d", seq, id, want)
		}
		if known, err := c.Puback(id, mqtt.Success); !known || err != nil {
			t.Fatal(known, err)
		}
	}
}

func TestNothingIsSentWhenAllPacketIdentifiersAreInUse(t *testing.T) {
	s, c := online(Limits{}, v5(60))
	give(t, s, 1, 1, 65536)
	if got := len(sentBy(c, t0)); got != 65535 {
		t.Fatalf("%d sent", got)
	}
	c.Puback(777, mqtt.Success)
	same(t, "with one free", sentBy(c, t0), []string{"PUBLISH 777 #65536 qos1"})
}

func TestAReconnectSendsAgainInTheOriginalOrderBeforeAnythingNew(t *testing.T) { // [MQTT-4.4.0-1], [MQTT-4.6.0-1]
	s, c := online(Limits{}, v5(60))
	give(t, s, 2, 1, 4)
	give(t, s, 1, 5, 6)
	sentBy(c, t0)
	c.Pubrec(3, mqtt.Success)
	c.Pubrec(2, mqtt.Success)
	c.Puback(5, mqtt.Success)
	c.Lost(t0)
	give(t, s, 1, 7, 7)

	want := []string{
		"PUBREL 3", "PUBREL 2", // in the order of the PUBRECs [MQTT-4.6.0-4]
		"PUBLISH 1 #1 qos2 dup", "PUBLISH 4 #4 qos2 dup", "PUBLISH 6 #6 qos1 dup",
		"PUBLISH 7 #7 qos1",
	}
	c = s.Connect(v5(60), t0)
	same(t, "second connection", sentBy(c, t0), want)
	want[5] += " dup"
	c = reconnect(s, v311(false), t0)
	same(t, "third connection", sentBy(c, t0), want)

	t.Run("and the same after a restart", func(t *testing.T) {
		s := throughRecord(t, s, nil, t0)
		for _, w := range s.Missing(100) {
			s.Attach(w, msg(int(w.Ref.Seq)))
		}
		same(t, "sent", sentBy(s.Connect(v5(60), t0), t0), want)
	})
}

func TestASmallerReceiveMaximumAfterAReconnectHoldsForWhatIsSentAgain(t *testing.T) {
	s, c := online(Limits{}, v5(60))
	give(t, s, 1, 1, 5)
	sentBy(c, t0)
	give(t, s, 1, 6, 6)
	c = reconnect(s, v5(60, receiveMaximum(2)), t0)
	s.Queue(Delivery{Message: msg(99)}, t0)
	same(t, "at first", sentBy(c, t0), append(publishes(1, 1, 2, "dup"), "PUBLISH 0 #99 qos0"))
	c.Puback(2, mqtt.Success)
	same(t, "after one PUBACK", sentBy(c, t0), publishes(1, 3, 3, "dup"))
	c.Puback(1, mqtt.Success)
	c.Puback(3, mqtt.Success)
	same(t, "after three", sentBy(c, t0), publishes(1, 4, 5, "dup"))
	c.Puback(4, mqtt.Success)
	same(t, "new ones come last", sentBy(c, t0), publishes(1, 6, 6, ""))
}

func TestPubrelIsNotHeldUpByReceiveMaximum(t *testing.T) { // [MQTT-3.3.4-10]
	s, c := online(Limits{}, v5(60))
	give(t, s, 2, 1, 4)
	sentBy(c, t0)
	for id := uint16(1); id <= 3; id++ {
		c.Pubrec(id, mqtt.Success)
	}
	c = reconnect(s, v5(60, receiveMaximum(1)), t0)
	same(t, "sent", sentBy(c, t0), []string{"PUBREL 1", "PUBREL 2", "PUBREL 3"})
	c.Pubcomp(1, mqtt.Success)
	c.Pubcomp(2, mqtt.Success)
	same(t, "one is still out", sentBy(c, t0), nil)
	c.Pubcomp(3, mqtt.Success)
	same(t, "room", sentBy(c, t0), []string{"PUBLISH 4 #4 qos2 dup"})
}

func TestNothingIsSentAgainOnTheSameConnection(t *testing.T) { // [MQTT-4.4.0-1]
	s, c := online(Limits{}, v5(60))
	give(t, s, 1, 1, 3)
	same(t, "first", sentBy(c, t0), publishes(1, 1, 3, ""))
	same(t, "later", sentBy(c, after(time.Hour)), nil)
}

func TestAnOlderConnectionHasNoEffect(t *testing.T) {
	s, old := online(Limits{}, v5(60))
	give(t, s, 1, 1, 1)
	give(t, s, 2, 2, 2)
	sentBy(old, t0)
	now := reconnect(s, v5(60), t0)
	if known, err := old.Puback(1, mqtt.Success); known || err != nil {
		t.Error("PUBACK", known, err)
	}
	if _, send, err := old.Pubrec(2, mqtt.Success); send || err != nil {
		t.Error("PUBREC", send, err)
	}
	same(t, "old", sentBy(old, t0), nil)
	for qos := byte(0); qos <= 2; qos++ {
		publish(t, old, qos, 9, Wait)
	}
	pubrel(t, old, 9, Forgetting)
	if len(s.Inbound()) != 0 {
		t.Error("PUBLISH")
	}
	old.Lost(t0)
	old.TakenOver(true, t0)
	if err := old.Disconnect(mqtt.Disconnect{}, t0); err != nil || s.Connection() != now || old.Current() {
		t.Error("the old connection ended the new one")
	}
	same(t, "new", sentBy(now, t0), []string{"PUBLISH 1 #1 qos1 dup", "PUBLISH 2 #2 qos2 dup"})
}

func TestExpiredMessagesAreNotSentAndTheRestSayWhatIsLeft(t *testing.T) { // [MQTT-3.3.2-5], [MQTT-3.3.2-6]
	at := func(seq int, left time.Duration) *Message {
		m := msg(seq)
		m.Expires = after(left)
		return m
	}
	for qos := byte(0); qos <= 2; qos++ {
		s, c := online(Limits{}, v5(60))
		s.Snapshot(nil)
		for i, left := range []time.Duration{5 * time.Second, 30 * time.Second, 4 * time.Second, 6 * time.Second} {
			s.Queue(Delivery{Ref: Ref{0, uint64(i + 1)}, Message: at(i+1, left), QoS: qos}, t0)
		}
		now := after(5 * time.Second)
		var got []string
		for {
			p, step := c.Next(now)
			if step != Send {
				break
			}
			got = append(got, fmt.Sprintf("#%s %v %d", p.Message.Payload, p.HasExpiry, p.Expiry))
		}
		same(t, fmt.Sprintf("QoS %d", qos), got, []string{"#2 true 25", "#4 true 1"})
		if qos == 0 && s.Checkpoint() != Saved {
			t.Error("QoS 0 has to be saved")
		}
		if d := s.TakeDrops(); d != (Drops{Expired: 2}) {
			t.Errorf("drops %+v", d)
		}
	}
}

func TestADeliveryThatHasBegunIsFinishedThoughTheMessageExpires(t *testing.T) { // [MQTT-4.3.3-7]
	for qos := byte(1); qos <= 2; qos++ {
		s, c := online(Limits{}, v5(600))
		m := msg(1)
		m.Expires = after(time.Second)
		s.Queue(Delivery{Ref: Ref{0, 1}, Message: m, QoS: qos}, t0)
		sentBy(c, t0)
		c = reconnect(s, v5(600), after(time.Minute))
		p, step := c.Next(after(time.Minute))
		if step != Send || !p.Dup || !p.HasExpiry || p.Expiry != 0 {
			t.Errorf("QoS %d: step %d, %+v", qos, step, p)
		}
	}
}

func TestV3HasNoPropertiesOfADelivery(t *testing.T) {
	s, c := online(Limits{TopicAliases: 5}, v311(false))
	m := msg(1)
	m.Expires = after(time.Minute)
	s.Queue(Delivery{Message: m, QoS: 1, SubscriptionIDs: []uint32{7}}, t0)
	p, _ := c.Next(t0)
	if p.HasExpiry || p.SubscriptionIDs != nil || p.Alias != 0 || p.Topic() != "t" {
		t.Errorf("%+v", p)
	}
}

func TestTooLargeForTheClientCountsAsDelivered(t *testing.T) { // [MQTT-3.1.2-24], [MQTT-3.1.2-25]
	big := func(seq int) *Message {
		return &Message{Topic: "topic", Payload: make([]byte, 100), QoS: 2}
	}
	for qos := byte(0); qos <= 2; qos++ {
		s, c := online(Limits{}, v5(60, maxPacket(100)))
		s.Queue(Delivery{Ref: Ref{0, 1}, Message: big(1), QoS: qos}, t0)
		s.Queue(Delivery{Ref: Ref{0, 2}, Message: msg(2), QoS: qos}, t0)
		got := sentBy(c, t0)
		if len(got) != 1 || s.TakeDrops() != (Drops{TooLarge: 1}) {
			t.Errorf("QoS %d: %q", qos, got)
		}
		if cursors := s.Snapshot([]uint64{2}).Cursors; cursors[0] != 2 {
			t.Errorf("QoS %d: cursor %d", qos, cursors[0])
		}
	}

	t.Run("and moves the cursor", func(t *testing.T) {
		s, c := online(Limits{}, v5(60, maxPacket(100)))
		s.Snapshot(nil)
		s.Queue(Delivery{Ref: Ref{0, 1}, Message: big(1), QoS: 1}, t0)
		if sentBy(c, t0); s.Checkpoint() != Soon {
			t.Error("which is not to be saved")
		}
	})

	t.Run("which a reconnect may bring about", func(t *testing.T) {
		s, c := online(Limits{}, v5(60))
		for qos := byte(1); qos <= 2; qos++ {
			s.Queue(Delivery{Ref: Ref{0, uint64(qos)}, Message: big(int(qos)), QoS: qos}, t0)
		}
		sentBy(c, t0)
		c = reconnect(s, v5(60, maxPacket(100)), t0)
		s.Snapshot(nil)
		// The client may hold identifier 2, which must not come to mean another
		// message.
		same(t, "sent", sentBy(c, t0), []string{"PUBREL 2"})
		if s.Checkpoint() != First || s.InFlight() != 1 {
			t.Error(s.Checkpoint(), s.InFlight())
		}
	})
}
