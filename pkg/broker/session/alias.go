package session

import (
	"fmt"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// aliasesOut are the Topic Aliases towards the client (5 §3.3.2.3.4). The first
// topics get them and keep them: they pay where a few topics come again and
// again, and for a client of very many topics anything cleverer would only set
// and set anew.
type aliasesOut struct {
	max     uint16 // of the client and of ours [MQTT-3.1.2-26], [MQTT-3.1.2-27]
	byTopic map[string]uint16
}

// use gives p the alias of its topic, an existing or a new one, if there is one
// to be had.
func (a *aliasesOut) use(p *Packet) {
	topic := p.Message.Topic
	if a.max == 0 || len(topic) <= aliasSize { // nothing to be saved
		return
	}
	if alias, ok := a.byTopic[topic]; ok {
		p.Alias, p.AliasKnown = alias, true
	} else if len(a.byTopic) < int(a.max) {
		p.Alias = uint16(len(a.byTopic) + 1)
	}
}

// set remembers a new alias, now that its packet is sent.
func (a *aliasesOut) set(p *Packet) {
	if p.Alias == 0 || p.AliasKnown {
		return
	}
	if a.byTopic == nil {
		a.byTopic = make(map[string]uint16)
	}
	a.byTopic[p.Message.Topic] = p.Alias
}

// aliasesIn are the topics that the client has set aliases for, by alias less
// one; nil where it has not. They end with the connection [MQTT-3.3.2-7].
type aliasesIn [][]byte

// Topic gives the topic of a PUBLISH from the client, which has this Topic Name
// and Topic Alias; alias 0 is none. What it gives is either name itself or the
// connection's own copy, not to be altered, and valid until the next call.
//
// The error is a *[mqtt.PacketError]: an alias above what CONNACK allowed is
// invalid (0x94), one that was never set a Protocol Error (5 §3.3.4).
func (c *Connection) Topic(name []byte, alias uint16) ([]byte, error) {
	if alias == 0 {
		return name, nil
	}
	if most := c.session.limits.TopicAliasMaximum; alias > most {
		return nil, &mqtt.PacketError{Type: mqtt.TypePublish, Reason: mqtt.TopicAliasInvalid,
			Detail: fmt.Sprintf("Topic Alias %d is above the maximum of %d [MQTT-3.2.2-17]", alias, most)}
	}
	i := int(alias) - 1
	if len(name) > 0 {
		for len(c.inbox) <= i {
			c.inbox = append(c.inbox, nil)
		}
		c.inbox[i] = append(c.inbox[i][:0], name...)
		return name, nil
	}
	if i >= len(c.inbox) || c.inbox[i] == nil {
		return nil, &mqtt.PacketError{Type: mqtt.TypePublish, Reason: mqtt.ProtocolError,
			Detail: fmt.Sprintf("Topic Alias %d has not been set on this connection (5 §3.3.4)", alias)}
	}
	return c.inbox[i], nil
}
