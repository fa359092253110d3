package broker

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// nameInbound gives a QoS 2 publication the name under which the store takes it
// once: after a restart, redo, the one it had. record says that it has to be
// recorded. cl.mu is held.
func (cl *client) nameInbound(id uint16, redo bool) (name string, record bool) {
	in := cl.inbound[id]
	if redo && in.name != "" {
		return in.name, false
	}
	in = inbound{name: newDedupID(), recorded: in.recorded || cl.ses.Persistent()}
	if cl.inbound == nil {
		cl.inbound = make(map[uint16]inbound)
	}
	cl.inbound[id] = in
	return in.name, cl.ses.Persistent()
}

// store2 stores a QoS 2 message: first the record of its identifier, so that
// the same PUBLISH after a crash is known for what it is, then the message under
// the name that the record gives it. PUBREC follows.
func (l *link) store2(t two, record bool) {
	var recorded chan error
	if record {
		recorded = make(chan error, 1)
		l.b.store.Records(cluster.Inbound2).Put(inboundKey(l.cl.key, t.id), []byte(t.name), cluster.Any,
			func(_ cluster.Revision, err error) { recorded <- err })
	}
	retained := l.retainFirst(t.m)
	l.cl.mu.Lock()
	defer l.cl.mu.Unlock()
	l.line(waitingPublish{
		m: t.m, name: t.name, first: [2]<-chan error{recorded, retained},
		stored: func(err error) { l.stored(t, err) },
	})
}

// stored answers for a QoS 2 message, on whichever connection its client waits.
// One whose outcome nobody knows keeps its name, for its client to try again.
func (l *link) stored(t two, err error) {
	t.room.redeem()
	cl := l.cl
	cl.mu.Lock()
	defer cl.mu.Unlock()
	l.count(t.m, -1)
	reason := mqtt.Success
	if err != nil {
		reason = mqtt.QuotaExceeded
	}
	c := t.ses.Stored(t.id, reason)
	if err != nil && cl.ses == t.ses {
		if isRefusal(err) {
			cl.inbound[t.id] = inbound{recorded: cl.inbound[t.id].recorded}
		} else {
			cl.ses.Remember(t.id)
		}
	}
	if c != nil && cl.link != nil && cl.link.c == c {
		cl.link.acknowledge(mqtt.TypePubrec, t.id, err)
	}
}

// release ends a QoS 2 message: PUBCOMP once its record is gone.
func (l *link) release(id uint16) error {
	if err := l.certain(); err != nil {
		return err
	}
	cl := l.cl
	cl.mu.Lock()
	what, err := l.c.Pubrel(id)
	if err == nil && what == session.Unknown {
		l.answer(mqtt.TypePubcomp, id, mqtt.PacketIdentifierNotFound)
	}
	if err != nil || what != session.Forget {
		cl.mu.Unlock()
		return err
	}
	ses, recorded := cl.ses, cl.inbound[id].recorded
	cl.mu.Unlock()
	forgotten := func(err error) { cl.forgotten(ses, id, err) }
	if recorded {
		l.b.store.Records(cluster.Inbound2).Delete(inboundKey(cl.key, id), cluster.Any, forgotten)
	} else {
		forgotten(nil)
	}
	return nil
}

// forgotten answers PUBREL. A record that may be there still keeps its
// identifier in use, and the client tries again.
func (cl *client) forgotten(ses *session.Session, id uint16, err error) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	c := ses.Forgotten(id)
	if cl.ses == ses {
		if err != nil {
			ses.Remember(id)
		} else {
			delete(cl.inbound, id)
		}
	}
	if c == nil || cl.link == nil || cl.link.c != c {
		return
	}
	if err != nil {
		cl.link.bye(mqtt.ServerBusy, SentAway)
		return
	}
	cl.link.answer(mqtt.TypePubcomp, id, mqtt.Success)
}

// removeInbound removes the record of a QoS 2 publication of a session that is
// over.
func (b *Broker) removeInbound(client string, id uint16) {
	b.store.Records(cluster.Inbound2).Delete(inboundKey(client, id), cluster.Any, func(err error) {
		if err != nil {
			b.log.Warn("record of a QoS 2 publication not removed", "key", inboundKey(client, id), "err", err)
		}
	})
}

func inboundKey(client string, id uint16) string { return fmt.Sprintf("%s/%d", client, id) }

func newDedupID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
