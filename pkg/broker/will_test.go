package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

func will(delay uint32) *mqtt.Will {
	w := &mqtt.Will{Topic: "lwt/w", Payload: []byte("old")}
	if delay > 0 {
		w.Properties = w.Properties.AppendUint(mqtt.PropWillDelayInterval, delay)
	}
	return w
}

// C022: the will of a connection that is taken over, on one node and across nodes.
func TestWillOnTakeover(t *testing.T) {
	v5 := func(expiry, delay uint32) mqtt.ConnectOptions {
		return mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "w", Properties: expiring(expiry), Will: will(delay)}
	}
	holders := []struct {
		name      string
		o         mqtt.ConnectOptions
		kept      bool // the session outlives its connection
		published [2]bool
	}{
		{"3.1.1", mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "w", Will: will(0)}, true, [2]bool{true, true}},
		{"expiry 60, no delay", v5(60, 0), true, [2]bool{true, true}},
		{"expiry 0, delay 5", v5(0, 5), false, [2]bool{true, true}},
		{"expiry 60, delay 5", v5(60, 5), true, [2]bool{false, true}},
	}
	for _, h := range holders {
		for clean, name := range []string{"Clean Start 0", "Clean Start 1"} {
			t.Run(h.name+", "+name, func(t *testing.T) {
				places(t, func(t *testing.T, n [3]*node) {
					watcher, _ := n[0].connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "watcher", CleanStart: true})
					watcher.subscribe(1, "lwt/w", "end")
					old, _ := n[1].connect(h.o)
					fresh, ack := n[2].connect(mqtt.ConnectOptions{Version: h.o.Version, ClientID: "w", CleanStart: clean == 1})
					if want := h.kept && clean == 0; ack.SessionPresent != want {
						t.Errorf("session present %v", ack.SessionPresent)
					}
					if told := old.gone(); h.o.Version == mqtt.V5 && told != mqtt.SessionTakenOver {
						t.Errorf("the old connection was told %s", told)
					}
					if h.published[clean] {
						if m := watcher.publish(); string(m.Payload) != "old" {
							t.Errorf("got %s", m.Payload)
						}
					}
					fresh.sendPublish(0, 0, "end", "")
					if m := watcher.publish(); string(m.Topic) != "end" {
						t.Errorf("got %s: a will that is not due, or twice", m.Topic)
					}
				})
			})
		}
	}
}

func TestWillComesWhenItsClientIsLost(t *testing.T) {
	malformed := []byte{byte(mqtt.TypePublish) << 4, 0}
	tests := []struct {
		name string
		end  func(*device)
		want bool
	}{
		{"FIN", func(d *device) { d.Close() }, true},
		{"malformed packet", func(d *device) { d.send(malformed) }, true},
		{"DISCONNECT with will", func(d *device) { d.send(mqtt.AppendDisconnect(nil, mqtt.V5, mqtt.DisconnectWithWillMessage)) }, true},
		{"DISCONNECT", func(d *device) { d.disconnect() }, false},
	}
	for _, test := range tests {
		for _, qos := range []byte{0, 1, 2} {
			t.Run(fmt.Sprintf("%s, QoS %d", test.name, qos), func(t *testing.T) {
				n := newNode(t)
				watcher, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "watcher", CleanStart: true})
				watcher.subscribe(2, "lwt/w", "end")
				w := will(0)
				w.QoS = qos
				d, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "w", CleanStart: true, Will: w})
				test.end(d)
				if test.want {
					if m := watcher.publish(); string(m.Payload) != "old" || m.QoS != qos {
						t.Errorf("got %s with QoS %d", m.Payload, m.QoS)
					}
					return
				}
				eventually(t, "the client is gone", func() bool { return n.b.Stats().Clients == 1 })
				p, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "p", CleanStart: true})
				p.sendPublish(0, 0, "end", "")
				if m := watcher.publish(); string(m.Topic) != "end" {
					t.Errorf("got %s", m.Topic)
				}
			})
		}
	}
}

func TestWillDelayAndSessionExpiryRunOverARestart(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprintf("crash %v", crash), func(t *testing.T) {
			n := newNode(t)
			watcher := mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "watcher"}
			w, _ := n.connect(watcher)
			w.subscribe(1, "lwt/w")
			w.disconnect()
			lasting := will(1)
			lasting.QoS = 1
			d, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "w", Properties: expiring(2), Will: lasting})
			d.Close()
			eventually(t, "the record says that the client is away", func() bool {
				cl := n.b.lookup("w")
				cl.mu.Lock()
				defer cl.mu.Unlock()
				return cl.link == nil && cl.ses.Checkpoint() == 0 && !cl.record.writing
			})
			begun := time.Now()
			if crash {
				n.crash()
			} else {
				n.stop()
			}
			n.start()
			w, _ = n.connect(watcher)
			if m := w.publish(); string(m.Payload) != "old" || time.Since(begun) < 500*time.Millisecond {
				t.Errorf("got %s after %v", m.Payload, time.Since(begun))
			}
			eventually(t, "the session ends", func() bool { return n.records(cluster.Sessions) == 1 && n.b.lookup("w") == nil })
		})
	}
}

func TestShutdownKeepsSessionsAndPublishesNoWill(t *testing.T) {
	n := newNode(t)
	watcher := mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "watcher"}
	w, _ := n.connect(watcher)
	w.subscribe(1, "lwt/w")
	d, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "w", Properties: expiring(60), Will: will(0)})
	d.subscribe(1, "x")
	n.stop()
	if told := d.gone(); told != mqtt.ServerShuttingDown {
		t.Errorf("told %s", told)
	}
	if _, last, _ := n.store.Bounds(t.Context(), 0); last != 1<<10-1 {
		t.Errorf("something was published: the log ends at %d", last)
	}
	n.start()
	_, ack := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "w", Properties: expiring(60)})
	if !ack.SessionPresent {
		t.Error("the session is gone")
	}
}

// A will of which the store says at first that it can't take it must not vanish:
// its record is gone already.
func TestAWillThatTheStoreDidNotTakeIsPublishedOnce(t *testing.T) {
	n := newNode(t)
	s, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "s", CleanStart: true})
	s.subscribe(1, "lwt")
	w := will(0)
	w.Topic, w.QoS = "lwt", 1
	c, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "c", Will: w})
	n.store.Fail(cluster.Appends, cluster.ErrFull)
	c.Close()
	eventually(t, "the session has ended", func() bool { is, _ := n.has("c"); return !is })
	n.store.Fail(cluster.Appends, nil)
	s.sendAck(mqtt.TypePuback, s.publish().PacketID)
	s.quiet()
}
