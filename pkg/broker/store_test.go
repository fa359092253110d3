package broker

import (
	"strings"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// silent says that nothing comes while the store has not done its part, by the
// clock: there is nothing else to wait for.
func (d *device) silent() {
	d.t.Helper()
	_ = d.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	if t, p := d.any(); t != 0 {
		d.t.Errorf("%s % x came too early", t, p)
	}
	_ = d.SetReadDeadline(time.Now().Add(patience))
}

// What is acknowledged when, for a session that outlives its connection.
func TestAcknowledgementsWaitForTheStore(t *testing.T) {
	tests := []struct {
		name string
		op   cluster.Op
		does func(*device)
		want mqtt.PacketType
	}{
		{"PUBACK for the append", cluster.Appends, func(d *device) { d.sendPublish(1, 1, "t", "") }, mqtt.TypePuback},
		{"PUBREC for the record", cluster.RecordWrites, func(d *device) { d.sendPublish(2, 1, "t", "") }, mqtt.TypePubrec},
		{"PUBREC for the append", cluster.Appends, func(d *device) { d.sendPublish(2, 1, "t", "") }, mqtt.TypePubrec},
		{"PUBACK of a retained one for that", cluster.RetainedWrites, func(d *device) {
			d.send(mqtt.AppendPublish(nil, d.v, mqtt.Publish{QoS: 1, PacketID: 1, Retain: true, Topic: []byte("t"), Payload: []byte("r")}))
		}, mqtt.TypePuback},
		{"SUBACK for the record", cluster.RecordWrites, func(d *device) {
			d.send(mqtt.AppendSubscribe(nil, d.v, mqtt.Subscribe{PacketID: 1, Subscriptions: mqtt.Subscriptions(nil).Append(mqtt.Subscription{Filter: []byte("s")})}))
		}, mqtt.TypeSuback},
		{"UNSUBACK for the record", cluster.RecordWrites, func(d *device) {
			d.send(mqtt.AppendUnsubscribe(nil, d.v, mqtt.Unsubscribe{PacketID: 1, Filters: mqtt.Filters(nil).Append([]byte("own"))}))
		}, mqtt.TypeUnsuback},
		{"outbound QoS 2 for its identifier", cluster.RecordWrites, func(d *device) { d.sendPublish(1, 1, "own", "") }, mqtt.TypePublish},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			// No checkpoint may come in between and take the write over.
			for _, checkpoint := range []time.Duration{time.Hour, 2 * time.Millisecond} {
				n := newNode(t, func(o *Options) { o.Checkpoint = checkpoint })
				d, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "d"})
				d.subscribe(2, "own")
				release := n.store.Hold(test.op)
				if test.want == mqtt.TypePublish { // from someone else, so that only the message comes
					p, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "p", CleanStart: true})
					p.send(mqtt.AppendPublish(nil, p.v, mqtt.Publish{QoS: 2, PacketID: 1, Topic: []byte("own")}))
					p.ack(mqtt.TypePubrec)
				} else {
					test.does(d)
				}
				d.silent()
				release()
				d.next(test.want)
				n.stop()
			}
		})
	}
	t.Run("CONNACK for the record", func(t *testing.T) {
		n := newNode(t)
		release := n.store.Hold(cluster.RecordWrites)
		d := n.dial(mqtt.V311)
		d.send(mqtt.AppendConnect(nil, mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "d"}))
		d.silent()
		release()
		d.next(mqtt.TypeConnack)
	})
	t.Run("PUBREL for the record", func(t *testing.T) {
		n := newNode(t)
		d, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "d"})
		d.subscribe(2, "own")
		p, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "p", CleanStart: true})
		p.sendPublish(2, 1, "own", "")
		m := d.publish()
		release := n.store.Hold(cluster.RecordWrites)
		d.sendAck(mqtt.TypePubrec, m.PacketID)
		d.silent()
		release()
		d.ack(mqtt.TypePubrel)
	})
	t.Run("PUBCOMP for the record", func(t *testing.T) {
		n := newNode(t)
		d, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "d"})
		d.sendPublish(2, 1, "t", "")
		d.ack(mqtt.TypePubrec)
		release := n.store.Hold(cluster.RecordWrites)
		d.sendAck(mqtt.TypePubrel, 1)
		d.silent()
		release()
		d.ack(mqtt.TypePubcomp)
	})
}

