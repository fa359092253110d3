package broker

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// inbound is a QoS 2 publication from the client whose PUBREL is still to come.
type inbound struct {
	name      string // DedupID of its message; empty: to be given anew
	digest    digest // of that message
	recorded  bool   // the store has, or may have, a record of it
	confirmed bool   // it has one that says name and digest
}

// digest tells publications apart that have had the same packet identifier. A
// record can outlast its publication, when what wrote it was late; taken for the
// next one's it would have the store take that for what it has had already.
type digest string

func digestOf(m *session.Message) digest {
	h := sha256.New()
	var size [8]byte
	h.Write(binary.BigEndian.AppendUint64(size[:0], uint64(len(m.Topic))))
	_, _ = io.WriteString(h, m.Topic)
	h.Write(m.Payload)
	return digest(hex.EncodeToString(h.Sum(nil)[:digestSize]))
}

const digestSize = 12

// value is what the record holds: name and digest.
func (in inbound) value() string { return in.name + "." + string(in.digest) }

func parseInbound(value string) (in inbound) {
	name, sum, _ := strings.Cut(value, ".")
	return inbound{name: name, digest: digest(sum), recorded: true}
}

// nameInbound gives a QoS 2 publication the name under which the store takes it
// once: after a restart, redo, the one it had. record says that it has to be
// recorded. cl.mu is held.
func (cl *client) nameInbound(id uint16, sum digest, redo bool) (name string, record bool) {
	in := cl.inbound[id]
	record = cl.ses.Persistent()
	if redo && in.name != "" && in.digest == sum {
		record = record && !in.confirmed
	} else {
		in = inbound{name: newDedupID(), digest: sum, recorded: in.recorded}
	}
	in.recorded = in.recorded || record
	cl.keepInbound(id, in)
	return in.name, record
}

func (cl *client) keepInbound(id uint16, in inbound) {
	if cl.inbound == nil {
		cl.inbound = make(map[uint16]inbound)
	}
	cl.inbound[id] = in
}

// store2 stores a QoS 2 message: first the record of its identifier, so that
// the same PUBLISH after a crash is known for what it is, then the message under
// the name that the record gives it. PUBREC follows.
func (l *link) store2(t two, record bool) {
	var recorded chan error
	if record {
		recorded = make(chan error, 1)
		value := inbound{name: t.name, digest: digestOf(t.m)}.value()
		l.b.store.Records(cluster.Inbound2).Put(inboundKey(l.cl.key, t.id), []byte(value), cluster.Any, func(_ cluster.Revision, err error) {
			if err == nil {
				l.cl.confirmInbound(t)
			}
			recorded <- err
		})
	}
	retained := l.retainFirst(t.m)
	l.cl.mu.Lock()
	defer l.cl.mu.Unlock()
	l.cl.line(waitingPublish{
		l: l, m: t.m, name: t.name, first: [2]<-chan error{recorded, retained},
		stored: func(err error) { l.stored(t, err) },
	})
}

// confirmInbound notes that a publication's record is there.
func (cl *client) confirmInbound(t two) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if in := cl.inbound[t.id]; cl.ses == t.ses && in.name == t.name {
		in.confirmed = true
		cl.inbound[t.id] = in
	}
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
	cl.owes(1)
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
	cl.owes(-1)
	c := ses.Forgotten(id)
	if cl.ses == ses {
		if err != nil {
			ses.Remember(id)
			cl.unconfirmInbound(id)
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

// unconfirmInbound: the record may be gone; cl.mu is held.
func (cl *client) unconfirmInbound(id uint16) {
	if in, ok := cl.inbound[id]; ok {
		in.confirmed = false
		cl.inbound[id] = in
	}
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
