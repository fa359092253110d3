package broker

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/session"
	"github.com/mqttlb/mqttlb/pkg/listen"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// link is one connection of a client.
type link struct {
	b        *Broker
	listener string
	socket   net.Conn     // as accepted: what others may close
	conn     *listen.Conn // the socket with its buffer, later with TLS
	accepted time.Time
	version  mqtt.Version
	cl       *client             // set when CONNECT is through
	c        *session.Connection // the same
	joined   atomic.Bool         // cl is set; for who is not the reader

	end End // filled in as things happen, by the reader

	in, out atomic.Uint64 // packets

	// cl.mu guards what follows.
	control []byte // packets that go before messages
	open    bool   // CONNACK may go out
	greeted bool   // it went
	writing bool   // a goroutine writes
	closed  bool
	why     Why         // we ended it
	told    mqtt.Reason // and what for
	room    sync.Cond   // the reader may go on

	stopFetch context.CancelFunc // of messages from the store; nil while there is none

	pending int // messages of QoS 1 and 2 that are not stored yet
	bytes   int // of these

	// closing: nothing goes out after what is in control, and nothing that comes
	// counts. cl.mu is held when it is set.
	closing atomic.Bool
}

// Bounds beyond which a client is not read from until its messages are stored,
// and its answers taken.
const (
	mostPendingBytes = 4 << 20
	mostControl      = 64 << 10
)

// pace holds the reader while too much of its client's is under way; cl.mu is
// held. 5.0 has Receive Maximum for that, but nothing has to keep to it.
func (l *link) pace() {
	most := int(l.b.o.Limits.ReceiveMaximum)
	for !l.closing.Load() && !l.closed &&
		(l.pending > most || l.bytes >= mostPendingBytes || len(l.control) >= mostControl) {
		l.room.Wait()
	}
}

// count counts a message on its way into the store; cl.mu is held.
func (l *link) count(m *session.Message, by int) {
	l.pending += by
	l.bytes += by * (len(m.Topic) + len(m.Payload) + len(m.Properties))
	l.room.Broadcast()
	l.cl.owes(by)
}

// say queues a packet that is not a message; cl.mu is held.
func (l *link) say(packet []byte) {
	if l.closing.Load() {
		return
	}
	l.control = append(l.control, packet...)
	l.kick()
}

// kick lets a goroutine write what there is; cl.mu is held.
func (l *link) kick() {
	if l.open && !l.writing && !l.closed {
		l.writing = true
		l.b.serving.Go(l.write)
	}
}

// bye ends the connection from our side, telling a 5.0 client why, but never
// before its CONNACK [MQTT-3.14.0-1]; cl.mu is held. Until the peer is gone, or
// a short patience over, its bytes are read and thrown away.
func (l *link) bye(reason mqtt.Reason, why Why) { l.byeTo(reason, why, nil) }

// byeTo is bye with properties in the DISCONNECT.
func (l *link) byeTo(reason mqtt.Reason, why Why, say mqtt.Properties) {
	if l.closing.Load() {
		return
	}
	if l.version == mqtt.V5 && (l.greeted || len(l.control) > 0) {
		l.control = mqtt.AppendDisconnectPacket(l.control, mqtt.V5, mqtt.Disconnect{Reason: reason, Properties: say})
	}
	l.told, l.why = reason, why
	l.hangUp()
}

// hangUp ends the connection after what is in control; cl.mu is held.
func (l *link) hangUp() {
	l.closing.Store(true)
	if l.stopFetch != nil {
		l.stopFetch()
	}
	l.room.Broadcast()
	l.kick()
}
