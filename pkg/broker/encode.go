package broker

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// frames are the encodings of a message that its deliveries share: one for each
// version (3.x, 5.0) with and without a packet identifier. What differs from one
// client to the next (flags, packet identifier) is patched into its own copy on
// the way to the socket.
type frames [2][2]atomic.Pointer[[]byte]

// newMessage makes room for the frames of a message.
func newMessage(m session.Message) *session.Message {
	o := &outgoing{Message: m}
	o.Encoded = &o.frames
	return &o.Message
}

// outgoing is a message and its frames in one piece.
type outgoing struct {
	session.Message
	frames frames
}

// appendPublish appends the PUBLISH of a delivery.
func appendPublish(buf []byte, v mqtt.Version, p *session.Packet) []byte {
	shared, ok := p.Message.Encoded.(*frames)
	if !ok || p.HasExpiry || p.Alias != 0 || len(p.SubscriptionIDs) > 0 {
		return encode(buf, v, p) // this client's alone
	}
	version, identified := 0, 0
	if v == mqtt.V5 {
		version = 1
	}
	if p.QoS > 0 {
		identified = 1
	}
	frame := shared[version][identified].Load()
	if frame == nil { // two may do this at once; either result is as good
		plain := session.Packet{Type: p.Type, QoS: p.QoS, PacketID: p.PacketID, Message: p.Message}
		made := encode(nil, v, &plain)
		frame = &made
		shared[version][identified].Store(frame)
	}
	at := len(buf)
	buf = append(buf, *frame...)
	buf[at] = flagged(p)
	if identified == 1 {
		topicAt := at + 1
		for buf[topicAt]&0x80 != 0 { // over the remaining length
			topicAt++
		}
		binary.BigEndian.PutUint16(buf[topicAt+1+2+len(p.Message.Topic):], p.PacketID)
	}
	return buf
}

// flagged is the first byte of a PUBLISH (3.1.1 §3.3.1).
func flagged(p *session.Packet) byte {
	b := byte(mqtt.TypePublish)<<4 | p.QoS<<1
	if p.Dup {
		b |= 1 << 3
	}
	if p.Retain {
		b |= 1
	}
	return b
}

func encode(buf []byte, v mqtt.Version, p *session.Packet) []byte {
	m := mqtt.Publish{
		Dup: p.Dup, QoS: p.QoS, Retain: p.Retain,
		Topic: []byte(p.Topic()), PacketID: p.PacketID, Payload: p.Message.Payload,
	}
	if v == mqtt.V5 {
		m.Properties = p.AppendProperties(nil)
	}
	return mqtt.AppendPublish(buf, v, m)
}

// fromStore and toStore are a message on its way out of and into the store.
func fromStore(m *cluster.Message) *session.Message {
	return newMessage(session.Message{
		Topic: m.Topic, Payload: m.Payload, Properties: mqtt.Properties(m.Properties),
		QoS: m.QoS, Retain: m.Retain, Publisher: m.Publisher, Expires: m.Expires,
	})
}

func toStore(m *session.Message, dedup string) *cluster.Message {
	return &cluster.Message{
		Topic: m.Topic, Payload: m.Payload, Properties: m.Properties,
		QoS: m.QoS, Retain: m.Retain, Publisher: m.Publisher, Expires: m.Expires, DedupID: dedup,
	}
}
