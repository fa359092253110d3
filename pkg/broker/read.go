package broker

import (
	"errors"
	"fmt"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// errDisconnected is the end that the client asked for.
var errDisconnected = errors.New("DISCONNECT")

// errSentAway is an end that the broker has begun; link.why says why.
var errSentAway = errors.New("sent away")

// read takes the client's packets until the connection ends. While nothing
// comes it holds no buffer.
func (l *link) read() error {
	most := int(l.b.o.Limits.MaximumPacketSize)
	silence := l.c.Silence()
	next := func(b []byte) (int, error) {
		_, n, err := mqtt.NextFromClient(b, l.version, most)
		return n, err
	}
	for {
		if silence > 0 {
			_ = l.conn.Conn.SetReadDeadline(time.Now().Add(silence))
		}
		if l.closing.Load() { // whoever closes sets a deadline of its own behind this
			return errSentAway
		}
		if len(l.conn.Pending()) == 0 {
			l.conn.Release()
			if err := l.conn.AwaitBytes(); err != nil {
				return err
			}
		}
		if err := l.conn.ReadWhole(most, mqtt.ErrShort, next); err != nil {
			return err
		}
		if err := l.takeAll(most); err != nil {
			return err
		}
	}
}

// takeAll handles the whole packets that are there.
func (l *link) takeAll(most int) error {
	l.cl.mu.Lock()
	l.pace()
	l.cl.mu.Unlock()
	for {
		if l.closing.Load() {
			return errSentAway
		}
		b := l.conn.Pending()
		t, n, err := mqtt.NextFromClient(b, l.version, most)
		switch {
		case err == mqtt.ErrShort:
			return nil
		case err != nil:
			return err
		}
		l.in.Add(1)
		if err := l.take(t, b[:n]); err != nil {
			return err
		}
		l.conn.Consume(n)
	}
}

func (l *link) take(t mqtt.PacketType, b []byte) error {
	switch t {
	case mqtt.TypePublish:
		return l.takePublish(b)
	case mqtt.TypePuback, mqtt.TypePubrec, mqtt.TypePubrel, mqtt.TypePubcomp:
		return l.takeAck(b)
	case mqtt.TypeSubscribe:
		return l.takeSubscribe(b)
	case mqtt.TypeUnsubscribe:
		return l.takeUnsubscribe(b)
	case mqtt.TypePingreq:
		if _, _, err := mqtt.ParsePing(b, l.version); err != nil {
			return err
		}
		l.cl.mu.Lock()
		l.say(mqtt.AppendPingresp(nil)) // [MQTT-3.12.4-1]
		l.cl.mu.Unlock()
		return nil
	case mqtt.TypeDisconnect:
		return l.takeDisconnect(b)
	case mqtt.TypeAuth:
		if _, _, err := mqtt.ParseAuth(b, l.version, mqtt.FromClient); err != nil {
			return err
		}
		return &mqtt.PacketError{Type: t, Reason: mqtt.ProtocolError, Detail: "AUTH without an authentication method in CONNECT [MQTT-4.12.0-6]"}
	default:
		return &mqtt.PacketError{Type: t, Reason: mqtt.ProtocolError, Detail: fmt.Sprintf("%s from a client", t)}
	}
}

func (l *link) takeAck(b []byte) error {
	a, _, err := mqtt.ParseAck(b, l.version)
	if err != nil {
		return err
	}
	if a.Type == mqtt.TypePubrel {
		return l.release(a.PacketID)
	}
	cl := l.cl
	cl.mu.Lock()
	defer cl.mu.Unlock()
	switch a.Type {
	case mqtt.TypePuback:
		_, err = l.c.Puback(a.PacketID, a.Reason)
	case mqtt.TypePubcomp:
		_, err = l.c.Pubcomp(a.PacketID, a.Reason)
	case mqtt.TypePubrec:
		reason, send, e := l.c.Pubrec(a.PacketID, a.Reason)
		if err = e; e == nil && send {
			l.say(mqtt.AppendAck(nil, l.version, mqtt.Ack{Type: mqtt.TypePubrel, PacketID: a.PacketID, Reason: reason}))
		}
	}
	if err != nil {
		return err
	}
	cl.settle()
	l.kick() // the window may have opened
	return nil
}

func (l *link) takeDisconnect(b []byte) error {
	d, _, err := mqtt.ParseDisconnect(b, l.version, mqtt.FromClient)
	if err != nil {
		return err
	}
	l.cl.mu.Lock()
	defer l.cl.mu.Unlock()
	if err := l.c.Disconnect(d, time.Now()); err != nil {
		return err
	}
	l.end.By = ByClient
	return errDisconnected
}
