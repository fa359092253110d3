package broker

import (
	"context"
	"slices"
	"sync"

	"github.com/mqttlb/mqttlb/pkg/broker/session"
	"github.com/mqttlb/mqttlb/pkg/broker/topics"
)

// groupName is a share name and the filter that it shares: $share/name/filter.
type groupName struct{ name, filter string }

// group is a shared subscription: each message goes to one of its members
// (5 §4.8.2).
type group struct {
	filter string

	mu      sync.Mutex
	members []member
	next    int
}

type member struct {
	cl  *client
	sub *session.Subscription
}

func (*group) isTarget() {}

// join makes a client a member of a group, or replaces its subscription.
func (b *Broker) join(n groupName, cl *client, sub *session.Subscription) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groups[n]
	if g == nil {
		g = &group{filter: n.filter}
		b.groups[n] = g
		b.tree.Subscribe(n.filter, g, nil)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := g.find(cl); i >= 0 {
		g.members[i].sub = sub
		return
	}
	g.members = append(g.members, member{cl, sub})
	b.stats.subscriptions.Add(1)
}

// quit ends a membership; a group without members is no more.
func (b *Broker) quit(n groupName, cl *client) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groups[n]
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	i := g.find(cl)
	if i < 0 {
		return
	}
	g.members = slices.Delete(g.members, i, i+1)
	b.stats.subscriptions.Add(-1)
	if len(g.members) == 0 {
		delete(b.groups, n)
		b.tree.Unsubscribe(n.filter, g)
	}
}

func (g *group) find(cl *client) int {
	return slices.IndexFunc(g.members, func(m member) bool { return m.cl == cl })
}

// pick gives the member whose turn it is: those that are connected take turns;
// while none is, those that are away do.
func (g *group) pick() (*client, *session.Subscription) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.members) == 0 {
		return nil, nil
	}
	first := g.next % len(g.members)
	chosen := first
	for i := range g.members {
		at := (first + i) % len(g.members)
		if g.members[at].cl.online.Load() {
			chosen = at
			break
		}
	}
	g.next = chosen + 1
	return g.members[chosen].cl, g.members[chosen].sub
}

// othersShare says that of the groups of these subscriptions one has a member
// that is connected.
func (b *Broker) othersShare(subs []*session.Subscription) bool {
	return slices.ContainsFunc(subs, func(sub *session.Subscription) bool {
		g := b.group(sub)
		return g != nil && g.online()
	})
}

func (b *Broker) group(sub *session.Subscription) *group {
	name, rest, shared := shareOf(sub.Filter)
	if !shared {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.groups[groupName{name, rest}]
}

func (g *group) online() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(g.members, func(m member) bool { return m.cl.online.Load() })
}

// passOn gives what shared subscriptions gave to a session, and it could not
// deliver, to other members of the groups. cl.mu is held, so this is a
// goroutine's.
func (cl *client) passOn(subs []*session.Subscription, left []session.Delivery) {
	if len(left) == 0 {
		return
	}
	b, ses := cl.b, cl.ses
	b.shares.pass(len(left))
	b.serving.Go(func() {
		defer b.shares.pass(-len(left))
		for _, d := range left {
			b.passOn(cl, ses, subs, d)
		}
	})
}

// passOn finds another member for a delivery; with none, it stays with the
// session, if that is there still.
func (b *Broker) passOn(cl *client, ses *session.Session, subs []*session.Subscription, d session.Delivery) {
	if d.Message == nil {
		ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
		defer cancel()
		m, err := b.fetch(ctx, session.Want{Ref: d.Ref})
		if err != nil {
			b.log.Warn("message of a shared subscription not passed on", "client_id", cl.id, "shard", d.Ref.Shard, "seq", d.Ref.Seq, "err", err)
			return
		}
		d.Message = m
	}
	for _, sub := range subs {
		g := b.group(sub)
		if g == nil || !topics.Match(g.filter, d.Message.Topic) {
			continue
		}
		if to, sub := g.pick(); to != nil {
			b.give(d.Message, d.Ref, to, []*session.Subscription{sub})
			return
		}
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.ses == ses {
		cl.queue(d)
	}
}
