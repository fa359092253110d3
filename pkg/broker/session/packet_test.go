package session

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// encode writes a packet as the broker would.
func encode(p Packet, v mqtt.Version) []byte {
	return mqtt.AppendPublish(nil, v, mqtt.Publish{
		Dup: p.Dup, QoS: p.QoS, Retain: p.Retain, Topic: []byte(p.Topic()), PacketID: p.PacketID,
		Payload: p.Message.Payload, Properties: p.AppendProperties(nil),
	})
}

func TestSizeIsThatOfTheEncodedPacket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Packet{
			Type: mqtt.TypePublish, PacketID: 1,
			QoS:       byte(rapid.IntRange(0, 2).Draw(t, "qos")),
			HasExpiry: rapid.Bool().Draw(t, "expiry"),
			Alias:     uint16(rapid.IntRange(0, 2).Draw(t, "alias")),
			Message: &Message{
				Topic:      rapid.StringMatching(`[a-z]{1,200}`).Draw(t, "topic"),
				Payload:    make([]byte, rapid.IntRange(0, 20000).Draw(t, "payload")),
				Properties: mqtt.Properties(nil).AppendUser("k", rapid.StringMatching(`[a-z]{0,200}`).Draw(t, "user")),
			},
		}
		p.AliasKnown = p.Alias == 2
		for range rapid.IntRange(0, 4).Draw(t, "identifiers") {
			p.SubscriptionIDs = append(p.SubscriptionIDs, rapid.Uint32Range(1, maxSubscriptionID).Draw(t, "id"))
		}
		for _, v := range []mqtt.Version{mqtt.V311, mqtt.V5} {
			q := p
			if v != mqtt.V5 {
				q.Alias, q.AliasKnown = 0, false
			}
			b := encode(q, v)
			if got := q.Size(v); got != len(b) {
				t.Fatalf("%s: size %d of %d bytes", v, got, len(b))
			}
			m, n, err := mqtt.ParsePublish(b, v)
			if err != nil || n != len(b) {
				t.Fatalf("%s: %v", v, err)
			}
			if v == mqtt.V5 && (m.TopicAlias != q.Alias || m.HasMessageExpiry != q.HasExpiry || m.HasSubscriptionID != (len(q.SubscriptionIDs) > 0)) {
				t.Fatalf("%+v", m)
			}
		}
	})
}

// A packet of exactly the maximum is sent, one byte more is not, with and
// without an alias.
func TestMaximumPacketSizeIsExact(t *testing.T) {
	m := &Message{Topic: "a/rather/long/topic", Payload: make([]byte, 200)}
	bare := Packet{QoS: 1, Message: m}
	full := bare.Size(mqtt.V5)
	for _, tt := range []struct {
		max   int
		first bool // the first, with its topic, is sent
		alias bool // and has an alias already
	}{
		{full + aliasSize, true, true},
		{full + aliasSize - 1, true, false},
		{full, true, false},
		{full - 1, false, false},
	} {
		t.Run(fmt.Sprint(tt.max-full), func(t *testing.T) {
			s, c := online(Limits{TopicAliases: 9}, v5(60, maxPacket(uint32(tt.max)), aliases(9)))
			for seq := uint64(1); seq <= 2; seq++ {
				s.Queue(Delivery{Ref: Ref{0, seq}, Message: m, QoS: 1}, t0)
			}
			p, step := c.Next(t0)
			if (step == Send) != tt.first || tt.first && (p.Alias != 0) != tt.alias {
				t.Fatalf("first: step %d, alias %d", step, p.Alias)
			}
			if !tt.first {
				return
			}
			if got := len(encode(p, mqtt.V5)); got > tt.max {
				t.Errorf("first: %d bytes", got)
			}
			if p, step = c.Next(t0); step != Send || p.AliasKnown != tt.alias {
				t.Errorf("second: step %d, known %v", step, p.AliasKnown)
			}
		})
	}

	t.Run("an alias makes room", func(t *testing.T) {
		s, c := online(Limits{TopicAliases: 9}, v5(60, maxPacket(uint32(full)), aliases(9)))
		short := &Message{Topic: m.Topic, Payload: make([]byte, 190)}
		long := &Message{Topic: m.Topic, Payload: make([]byte, 210)}
		for i, m := range []*Message{long, short, long} {
			s.Queue(Delivery{Ref: Ref{0, uint64(i + 1)}, Message: m, QoS: 1}, t0)
		}
		got := 0
		for p, step := c.Next(t0); step == Send; p, step = c.Next(t0) {
			got += len(p.Message.Payload)
		}
		if got != 400 || s.TakeDrops() != (Drops{TooLarge: 1}) {
			t.Errorf("%d bytes of payload sent", got)
		}
	})
}
