package broker

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// takePublish takes a PUBLISH off the client. QoS 0 is fanned out at once; what
// is stored is answered when the store has it, and reaches subscribers by the
// tail.
func (l *link) takePublish(b []byte) error {
	p, _, err := mqtt.ParsePublish(b, l.version)
	if err != nil {
		return err
	}
	if p.HasSubscriptionID {
		return &mqtt.PacketError{Type: mqtt.TypePublish, Reason: mqtt.ProtocolError, Detail: "Subscription Identifier from a client [MQTT-3.3.4-6]"}
	}
	l.cl.mu.Lock()
	l.pace()
	l.cl.mu.Unlock()
	if p.QoS > 0 {
		if err := l.certain(); err != nil {
			return err
		}
	}
	t, record, err := l.admit(&p)
	switch {
	case t.m == nil:
		return err
	case p.QoS == 0:
		l.b.publish(t.m, "", func(error) {})
	case p.QoS == 1:
		l.store1(t)
	default:
		l.store2(t, record)
	}
	return nil
}

// admit gives the message of a PUBLISH that is to be distributed, and otherwise
// answers what there is to answer. The lock is not held afterwards: the store
// may make us wait.
func (l *link) admit(p *mqtt.Publish) (t two, record bool, err error) {
	cl := l.cl
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if l.closing.Load() || cl.link != l {
		return two{}, false, errSentAway
	}
	name, err := l.c.Topic(p.Topic, p.TopicAlias)
	if err != nil {
		return two{}, false, err
	}
	if fault := l.judge(p, name); fault != mqtt.Success {
		return two{}, false, l.decline(p, fault)
	}
	receipt, err := l.c.Publish(p.QoS, p.PacketID)
	if err != nil {
		return two{}, false, err
	}
	l.b.stats.received[p.QoS].Add(1)
	switch receipt {
	case session.Repeat:
		l.answer(mqtt.TypePubrec, p.PacketID, mqtt.Success)
		return two{}, false, nil
	case session.Wait:
		return two{}, false, nil
	}
	t = two{id: p.PacketID, ses: cl.ses}
	if p.QoS > 0 && l.b.o.Limits.Overflow == session.Refuse {
		var ok bool
		if t.room, ok = l.promise(p, name); !ok {
			l.noRoom(p.QoS, p.PacketID, t.ses, receipt)
			return two{}, false, nil
		}
	}
	t.m = message(p, name, cl.id, time.Now())
	if p.QoS > 0 {
		l.count(t.m, 1)
	}
	if p.QoS == 2 {
		t.name, record = cl.nameInbound(t.id, digestOf(t.m), receipt == session.Redo)
	}
	return t, record, nil
}

// message copies what outlives the read buffer.
func message(p *mqtt.Publish, name []byte, publisher string, now time.Time) *session.Message {
	o := new(outgoing)
	o.Message = session.Message{
		Topic: string(name), Payload: slices.Clone(p.Payload),
		QoS: p.QoS, Retain: p.Retain, Publisher: publisher, Encoded: &o.frames,
	}
	m := &o.Message
	if len(p.Properties) > 0 {
		m.Properties = session.ForwardedProperties(p.Properties)
	}
	if p.HasMessageExpiry {
		m.Expires = now.Add(time.Duration(p.MessageExpiry) * time.Second)
	}
	return m
}

// judge says what is wrong with a PUBLISH that is well-formed; cl.mu is held.
func (l *link) judge(p *mqtt.Publish, name []byte) mqtt.Reason {
	switch {
	case len(name) > l.b.o.MaxTopicLength:
		return mqtt.TopicNameInvalid
	case p.PayloadFormat == 1 && !utf8.Valid(p.Payload):
		return mqtt.PayloadFormatInvalid // 5 §3.3.2.3.2
	default:
		return mqtt.Success
	}
}