func TestCleanSessionHasNoRecord(t *testing.T) {
	n := newNode(t)
	d, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "d"})
	d.subscribe(2, "own")
	d.sendPublish(2, 5, "own", "x")
	d.any()
	d.any()
	if got := n.records(cluster.Sessions) + n.records(cluster.Inbound2); got != 0 {
		t.Errorf("%d records", got)
	}
	d.Close()
	eventually(t, "the session is gone", func() bool { s := n.b.Stats(); return s.Sessions == 0 && s.Subscriptions == 0 })
	if got := n.b.lookup("d"); got != nil {
		t.Error("the client is still there")
	}
}

func TestAnEndedSessionLeavesNothing(t *testing.T) {
	tests := []struct {
		name string
		end  func(n *node, d *device)
	}{
		{"Clean Session 1 at the next CONNECT", func(n *node, d *device) {
			d.Close()
			n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "d", CleanStart: true})
		}},
		{"takeover with Clean Start 1", func(n *node, d *device) {
			n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "d", CleanStart: true})
		}},
		{"expiry 0 at DISCONNECT", func(n *node, d *device) {
			d.send(mqtt.AppendDisconnectPacket(nil, mqtt.V5, mqtt.Disconnect{Properties: expiring(0)}))
		}},
		{"expiry", func(n *node, d *device) {
			d.send(mqtt.AppendDisconnectPacket(nil, mqtt.V5, mqtt.Disconnect{Properties: expiring(1)}))
		}},
		{"expiry over a restart", func(n *node, d *device) {
			d.send(mqtt.AppendDisconnectPacket(nil, mqtt.V5, mqtt.Disconnect{Properties: expiring(1)}))
			d.gone()
			eventually(t, "the client is away", func() bool { return n.b.Stats().Clients == 0 })
			n.stop()
			n.start()
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := newNode(t)
			d, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "d", Properties: expiring(100)})
			d.subscribe(1, "own")
			d.sendPublish(2, 5, "x", "")
			d.ack(mqtt.TypePubrec) // and no PUBREL
			if s, q := n.records(cluster.Sessions), n.records(cluster.Inbound2); s != 1 || q != 1 {
				t.Fatalf("%d session records, %d of QoS 2", s, q)
			}
			test.end(n, d)
			eventually(t, "all records are gone", func() bool {
				return n.records(cluster.Sessions) == 0 && n.records(cluster.Inbound2) == 0 && n.b.Stats().Subscriptions == 0
			})
		})
	}
}

// A session that begins anew must not take its identifiers' last publications
// for those of the session before.
func TestANewSessionPublishesWithTheIdentifiersOfTheOld(t *testing.T) {
	n := newNode(t)
	w, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "w"})
	w.subscribe(1, "t")
	o := mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "d"}
	for _, payload := range []string{"one", "two"} {
		clean := o
		clean.CleanStart = true
		c, _ := n.connect(clean)
		c.disconnect()
		d, _ := n.connect(o)
		d.sendPublish(2, 5, "t", payload)
		d.ack(mqtt.TypePubrec)
		m := w.publish()
		if string(m.Payload) != payload {
			t.Errorf("got %s, want %s", m.Payload, payload)
		}
		w.sendAck(mqtt.TypePuback, m.PacketID)
	}
}

