package broker

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/session"
)

// hit is a subscription that a message matches.
type hit struct {
	cl  *client
	sub *session.Subscription
}

// matching is the room that a fan-out needs, used again by the next one.
type matching struct {
	name   []byte
	hits   []hit
	groups []*group
	subs   []*session.Subscription
	visit  func(target, *session.Subscription)
}

var matchings = sync.Pool{New: func() any {
	m := new(matching)
	m.visit = func(t target, sub *session.Subscription) {
		switch t := t.(type) {
		case *client:
			m.hits = append(m.hits, hit{t, sub})
		case *group:
			m.groups = append(m.groups, t)
		}
	}
	return m
}}

// release empties the room, which must not keep clients alive.
func (m *matching) release() {
	clear(m.hits)
	clear(m.groups)
	clear(m.subs[:cap(m.subs)])
	m.hits, m.groups, m.subs = m.hits[:0], m.groups[:0], m.subs[:0]
	matchings.Put(m)
}

// fanOut gives a message to all sessions that it is for, each once, whatever
// number of their subscriptions match, and to the groups that this node deals for.
func (b *Broker) fanOut(m *session.Message, r session.Ref) {
	found := matchings.Get().(*matching)
	defer found.release()
	b.deal(found, &b.tree, m, func(cl *client, subs []*session.Subscription) { b.give(m, r, cl, subs) })
	for _, g := range found.groups {
		b.found(g, m, r)
	}
}

// deal calls give for each client that a tree leads to, with the subscriptions
// that match. The groups are left in found.
func (b *Broker) deal(found *matching, tree *tree, m *session.Message, give func(*client, []*session.Subscription)) {
	found.name = append(found.name[:0], m.Topic...)
	tree.Match(found.name, found.visit)
	hits := found.hits
	if len(hits) > 1 {
		slices.SortFunc(hits, func(a, b hit) int { return cmp.Compare(a.cl.number, b.cl.number) })
	}
	for i := 0; i < len(hits); {
		cl := hits[i].cl
		found.subs = found.subs[:0]
		for ; i < len(hits) && hits[i].cl == cl; i++ {
			found.subs = append(found.subs, hits[i].sub)
		}
		give(cl, found.subs)
	}
}

// give queues a message for one client, unless a train brings it.
func (b *Broker) give(m *session.Message, r session.Ref, cl *client, subs []*session.Subscription) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.ses == nil || cl.train.takes(r) {
		return
	}
	cl.offer(m, r, subs)
}

// offer queues a message for the session if the subscriptions want it; cl.mu is
// held.
func (cl *client) offer(m *session.Message, r session.Ref, subs []*session.Subscription) {
	d, ok := cl.ses.Merge(m, r, subs...)
	if !ok {
		return
	}
	if d.QoS == 0 {
		d.Ref = session.Ref{} // nothing of the log is owed
	}
	cl.queue(d)
}

// queue gives a delivery to the session and wakes its writer; cl.mu is held.
func (cl *client) queue(d session.Delivery) session.Verdict {
	verdict := cl.ses.Queue(d, time.Now())
	switch {
	case cl.link != nil:
		cl.link.kick()
	case d.Ref.Seq != 0:
		cl.ses.Unload() // the log has it
	}
	cl.settle()
	cl.b.stats.drop(cl.ses.TakeDrops())
	return verdict
}
