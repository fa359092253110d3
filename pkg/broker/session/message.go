package session

import (
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// Ref is the place of a stored message in the log. Within a shard, sequence
// numbers rise in the order of publication. Seq 0 is a message that is not in
// the log: QoS 0, or sent because it is retained.
type Ref struct {
	Shard int // 0 to 65,535
	Seq   uint64
}

// Message is an application message. All sessions that get it share it, so
// nothing of it changes once it has been given to one.
type Message struct {
	Topic   string
	Payload []byte
	// Properties are those of a 5.0 PUBLISH that a server passes on unaltered
	// and in order; see [ForwardedProperties].
	Properties mqtt.Properties
	QoS        byte // as published
	Retain     bool // as published
	// Publisher is the Client Identifier of who sent it, for No Local; empty
	// for the server itself.
	Publisher string
	// Expires is the end of its Message Expiry Interval; zero is never.
	Expires time.Time
	// Encoded is the caller's own: what it has computed once for all that get
	// this message. The session does not look at it.
	Encoded any
}

// size is what m counts for in the queue's bytes.
func (m *Message) size() int {
	return len(m.Topic) + len(m.Payload) + len(m.Properties)
}

// expired says that m must not start its way to a client any more
// [MQTT-3.3.2-5].
func (m *Message) expired(now time.Time) bool {
	return !m.Expires.IsZero() && !now.Before(m.Expires)
}

// remaining is the Message Expiry Interval to send now, in seconds, rounded up
// [MQTT-3.3.2-6]. It is 0 for a message whose delivery had begun before it
// expired.
func (m *Message) remaining(now time.Time) uint32 {
	left := m.Expires.Sub(now)
	return uint32(min(max(0, (left+time.Second-1)/time.Second), 1<<32-1))
}

// Delivery is one message on its way to one session.
type Delivery struct {
	Ref     Ref
	Message *Message // nil: known by Ref only, to be fetched when its turn comes
	QoS     byte     // to deliver with
	Retain  bool     // to deliver with
	// Shared says that a shared subscription chose this session. Such a message
	// does not move the session's cursor: who keeps the group's place gives it
	// out again after a restart.
	Shared          bool
	Share           string   // the filter of that subscription
	SubscriptionIDs []uint32 // of all subscriptions that it is for; not altered any more
}

// ForwardedProperties copies those properties of a PUBLISH or a will that a
// server passes on unaltered and in order: Payload Format Indicator, Content
// Type, Response Topic, Correlation Data and User Properties [MQTT-3.3.2-4],
// [MQTT-3.3.2-15] to [MQTT-3.3.2-18], [MQTT-3.3.2-20]. The rest is for the
// server itself. Nil if there are none.
func ForwardedProperties(p mqtt.Properties) mqtt.Properties {
	var f mqtt.Properties
	for prop := range p.All() {
		switch prop.ID {
		case mqtt.PropPayloadFormatIndicator:
			f = f.AppendUint(prop.ID, prop.Uint)
		case mqtt.PropContentType, mqtt.PropResponseTopic, mqtt.PropCorrelationData:
			f = f.AppendText(prop.ID, string(prop.Value))
		case mqtt.PropUserProperty:
			f = f.AppendUser(string(prop.Key), string(prop.Value))
		}
	}
	return f
}
