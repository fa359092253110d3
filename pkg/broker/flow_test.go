package broker

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

var versions = []mqtt.Version{mqtt.V31, mqtt.V311, mqtt.V5}

func TestMessagesGoFromEachQoSToEachQoS(t *testing.T) {
	for _, v := range versions {
		for pub := range byte(3) {
			for sub := range byte(3) {
				t.Run(fmt.Sprintf("%s %d to %d", v, pub, sub), func(t *testing.T) {
					n := newNode(t)
					s, _ := n.connect(mqtt.ConnectOptions{Version: v, ClientID: "sub", CleanStart: true})
					s.subscribe(sub, "a/+")
					p, _ := n.connect(mqtt.ConnectOptions{Version: v, ClientID: "pub", CleanStart: true})
					p.sendPublish(pub, 7, "a/b", "hello")
					switch pub {
					case 1:
						if a := p.ack(mqtt.TypePuback); a.PacketID != 7 {
							t.Errorf("PUBACK of %d", a.PacketID)
						}
					case 2:
						p.ack(mqtt.TypePubrec)
						p.sendAck(mqtt.TypePubrel, 7)
						p.ack(mqtt.TypePubcomp)
					}
					m := s.publish()
					if string(m.Topic) != "a/b" || string(m.Payload) != "hello" || m.QoS != min(pub, sub) || m.Dup || m.Retain {
						t.Errorf("got %+v", m)
					}
					switch m.QoS {
					case 1:
						s.sendAck(mqtt.TypePuback, m.PacketID)
					case 2:
						s.sendAck(mqtt.TypePubrec, m.PacketID)
						s.ack(mqtt.TypePubrel)
						s.sendAck(mqtt.TypePubcomp, m.PacketID)
					}
					s.disconnect()
					p.disconnect()
				})
			}
		}
	}
}

func TestOfflineSessionGetsEverythingInOrderAfterARestart(t *testing.T) {
	n := newNode(t)
	s, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "sub"})
	s.subscribe(1, "q/#")
	s.disconnect()
	p, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "pub", CleanStart: true})
	const count = 2000
	for i := range count {
		p.sendPublish(1, uint16(i+1), "q/x", strconv.Itoa(i))
	}
	for range count {
		p.ack(mqtt.TypePuback)
	}
	n.stop()
	n.start()
	s, ack := n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "sub"})
	if !ack.SessionPresent {
		t.Fatal("no session after the restart")
	}
	for i := range count {
		m := s.publish()
		if string(m.Payload) != strconv.Itoa(i) {
			t.Fatalf("message %d is %s", i, m.Payload)
		}
		s.sendAck(mqtt.TypePuback, m.PacketID)
	}
}

func TestRetainedMessageIsThereAsSoonAsItIsAcknowledged(t *testing.T) {
	n := newNode(t)
	p, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "pub", CleanStart: true})
	s, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "sub", CleanStart: true})
	for i := range 50 {
		topic := "r/" + strconv.Itoa(i)
		p.send(mqtt.AppendPublish(nil, mqtt.V5, mqtt.Publish{QoS: 1, PacketID: 1, Retain: true, Topic: []byte(topic), Payload: []byte("v")}))
		p.ack(mqtt.TypePuback)
		s.subscribe(1, topic)
		m := s.publish()
		if string(m.Topic) != topic || !m.Retain {
			t.Fatalf("got %s retain %v", m.Topic, m.Retain)
		}
		s.sendAck(mqtt.TypePuback, m.PacketID)
	}
	p.send(mqtt.AppendPublish(nil, mqtt.V5, mqtt.Publish{QoS: 1, PacketID: 2, Retain: true, Topic: []byte("r/1")}))
	p.ack(mqtt.TypePuback)
	if got := n.b.Stats().Retained; got != 49 {
		t.Errorf("%d retained after one was deleted", got)
	}
}

func TestTakeoverMovesTheSessionAndTellsTheOldConnection(t *testing.T) {
	n := newNode(t)
	old, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "a", Properties: mqtt.Properties(nil).AppendUint(mqtt.PropSessionExpiryInterval, 60)})
	old.subscribe(1, "t")
	fresh, ack := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "a", Properties: mqtt.Properties(nil).AppendUint(mqtt.PropSessionExpiryInterval, 60)})
	if !ack.SessionPresent {
		t.Error("no session present")
	}
	d, _, err := mqtt.ParseDisconnect(old.next(mqtt.TypeDisconnect), mqtt.V5, mqtt.FromServer)
	if err != nil || d.Reason != mqtt.SessionTakenOver {
		t.Errorf("the old connection was told %v, %v", d.Reason, err)
	}
	fresh.sendPublish(1, 9, "t", "x")
	got := map[mqtt.PacketType]bool{}
	for range 2 { // PUBACK and the message, in any order
		typ, _ := fresh.any()
		got[typ] = true
	}
	if !got[mqtt.TypePuback] || !got[mqtt.TypePublish] {
		t.Errorf("got %v", got)
	}
}