// decline refuses a PUBLISH: in its answer where 5.0 has one, else by ending the
// connection. cl.mu is held.
func (l *link) decline(p *mqtt.Publish, reason mqtt.Reason) error {
	if l.version != mqtt.V5 || p.QoS == 0 {
		return &mqtt.PacketError{Type: mqtt.TypePublish, Reason: reason, Detail: "refused"}
	}
	t := mqtt.TypePuback
	if p.QoS == 2 {
		t = mqtt.TypePubrec
	}
	l.answer(t, p.PacketID, reason)
	return nil
}

// answer queues an acknowledgement; cl.mu is held.
func (l *link) answer(t mqtt.PacketType, id uint16, reason mqtt.Reason) {
	l.say(mqtt.AppendAck(nil, l.version, mqtt.Ack{Type: t, PacketID: id, Reason: reason}))
}

// publish distributes a message: QoS 0 now, the rest through the log. done is
// called once the store has all of it and this node's sessions have it, too.
func (b *Broker) publish(m *session.Message, name string, done func(error)) {
	if m.QoS == 0 {
		if m.Retain {
			b.retain(m, func(error) {})
		}
		b.fanOut(m, session.Ref{})
		b.cast(m)
		done(nil)
		return
	}
	if m.Retain && !b.clustered() {
		done = b.afterRetained(m, done)
	}
	begun := time.Now()
	b.store.Append(toStore(m, name), func(p cluster.Pos, err error) {
		b.o.Observer.Appended(time.Since(begun), err)
		if err != nil {
			done(err)
			return
		}
		b.shards[p.Shard].whenDealt(p.Seq, m.Expires, func() { done(nil) })
	})
}

// afterRetained makes m the retained message of its topic and gives a done that
// calls the other when that, too, is durable.
func (b *Broker) afterRetained(m *session.Message, done func(error)) func(error) {
	var first atomic.Pointer[error]
	half := func(err error) {
		if other := first.Swap(&err); other != nil {
			done(errors.Join(*other, err))
		}
	}
	b.retain(m, half)
	return half
}

// store1 stores a QoS 1 message and answers with PUBACK.
func (l *link) store1(t two) {
	stored := func(err error) {
		t.room.redeem()
		l.cl.mu.Lock()
		defer l.cl.mu.Unlock()
		l.count(t.m, -1)
		if l.c.Acked() {
			l.acknowledge(mqtt.TypePuback, t.id, err)
		}
	}
	retained := l.retainFirst(t.m)
	l.cl.mu.Lock()
	queue := retained != nil || l.cl.storing
	if queue {
		l.cl.line(waitingPublish{l: l, m: t.m, first: [2]<-chan error{retained}, stored: stored})
	}
	l.cl.mu.Unlock()
	if !queue {
		l.b.publish(t.m, "", stored)
	}
}

// acknowledge answers for a message that was stored, or tells why it was not:
// 5.0 by reason code, 3.x by the end of the connection, since its client then
// tries again. What nobody knows the outcome of is not answered at all.
// cl.mu is held.
func (l *link) acknowledge(t mqtt.PacketType, id uint16, err error) {
	switch {
	case err == nil:
		l.answer(t, id, mqtt.Success)
	case l.version == mqtt.V5 && (errors.Is(err, cluster.ErrFull) || errors.Is(err, errNoRoom)):
		l.answer(t, id, mqtt.QuotaExceeded)
	case l.version == mqtt.V5 && errors.Is(err, cluster.ErrTooLarge):
		l.answer(t, id, mqtt.ImplementationSpecificError)
	default:
		l.bye(mqtt.ServerBusy, SentAway)
	}
}

// isRefusal says that what was not stored is known not to be.
func isRefusal(err error) bool {
	return errors.Is(err, cluster.ErrFull) || errors.Is(err, cluster.ErrTooLarge)
}

// two is a publication on its way into the store; what only QoS 2 has is last.
type two struct {
	m    *session.Message
	id   uint16
	room promises // for it in the sessions that it is for
	name string   // its DedupID
	ses  *session.Session
}
