package session

import (
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// Connection is what a CONNECT adds to its session, and ends with it.
type Connection struct {
	session *Session
	version mqtt.Version

	// The client's limits.

	window    int    // QoS 1 and 2 messages that may be unacknowledged
	maxPacket int    // bytes; 0 is no limit
	problems  bool   // wants reason strings and user properties
	keepAlive uint16 // seconds, as it holds
	asked     asked

	again  []uint16 // packet identifiers to send again, before anything new
	active int      // sent on this connection and not acknowledged
	outbox aliasesOut

	inbox   aliasesIn
	pending int // publications of QoS 1 and 2 that came and are not answered
}

// asked is what the client wished for, where what holds may differ.
type asked struct {
	expiry    uint32
	keepAlive uint16
}

// Connect gives the session its new connection, after a CONNECT that resumes
// it ([Session.Resumable]) or made it. One before has to be ended, and what
// [Session.Due] then gives be taken; a will that still waits is dropped
// [MQTT-3.1.3-9]. The record has to be durable before CONNACK goes out.
//
// Clean Session of 3.x stands for Clean Start with a Session Expiry of 0 or of
// [NeverExpires] (5 §3.1.2.11.2).
func (s *Session) Connect(c *mqtt.Connect, now time.Time) *Connection {
	n := &Connection{
		session:   s,
		version:   c.Version,
		window:    int(s.limits.inflight()),
		problems:  true,
		keepAlive: c.KeepAlive,
		asked:     asked{NeverExpires, c.KeepAlive},
	}
	switch {
	case c.Version == mqtt.V5:
		n.asked.expiry = c.SessionExpiry
		n.window = min(n.window, int(c.ReceiveMaximum))
		n.maxPacket = int(c.MaximumPacketSize)
		n.problems = c.RequestProblemInfo
		n.outbox.max = min(c.TopicAliasMaximum, s.limits.TopicAliases)
		if most := s.limits.KeepAlive; most > 0 && (c.KeepAlive == 0 || c.KeepAlive > most) {
			n.keepAlive = most
		}
	case c.CleanStart:
		n.asked.expiry = 0
	}
	s.conn = n
	s.expiry = s.limits.sessionExpiry(n.asked.expiry)
	s.connectedAt, s.disconnected = now.UnixNano(), 0
	s.will = NewWill(c)
	n.again = s.flight.sorted()
	s.touch(First)
	return n
}

// Session is the one that the connection belongs to.
func (c *Connection) Session() *Session { return c.session }

// Current says that no later connection has taken the session, and that this
// one has not ended.
func (c *Connection) Current() bool { return c.session.conn == c }

// Version is the one that CONNECT chose for this connection.
func (c *Connection) Version() mqtt.Version { return c.version }

// Silence is how long the client may send nothing before the server has to
// close: one and a half times the Keep Alive [MQTT-3.1.2-22]; 0 is for ever.
func (c *Connection) Silence() time.Duration {
	return time.Duration(c.keepAlive) * time.Second * 3 / 2
}

// MaximumPacketSize is the largest packet that may be sent to the client, in
// bytes [MQTT-3.1.2-24]; 0 is no limit.
func (c *Connection) MaximumPacketSize() int { return c.maxPacket }

// ProblemInfo says that reason strings and user properties may be sent in any
// packet, and not only in PUBLISH, CONNACK and DISCONNECT [MQTT-3.1.2-29].
func (c *Connection) ProblemInfo() bool { return c.problems }

// AppendConnackProperties appends what CONNACK has to announce of the limits
// that hold, where it is neither MQTT's default nor what the client asked for:
// Session Expiry Interval, Receive Maximum, Topic Alias Maximum, Maximum Packet
// Size, Server Keep Alive. In 3.x that is nothing.
func (c *Connection) AppendConnackProperties(dst mqtt.Properties) mqtt.Properties {
	if c.version != mqtt.V5 {
		return dst
	}
	l := c.session.limits
	if c.session.expiry != c.asked.expiry {
		dst = dst.AppendUint(mqtt.PropSessionExpiryInterval, c.session.expiry)
	}
	if r := l.receiveMaximum(); r != 65535 {
		dst = dst.AppendUint(mqtt.PropReceiveMaximum, uint32(r))
	}
	if l.TopicAliasMaximum != 0 {
		dst = dst.AppendUint(mqtt.PropTopicAliasMaximum, uint32(l.TopicAliasMaximum))
	}
	if l.MaximumPacketSize != 0 {
		dst = dst.AppendUint(mqtt.PropMaximumPacketSize, l.MaximumPacketSize)
	}
	if c.keepAlive != c.asked.keepAlive { // [MQTT-3.1.2-21]
		dst = dst.AppendUint(mqtt.PropServerKeepAlive, uint32(c.keepAlive))
	}
	return dst
}
