package session

import (
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// Will is the message that a client leaves to be published when it is lost.
type Will struct {
	Topic      string
	Payload    []byte
	QoS        byte
	Retain     bool
	Properties mqtt.Properties // passed on with it, in order [MQTT-3.1.3-10]
	Delay      uint32          // seconds
	// Lifetime is its Message Expiry Interval, in seconds from its publication,
	// if HasLifetime.
	Lifetime    uint32
	HasLifetime bool
}

// NewWill copies the will of a CONNECT; nil if it has none.
func NewWill(c *mqtt.Connect) *Will {
	if !c.HasWill {
		return nil
	}
	w := &Will{
		Topic:      string(c.WillTopic),
		Payload:    append([]byte(nil), c.WillPayload...),
		QoS:        c.WillQoS,
		Retain:     c.WillRetain,
		Properties: ForwardedProperties(c.WillProperties),
		Delay:      c.WillDelay,
	}
	for p := range c.WillProperties.All() {
		if p.ID == mqtt.PropMessageExpiryInterval {
			w.Lifetime, w.HasLifetime = p.Uint, true
		}
	}
	return w
}

// Message gives the will as it is published now. Its publisher is the client
// that left it, whose own No Local subscriptions don't get it.
func (w *Will) Message(clientID string, now time.Time) *Message {
	m := &Message{
		Topic: w.Topic, Payload: w.Payload, Properties: w.Properties,
		QoS: w.QoS, Retain: w.Retain, Publisher: clientID,
	}
	if w.HasLifetime {
		m.Expires = now.Add(time.Duration(w.Lifetime) * time.Second)
	}
	return m
}
