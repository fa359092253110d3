package broker

import (
	"crypto/rand"
	"errors"
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
	if !l.b.quorum() {
		return l.refuse(mqtt.ServerUnavailable, "this node is cut off from its cluster")
	}
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
		if err := cl.bring(c, identity); err != nil {
			cl.forgetUnused()
			return l.turnAway(err)
		}
		cl.mu.Lock()
		if cl.gone { // it was forgotten just now
			cl.mu.Unlock()
			continue
		}
		if cl.ses != nil && cl.ses.Identity() != identity {
			cl.mu.Unlock()
			return l.refuse(mqtt.NotAuthorized, "the session belongs to someone else")
		}
		if l.b.clustered() && !cl.known { // it was lost again just now
			cl.mu.Unlock()
			continue
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
	if cl.link != nil {
		cl.takeOver(cl.link, c.CleanStart, now)
	}
	if cl.timer != nil {
		cl.timer.Stop()
	}
	if cl.ses != nil {
		present = !cl.conclude(c.CleanStart, now)
	}
	if cl.ses == nil {
		cl.ses = session.New(session.Options{ClientID: cl.id, Identity: identity, Limits: &b.o.Limits, Tail: b.tail()})
	}
	l.cl = cl
	l.room.L = &cl.mu
	defer l.joined.Store(true)
	l.c = cl.ses.Connect(c, now)
	cl.link = l
	cl.quiet.Broadcast()
	cl.setOnline(true)
	return present
}

// takeOver ends the connection that has the session, for another one
// [MQTT-3.1.4-3]; cl.mu is held.
func (cl *client) takeOver(old *link, cleanStart bool, now time.Time) {
	cl.b.stats.takeovers.Add(1)
	old.c.TakenOver(cleanStart, now)
	old.control = nil // what waits for the record is not for this connection any more
	old.bye(mqtt.SessionTakenOver, TakenOver)
	cl.link = nil
	cl.setOnline(false)
}

// conclude ends the session if the new connection wants another one, or if its
// time is over, and publishes the will that is due. It says whether the session
// is over; cl.mu is held.
func (cl *client) conclude(cleanStart bool, now time.Time) (over bool) {
	if cleanStart {
		cl.ses.Discard(now)
	}
	will, over := cl.ses.Due(now)
	cl.owe(will)
	if over {
		cl.end()
	}
	return over
}

// turnAway answers a CONNECT whose session can't be had.
func (l *link) turnAway(err error) error {
	if errors.Is(err, errForeign) {
		return l.refuse(mqtt.NotAuthorized, "the session belongs to someone else")
	}
	l.b.log.Warn("session not opened", "client_id", l.end.ClientID, "err", err)
	return l.refuse(mqtt.ServerUnavailable, "the session can't be had now")
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
