package session

import (
	"fmt"
	"slices"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// Puback takes the client's answer to a QoS 1 PUBLISH: it is delivered, whatever
// the reason. known is false for an identifier that is not in use; nothing is
// answered to that. Errors of this and the next two are *[mqtt.PacketError]: a
// client that answers QoS 1 with a packet of QoS 2, or the other way round, or
// out of turn, breaks the protocol (5 §4.3).
func (c *Connection) Puback(id uint16, _ mqtt.Reason) (known bool, err error) {
	it := c.find(id)
	switch {
	case it == nil:
		return false, nil
	case it.qos != 1:
		return true, outOfTurn(mqtt.TypePuback, id, it)
	}
	c.session.finish(id)
	return true, nil
}

// Pubrec takes the client's answer to a QoS 2 PUBLISH. With send, PUBREL goes
// out with this reason:
//
//	reason of PUBREC below 0x80         PUBREL, once the record is durable [MQTT-4.3.3-4]
//	the same again                      PUBREL again
//	identifier not in use               PUBREL 0x92, so that the client comes to an end (5 §3.6.2.1)
//	reason of PUBREC 0x80 or above      nothing: the client has refused, this is its end
func (c *Connection) Pubrec(id uint16, reason mqtt.Reason) (pubrel mqtt.Reason, send bool, err error) {
	if !c.Current() {
		return 0, false, nil
	}
	it := c.find(id)
	switch {
	case it == nil:
		return mqtt.PacketIdentifierNotFound, true, nil
	case it.qos != 2:
		return 0, false, outOfTurn(mqtt.TypePubrec, id, it)
	case it.state == released: // and never PUBLISH again [MQTT-4.3.3-6]
		return mqtt.Success, true, nil
	case reason >= mqtt.UnspecifiedError:
		c.session.finish(id)
		return 0, false, nil
	}
	c.session.release(it)
	if !it.flags.has(active) { // an answer to the last connection's PUBLISH
		it.flags |= active
		c.active++
		c.again = slices.DeleteFunc(c.again, func(again uint16) bool { return again == id })
	}
	return mqtt.Success, true, nil
}

// Pubcomp takes the client's last word on a QoS 2 message, whatever the reason:
// 0x92 says that the client had come to an end already. known is false for an
// identifier that is not in use; nothing is answered to that.
func (c *Connection) Pubcomp(id uint16, _ mqtt.Reason) (known bool, err error) {
	it := c.find(id)
	switch {
	case it == nil:
		return false, nil
	case it.state != released:
		return true, outOfTurn(mqtt.TypePubcomp, id, it)
	}
	c.session.finish(id)
	return true, nil
}

func (c *Connection) find(id uint16) *item {
	if !c.Current() {
		return nil
	}
	return c.session.flight.find(id)
}

func outOfTurn(t mqtt.PacketType, id uint16, it *item) error {
	due := mqtt.TypePuback
	switch {
	case it.state == released:
		due = mqtt.TypePubcomp
	case it.qos == 2:
		due = mqtt.TypePubrec
	}
	return &mqtt.PacketError{Type: t, Reason: mqtt.ProtocolError,
		Detail: fmt.Sprintf("packet identifier %d waits for %s (5 §4.3)", id, due)}
}
