package broker

import (
	"strconv"
	"sync"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// What other engines get wrong, as the issue names it.

func TestSamePacketIdentifierBothWaysAndReconnect(t *testing.T) {
	for _, v := range versions {
		for _, qos := range []byte{1, 2} {
			t.Run(v.String()+" QoS "+strconv.Itoa(int(qos)), func(t *testing.T) {
				places(t, func(t *testing.T, n [3]*node) {
					o := mqtt.ConnectOptions{Version: v, ClientID: "c"}
					if v == mqtt.V5 {
						o.Properties = expiring(60)
					}
					c, _ := n[0].connect(o)
					c.subscribe(qos, "in")
					p, _ := n[1].connect(mqtt.ConnectOptions{Version: v, ClientID: "p", CleanStart: true})
					p.sendPublish(1, 1, "in", "kept")
					p.ack(mqtt.TypePuback)
					m := c.publish() // and not acknowledged
					c.sendPublish(1, m.PacketID, "out", "x")
					if a := c.ack(mqtt.TypePuback); a.PacketID != m.PacketID {
						t.Errorf("PUBACK of %d", a.PacketID)
					}
					c.Close()
					c, _ = n[2].connect(o)
					again := c.publish()
					if !again.Dup || again.PacketID != m.PacketID || string(again.Payload) != "kept" {
						t.Errorf("got %+v after the reconnect", again)
					}
				})
			})
		}
	}
}

func TestReceiveMaximumOf10Gets500MessagesInOrder(t *testing.T) {
	places(t, func(t *testing.T, n [3]*node) {
		c, _ := n[0].connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "c", CleanStart: true,
			Properties: mqtt.Properties(nil).AppendUint(mqtt.PropReceiveMaximum, 10)})
		c.subscribe(1, "q")
		p, _ := n[1].connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "p", CleanStart: true})
		for i := range 500 {
			p.sendPublish(1, uint16(i+1), "q", strconv.Itoa(i))
		}
		for range 500 {
			p.ack(mqtt.TypePuback)
		}
		var open []uint16
		for i := range 500 {
			m := c.publish()
			if string(m.Payload) != strconv.Itoa(i) {
				t.Fatalf("message %d is %s", i, m.Payload)
			}
			if open = append(open, m.PacketID); len(open) == 10 {
				c.quiet() // the window is closed
				for _, id := range open {
					c.sendAck(mqtt.TypePuback, id)
				}
				open = nil
			}
		}
	})
}

// flood publishes messages 0 to count-1 with QoS 1, a window of them at a time.
func (d *device) flood(topic string, count int) {
	const window = 500
	for i := 0; i < count; i += window {
		var b []byte
		for j := i; j < min(i+window, count); j++ {
			b = mqtt.AppendPublish(b, d.v, mqtt.Publish{QoS: 1, PacketID: uint16(j%65535 + 1), Topic: []byte(topic), Payload: strconv.AppendInt(nil, int64(j), 10)})
		}
		d.send(b)
		for j := i; j < min(i+window, count); j++ {
			d.ack(mqtt.TypePuback)
		}
	}
}

func Test20000MessagesWaitForAnOfflineClientInOrder(t *testing.T) {
	places(t, func(t *testing.T, n [3]*node) {
		o := mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "c"}
		c, _ := n[0].connect(o)
		c.subscribe(1, "q")
		c.disconnect()
		p, _ := n[1].connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "p", CleanStart: true})
		const count = 20_000
		p.flood("q", count)
		c, _ = n[2].connect(o)
		for i := range count {
			m := c.publish()
			if string(m.Payload) != strconv.Itoa(i) {
				t.Fatalf("message %d is %s", i, m.Payload)
			}
			c.sendAck(mqtt.TypePuback, m.PacketID)
		}
		if d := n[2].b.Stats().Dropped; d != (Dropped{}) {
			t.Errorf("dropped: %+v", d)
		}
	})
}

func Test20000MessagesOver220TakeoversAreNotLost(t *testing.T) {
	places(t, func(t *testing.T, n [3]*node) {
		const count, takeovers = 20_000, 220
		o := mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "c"}
		c, _ := n[0].connect(o)
		c.subscribe(1, "q")
		p, _ := n[1].connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "p", CleanStart: true})
		var wg sync.WaitGroup
		wg.Go(func() { p.flood("q", count) })
		next := 0
		for took, quota := 0, 0; next < count; quota++ {
			if quota == count/takeovers && took < takeovers {
				took, quota = took+1, 0
				c, _ = n[took%3].connect(o)
			}
			m := c.publish()
			i, _ := strconv.Atoi(string(m.Payload))
			if i > next {
				t.Fatalf("message %d came instead of %d", i, next)
			}
			if i == next {
				next++
			}
			c.sendAck(mqtt.TypePuback, m.PacketID)
		}
		wg.Wait()
		if got := takeoversOf(n); got < takeovers*9/10 {
			t.Errorf("only %d takeovers", got)
		}
	})
}

// takeoversOf counts those of all nodes.
func takeoversOf(nodes [3]*node) (sum uint64) {
	seen := make(map[*node]bool)
	for _, n := range nodes {
		if !seen[n] {
			seen[n] = true
			sum += n.b.Stats().Takeovers
		}
	}
	return sum
}
