package broker

import (
	"crypto/rand"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/session"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// connect opens the session of a CONNECT: who it is, whose session, takeover of
// what has it now, the record, CONNACK.
func (l *link) connect(c *mqtt.Connect) error {
	id := string(c.ClientID)
	assigned := id == ""
	if assigned {
		id = "auto-" + rand.Text() // [MQTT-3.1.3-6]
	}
	l.end.ClientID = id
	identity, reason := l.b.authenticate(c, id)
	if reason != mqtt.Success {
		return l.refuse(reason, "not let in")
	}
	if len(c.AuthMethod) > 0 {
		return l.refuse(mqtt.BadAuthenticationMethod, "no enhanced authentication is configured") // 5 §4.12
	}
	if c.HasWill && len(c.WillTopic) > l.b.o.MaxTopicLength {
		return l.refuse(mqtt.TopicNameInvalid, "the will's topic is too long")
	}
	for {
		cl := l.b.client(id)
		cl.mu.Lock()
		if cl.gone { // it was forgotten just now
			cl.mu.Unlock()
			continue
		}
		if cl.ses != nil && cl.ses.Identity() != identity {
			cl.mu.Unlock()
			return l.refuse(mqtt.NotAuthorized, "the session belongs to someone else")
		}
		l.sayConnack(l.attach(cl, c, identity), assigned)
		cleared := cl.cleared
		cl.mu.Unlock()
		if cleared != nil { // the last session's records, before there are new ones
			<-cleared
		}
		return nil
	}
}

func (b *Broker) authenticate(c *mqtt.Connect, id string) (identity string, reason mqtt.Reason) {
	if b.o.Authenticate == nil {
		return "", mqtt.Success
	}
	return b.o.Authenticate(Credentials{
		ClientID: id, Username: c.Username, Password: c.Password,
		HasUsername: c.HasUsername, HasPassword: c.HasPassword,
	})
}

// attach gives the connection its session, ending the connection that has it,
// and says whether the session was there before. cl.mu is held.
func (l *link) attach(cl *client, c *mqtt.Connect, identity string) (present bool) {
	b, now := l.b, time.Now()
	if old := cl.link; old != nil {
		b.stats.takeovers.Add(1)
		old.c.TakenOver(c.CleanStart, now)
		old.control = nil                         // what waits for the record is not for this connection any more
		old.bye(mqtt.SessionTakenOver, TakenOver) // [MQTT-3.1.4-3]
		cl.link = nil
	}
	if cl.timer != nil {
		cl.timer.Stop()
	}
	if cl.ses != nil {
		present = cl.ses.Resumable(c, now)
		if !present {
			cl.ses.Discard(now)
		}
		if will, over := cl.ses.Due(now); will != nil || over {
			cl.owe(will)
			if over {
				cl.end()
			}
		}
	}
	if cl.ses == nil {
		cl.ses = session.New(session.Options{ClientID: cl.id, Identity: identity, Limits: &b.o.Limits, Tail: b.tail()})
	}
	l.cl = cl
	l.room.L = &cl.mu
	defer l.joined.Store(true)
	l.c = cl.ses.Connect(c, now)
	cl.link = l
	cl.online.Store(true)
	return present
}

// sayConnack answers CONNECT; the writer holds it back until the record is
// durable. cl.mu is held.
func (l *link) sayConnack(present, assigned bool) {
	o := mqtt.ConnackOptions{SessionPresent: present}
	if l.version == mqtt.V5 {
		o.Properties = l.c.AppendConnackProperties(nil)
		if assigned {
			o.Properties = o.Properties.AppendText(mqtt.PropAssignedClientIdentifier, l.cl.id)
		}
		if l.b.o.AnnounceNode {
			o.Properties = o.Properties.AppendUser("node", l.b.o.Node)
		}
	}
	l.open = true
	l.end.opened = true
	l.say(mqtt.AppendConnackPacket(nil, l.version, o))
}

// owe publishes a will, once the record says that it is gone; cl.mu is held.
func (cl *client) owe(will *session.Will) {
	if will == nil {
		return
	}
	m := newMessage(*will.Message(cl.id, time.Now()))
	published := func(err error) {
		if err != nil {
			cl.b.log.Error("will not published", "client_id", cl.id, "err", err)
		}
	}
	publish := func(error) { // better twice after a crash than never
		cl.b.writes.Go(func() { cl.b.publish(m, "", published) })
	}
	if cl.ses.Persistent() {
		cl.save(publish)
		return
	}
	publish(nil)
}
