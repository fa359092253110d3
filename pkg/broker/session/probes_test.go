package session

import (
	"fmt"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// These lost messages in other engines.

// A delivery is left unacknowledged; the client publishes with the same packet
// identifier, and reconnects.
func TestADeliveryOutlivesAPublicationWithItsPacketIdentifier(t *testing.T) {
	for qos := byte(1); qos <= 2; qos++ {
		for published := byte(1); published <= 2; published++ {
			t.Run(fmt.Sprintf("delivered with QoS %d, published with %d", qos, published), func(t *testing.T) {
				s, c := online(Limits{}, v311(false))
				give(t, s, qos, 1, 1)
				same(t, "delivery", sentBy(c, t0), publishes(qos, 1, 1, ""))
				publish(t, c, published, 1, Fresh)
				if published == 1 {
					c.Acked()
				} else {
					s.Stored(1, mqtt.Success)
					pubrel(t, c, 1, Forget)
					s.Forgotten(1)
				}
				c = reconnect(s, v311(false), t0)
				same(t, "after a reconnect", sentBy(c, t0), publishes(qos, 1, 1, "dup"))
				s = throughRecord(t, s, nil, t0)
				s.Attach(Want{Ref: Ref{0, 1}}, msg(1))
				same(t, "after a restart", sentBy(s.Connect(v311(false), t0), t0), publishes(qos, 1, 1, "dup"))
			})
		}
	}
}

func TestReceiveMaximum10With500Messages(t *testing.T) {
	s, c := online(Limits{}, v5(60, receiveMaximum(10)))
	give(t, s, 1, 1, 500)
	var unacknowledged []uint16
	for next := 1; next <= 500; {
		p, step := c.Next(t0)
		if step == Send {
			if string(p.Message.Payload) != fmt.Sprint(next) {
				t.Fatalf("message %s, want %d", p.Message.Payload, next)
			}
			next++
			if unacknowledged = append(unacknowledged, p.PacketID); len(unacknowledged) > 10 {
				t.Fatalf("%d unacknowledged", len(unacknowledged))
			}
			continue
		}
		if len(unacknowledged) != 10 {
			t.Fatalf("%d unacknowledged and no more sent", len(unacknowledged))
		}
		c.Puback(unacknowledged[0], mqtt.Success)
		unacknowledged = unacknowledged[1:]
	}
}

func Test20000MessagesQueuedOffline(t *testing.T) {
	for _, tt := range []struct{ restart, unload bool }{{false, false}, {true, false}, {false, true}} {
		s, c := online(Limits{Inflight: 100}, v5(60))
		c.Lost(t0)
		for seq := 1; seq <= 20000; seq++ {
			give(t, s, 1, seq, seq)
			if tt.unload {
				s.Unload()
			}
		}
		if tt.restart {
			s = throughRecord(t, s, []uint64{20000}, t0)
			give(t, s, 1, 1, 20000)
			s.CaughtUp()
		}
		c = s.Connect(v5(60), t0)
		for next := 1; next <= 20000; next++ {
			p, step := c.Next(t0)
			if step == Fetch {
				for _, w := range s.Missing(64) {
					s.Attach(w, msg(int(w.Ref.Seq)))
				}
				p, step = c.Next(t0)
			}
			if step != Send || string(p.Message.Payload) != fmt.Sprint(next) {
				t.Fatalf("message %d: step %d, %+v", next, step, p)
			}
			c.Puback(p.PacketID, mqtt.Success)
		}
		if cursor := s.Snapshot([]uint64{20000}).Cursors[0]; cursor != 20000 || s.InFlight() != 0 {
			t.Errorf("cursor %d, %d in flight", cursor, s.InFlight())
		}
	}
}

func Test20000MessagesOver220Takeovers(t *testing.T) {
	const messages, takeovers = 20000, 220
	s, c := online(Limits{}, v5(60, receiveMaximum(50)))
	got := make([]bool, messages+1)
	next, highest := 1, 0
	for turn := 0; turn <= takeovers; turn++ {
		for range messages / takeovers {
			if next <= messages {
				give(t, s, 1, next, next)
				next++
			}
			if p, step := c.Next(t0); step == Send {
				var seq int
				fmt.Sscan(string(p.Message.Payload), &seq)
				if !got[seq] && seq != highest+1 {
					t.Fatalf("message %d comes behind %d", seq, highest)
				}
				got[seq], highest = true, max(highest, seq)
				if seq%7 != 0 { // some answers are lost with the connection
					c.Puback(p.PacketID, mqtt.Success)
				}
			}
		}
		c.TakenOver(false, t0)
		if _, over := s.Due(t0); over {
			t.Fatal("the session is over")
		}
		c = s.Connect(v5(60, receiveMaximum(50)), t0)
	}
	for {
		p, step := c.Next(t0)
		if step != Send {
			break
		}
		var seq int
		fmt.Sscan(string(p.Message.Payload), &seq)
		got[seq] = true
		c.Puback(p.PacketID, mqtt.Success)
	}
	for seq := 1; seq < next; seq++ {
		if !got[seq] {
			t.Fatalf("message %d is lost", seq)
		}
	}
	if next <= messages {
		give(t, s, 1, next, messages)
	}
}
