package e2e

import (
	"testing"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// The broker learns how a client went, and does with its will what the
// specification says (C022).
func TestTheBrokerPublishesAWillExactlyWhenAClientBreaksOff(t *testing.T) {
	broker := brokers(t, 1)[0]
	addr := freeAddr(t)
	readyLB(t, stickyConfig(addr, broker))
	watcher := way{addr: broker.Addr()}.join(t, "watcher")
	watcher.subscribe(t, "wills/#")

	for _, c := range []struct {
		name   string
		leaves func(d *device)
		will   bool
	}{
		{"RST", func(d *device) { d.reset() }, true},
		{"FIN without DISCONNECT", func(d *device) { d.socket.Close() }, true},
		{"DISCONNECT", func(d *device) { d.leave() }, false},
		{"DISCONNECT, and RST behind it", func(d *device) {
			d.Write(mqtt.AppendDisconnect(nil, mqtt.V311, mqtt.Success))
			d.reset()
		}, false},
	} {
		for _, v := range []mqtt.Version{mqtt.V311, mqtt.V5} {
			t.Run(c.name+", MQTT "+v.String(), func(t *testing.T) {
				from := broker.Log().Len()
				d, ack, err := way{addr: addr}.connect(t, mqtt.ConnectOptions{
					Version: v, ClientID: "mortal", CleanStart: true,
					Will: &mqtt.Will{Topic: "wills/" + t.Name(), Payload: []byte("gone")},
				})
				if err != nil || !ack.Accepted() {
					t.Fatalf("0x%02x, %v", ack.Code, err)
				}
				c.leaves(d)
				awaitLine(t, broker.Process, from, "Client mortal ") // disconnected, or closed its connection
				// Whatever has been published for it comes before this.
				d = way{addr: addr}.join(t, "marker")
				d.publish(t, "wills/marker", "")
				topic, _ := watcher.message(t)
				if will := topic == "wills/"+t.Name(); will != c.will {
					t.Errorf("a will was published: %t, want %t", will, c.will)
				}
				if topic != "wills/marker" {
					topic, _ = watcher.message(t)
				}
				if topic != "wills/marker" {
					t.Errorf("then %q was published, too", topic)
				}
				d.leave()
			})
		}
	}
}
