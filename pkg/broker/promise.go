package broker

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/session"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// With queue_policy: refuse, what is acknowledged must find room in every
// session that it is for. Many messages may be on their way into the store at
// once, so each has its room promised before it is stored, and the promise is
// redeemed when this node's sessions have it, or the store has refused it.

// errNoRoom: a session that the message is for has no room.
var errNoRoom = errors.New("a session has no room for the message")

// promises are what the sessions have promised one message.
type promises struct {
	of   []promise
	size int
}

type promise struct {
	cl  *client
	ses *session.Session
}

// promise has all sessions that a PUBLISH is for keep room; ok is false, and
// nothing kept, if one has none. cl.mu is held, and given back meanwhile: no two
// are ever held.
func (l *link) promise(p *mqtt.Publish, name []byte) (kept promises, ok bool) {
	l.cl.mu.Unlock()
	defer l.cl.mu.Lock()
	kept.size = len(name) + len(p.Payload) + len(p.Properties)
	now := time.Now()
	for _, cl := range l.takers(name) {
		cl.mu.Lock()
		ses := cl.ses
		ok := ses == nil || ses.Promise(kept.size, now)
		cl.mu.Unlock()
		switch {
		case !ok:
			kept.redeem()
			return promises{}, false
		case ses != nil:
			kept.of = append(kept.of, promise{cl, ses})
		}
	}
	return kept, true
}

// redeem ends the promises. No client's lock is held.
func (p promises) redeem() {
	for _, to := range p.of {
		to.cl.mu.Lock()
		to.ses.Redeem(p.size)
		to.cl.mu.Unlock()
	}
}

// takers are the clients whose sessions may have to keep a message, each once.
// Of a shared subscription nobody: a message waits in the log for its member.
func (l *link) takers(name []byte) []*client {
	found := matchings.Get().(*matching)
	defer found.release()
	l.b.tree.Match(name, found.visit)
	var all []*client
	for _, h := range found.hits {
		if h.sub.QoS > 0 && !(h.sub.NoLocal && h.cl == l.cl) {
			all = append(all, h.cl)
		}
	}
	slices.SortFunc(all, func(a, b *client) int { return cmp.Compare(a.number, b.number) })
	return slices.Compact(all)
}

// noRoom answers for a PUBLISH that has had no promise. One from before a restart
// may have been stored then, so it is not refused: its client tries again. cl.mu
// is held, but was not all the time.
func (l *link) noRoom(qos byte, id uint16, ses *session.Session, receipt session.Receipt) {
	if qos == 1 {
		if l.c.Acked() {
			l.acknowledge(mqtt.TypePuback, id, errNoRoom)
		}
		return
	}
	c := ses.Stored(id, mqtt.QuotaExceeded)
	if receipt == session.Redo {
		ses.Remember(id)
		l.bye(mqtt.ServerBusy, SentAway)
		return
	}
	if to := l.cl.link; c != nil && to != nil && to.c == c {
		to.acknowledge(mqtt.TypePubrec, id, errNoRoom)
	}
}