func TestInboundQoS2IsTakenOnceOverARestart(t *testing.T) {
	for _, when := range []string{"before PUBREC", "after PUBREC", "after PUBREL"} {
		t.Run(when, func(t *testing.T) {
			n := newNode(t)
			o := mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "w"}
			w, _ := n.connect(o)
			w.subscribe(2, "t")
			w.disconnect()
			d, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "d"})
			var release func()
			if when == "before PUBREC" {
				release = n.store.HoldAcks(cluster.Appends)
			}
			d.sendPublish(2, 5, "t", "x")
			if release != nil {
				eventually(t, "it is stored", func() bool { _, last, _ := n.store.Bounds(t.Context(), 0); return last > 1<<10 })
			} else {
				d.ack(mqtt.TypePubrec)
			}
			if when == "after PUBREL" {
				release = n.store.HoldAcks(cluster.RecordWrites)
				d.sendAck(mqtt.TypePubrel, 5)
				eventually(t, "its record is gone", func() bool { return n.records(cluster.Inbound2) == 0 })
			}
			d.Close()
			if release != nil {
				release()
			}
			n.crash()
			n.start()
			d, _ = n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "d"})
			if when != "after PUBREL" {
				d.send(mqtt.AppendPublish(nil, d.v, mqtt.Publish{Dup: true, QoS: 2, PacketID: 5, Topic: []byte("t"), Payload: []byte("x")}))
				d.ack(mqtt.TypePubrec)
			}
			d.sendAck(mqtt.TypePubrel, 5)
			d.ack(mqtt.TypePubcomp)
			d.sendPublish(2, 5, "t", "end")
			d.ack(mqtt.TypePubrec)
			w, _ = n.connect(o)
			for _, want := range []string{"x", "end"} {
				if m := w.publish(); string(m.Payload) != want {
					t.Errorf("got %s, want %s", m.Payload, want)
				}
			}
		})
	}
}

func TestAFullStoreRefusesPublishers(t *testing.T) {
	for _, v := range versions {
		for _, qos := range []byte{1, 2} {
			n := newNode(t)
			n.store.Fail(cluster.Appends, cluster.ErrFull)
			d, _ := n.connect(mqtt.ConnectOptions{Version: v, ClientID: "d"})
			d.sendPublish(qos, 9, "t", "x")
			if v != mqtt.V5 {
				d.gone()
				continue
			}
			want := mqtt.TypePuback
			if qos == 2 {
				want = mqtt.TypePubrec
			}
			if a := d.ack(want); a.Reason != mqtt.QuotaExceeded || a.PacketID != 9 {
				t.Errorf("answer %s", a.Reason)
			}
			n.store.Fail(cluster.Appends, nil)
			d.sendPublish(qos, 9, "t", "y")
			if a := d.ack(want); a.Reason != mqtt.Success {
				t.Errorf("then %s", a.Reason)
			}
		}
	}
}

// What nobody knows the outcome of is sent again by its client, and is taken
// once if it was stored.
func TestAnUnknownOutcomeIsNotAnswered(t *testing.T) {
	n := newNode(t)
	n.store.Fail(cluster.Appends, cluster.ErrUnavailable)
	o := mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "d", Properties: expiring(60)}
	d, _ := n.connect(o)
	d.sendPublish(2, 9, "t", "x")
	if told := d.gone(); told != mqtt.ServerBusy {
		t.Errorf("told %s", told)
	}
	cl := n.b.lookup("d")
	cl.mu.Lock()
	name := cl.inbound[9].name
	cl.mu.Unlock()
	n.store.Fail(cluster.Appends, nil)
	d, _ = n.connect(o)
	d.send(mqtt.AppendPublish(nil, d.v, mqtt.Publish{Dup: true, QoS: 2, PacketID: 9, Topic: []byte("t"), Payload: []byte("x")}))
	d.ack(mqtt.TypePubrec)
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if name == "" || cl.inbound[9].name != name {
		t.Errorf("the second try was another publication: %q, %q", name, cl.inbound[9].name)
	}
}

func TestAStoreThatTakesNoRecordsRefusesClients(t *testing.T) {
	n := newNode(t)
	n.store.Fail(cluster.RecordWrites, cluster.ErrUnavailable)
	d, ack := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "d", Properties: expiring(60)})
	if ack.Reason() != mqtt.ServerUnavailable {
		t.Errorf("CONNACK %s", ack.Reason())
	}
	d.gone()
	n.store.Fail(cluster.RecordWrites, nil)
	_, ack = n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "d", Properties: expiring(60)})
	if !ack.Accepted() {
		t.Errorf("then %s", ack.Reason())
	}
}

// A full disk must not end connections that ask for nothing of it: what a
// checkpoint could not write holds up neither PINGRESP nor QoS 1, only what
// relies on the record.
func TestAFailedCheckpointHoldsBackNothing(t *testing.T) {
	n := newNode(t, func(o *Options) { o.Checkpoint = 2 * time.Millisecond })
	d, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "d", Properties: expiring(60)})
	d.subscribe(1, "t")
	eventually(t, "the record is written", func() bool {
		cl := n.b.lookup("d")
		cl.mu.Lock()
		defer cl.mu.Unlock()
		return cl.ses.Checkpoint() == session.Saved && !cl.record.writing
	})
	n.store.Fail(cluster.RecordWrites, cluster.ErrUnavailable)
	p, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "p", CleanStart: true})
	p.sendPublish(1, 1, "t", "one")
	p.ack(mqtt.TypePuback)
	d.sendAck(mqtt.TypePuback, d.publish().PacketID)
	eventually(t, "a checkpoint has failed", func() bool {
		cl := n.b.lookup("d")
		cl.mu.Lock()
		defer cl.mu.Unlock()
		return cl.record.unsure && !cl.record.writing
	})
	d.quiet()
	p.sendPublish(1, 2, "t", "two")
	p.ack(mqtt.TypePuback)
	if m := d.publish(); string(m.Payload) != "two" {
		t.Errorf("got %s", m.Payload)
	}
	n.store.Fail(cluster.RecordWrites, nil)
	d.subscribe(1, "u") // waits for the record again, and gets it
}

// The store makes writers wait when too many are under way. Nobody who waits
// there may hold what its answers need.
func TestAStoreWithLittleRoomDoesNotStopTheBroker(t *testing.T) {
	store := cluster.NewMemory(cluster.MemoryOptions{MaxPending: 1})
	defer store.Close()
	n := &node{t: t, store: store}
	n.start(func(o *Options) { o.Checkpoint = 2 * time.Millisecond })
	defer func() { n.stop() }()
	const count = 300
	done := make(chan struct{})
	for _, id := range []string{"a", "b", "c"} {
		go func() {
			defer func() { done <- struct{}{} }()
			d, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: id})
			d.subscribe(2, id)
			go func() {
				for i := range count {
					d.sendPublish(2, uint16(i+1), id, strings.Repeat("x", i))
				}
			}()
			for completed, received := 0, 0; completed < count || received < count; {
				typ, p := d.any()
				switch typ {
				case mqtt.TypePublish:
					m, _, _ := mqtt.ParsePublish(p, d.v)
					received++
					d.sendAck(mqtt.TypePubrec, m.PacketID)
				case mqtt.TypePubrel:
					a, _, _ := mqtt.ParseAck(p, d.v)
					d.sendAck(mqtt.TypePubcomp, a.PacketID)
				case mqtt.TypePubrec:
					a, _, _ := mqtt.ParseAck(p, d.v)
					d.sendAck(mqtt.TypePubrel, a.PacketID)
				case mqtt.TypePubcomp:
					completed++
				default:
					t.Errorf("%s: %s after %d and %d", id, typ, completed, received)
					return
				}
			}
		}()
	}
	for range 3 {
		<-done
	}
}

func TestTrimLeavesWhatADurableRecordNeeds(t *testing.T) {
	n := newNode(t)
	o := mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "w"}
	w, _ := n.connect(o)
	w.subscribe(1, "t")
	p, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "p", CleanStart: true})
	p.flood("other", 10)
	p.flood("t", 20)
	for range 20 {
		w.publish() // in flight, not acknowledged
	}
	w.Close()
	eventually(t, "the record is written", func() bool {
		cl := n.b.lookup("w")
		cl.mu.Lock()
		defer cl.mu.Unlock()
		return cl.link == nil && cl.ses.Checkpoint() == 0 && !cl.record.writing && !cl.dirty
	})
	n.b.trim(t.Context())
	if first, _, _ := n.store.Bounds(t.Context(), 0); first != 11<<10 {
		t.Errorf("the log begins at %d, want %d", first>>10, 11)
	}
	n.crash()
	n.start()
	n.b.trim(t.Context())
	w, _ = n.connect(o)
	for i := range 20 {
		m := w.publish()
		if len(m.Payload) == 0 || !m.Dup {
			t.Fatalf("message %d: %+v", i, m)
		}
		w.sendAck(mqtt.TypePuback, m.PacketID)
	}
	eventually(t, "the log is empty", func() bool {
		n.b.flush()
		n.b.saveShares()
		n.b.trim(t.Context())
		first, last, _ := n.store.Bounds(t.Context(), 0)
		return first > last
	})
}
