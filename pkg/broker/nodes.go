package broker

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// How this node lives with the others: it follows which of them are there, takes
// in the sessions of those that are lost, and lets its own clients go when it is
// not among the majority any more.

// quorumPatience is how long clients are kept without a quorum: with the two and a
// half seconds until that is noticed, ten.
const quorumPatience = 7500 * time.Millisecond

// lookEvery is how often a node looks whether it is in doubt.
const lookEvery = 200 * time.Millisecond

// startPatience is how long a node that has just started waits for the others
// before it counts them as lost.
const startPatience = cluster.PresumedLost

// joinCluster begins to follow who is there, and gives the views that
// [Broker.followNodes] is to react to, once what this node has is loaded.
func (b *Broker) joinCluster(ctx context.Context) <-chan cluster.View {
	p := b.o.Peers
	v := p.View()
	b.view.Store(&v)
	views, quorum := make(chan cluster.View, 1), make(chan bool, 1)
	b.working.Go(func() {
		p.Watch(ctx, func(v cluster.View) {
			b.view.Store(&v)
			replace(views, v)
			replace(quorum, v.Quorum)
		})
	})
	b.working.Go(func() { b.followQuorum(ctx, quorum) })
	return views
}

// replace puts a value where the last one is the one that counts.
func replace[T any](c chan T, v T) {
	select {
	case <-c:
	default:
	}
	c <- v
}

// followQuorum lets clients go when there is no quorum for too long. It is apart
// from followNodes, which waits for the store then.
//
// It also looks by itself: of a time in which the process stood still, views may
// tell nothing.
func (b *Broker) followQuorum(ctx context.Context, quorum <-chan bool) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	alone := time.NewTimer(time.Hour)
	alone.Stop()
	defer alone.Stop()
	for was := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			b.inDoubt()
		case <-alone.C:
			b.log.Warn("no quorum for too long: clients are let go")
			b.letClientsGo()
		case is := <-quorum:
			switch {
			case was && !is:
				alone.Reset(quorumPatience)
			case is:
				alone.Stop()
			}
			was = is
		}
	}
}

// meet lets others ask this node, and tells it what they cast.
func (b *Broker) meet() {
	b.o.Peers.Answer(kindTake, b.answerTake)
	b.o.Peers.Answer(kindHears, b.answerHears)
	b.o.Peers.Answer(kindRelay, b.relay)
	b.o.Peers.Answer(kindState, answerWith(b, b.giveState))
	b.o.Peers.Answer(kindReport, answerWith(b, func(from string, r report) reception { return b.hear(from, &r) }))
	b.o.Peers.Answer(kindDeal, answerWith(b, b.takeDeals))
	b.o.Peers.Answer(kindSeize, answerWith(b, b.seize))
	b.o.Peers.Hear(kindPublish, b.hearPublish)
}

// followNodes reacts to changes.
func (b *Broker) followNodes(ctx context.Context, views <-chan cluster.View) {
	var was cluster.View
	settled := time.NewTimer(startPatience)
	defer settled.Stop()
	started := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-settled.C:
			started = true
			b.takeIn(ctx)
		case v := <-views:
			b.sayChange(was, v)
			if v.Quorum && (!was.Quorum || came(was, v)) {
				b.reconcile(ctx)
			}
			if v.Quorum && started && (!was.Quorum || lost(was, v)) {
				b.takeIn(ctx)
			}
			was = v
		}
	}
}

// came says that a node is there that was not, or has started anew.
func came(was, is cluster.View) bool {
	for _, n := range is.Nodes {
		if was.Start(n.Name) != n.Start {
			return true
		}
	}
	return false
}

// lost says that a node is gone.
func lost(was, is cluster.View) bool {
	for _, n := range was.Nodes {
		if !is.Has(n.Name) {
			return true
		}
	}
	return false
}

func (b *Broker) sayChange(was, is cluster.View) {
	for _, n := range is.Nodes {
		if !was.Has(n.Name) && n.Name != b.o.Node {
			b.log.Info("node joined", "node", n.Name)
		}
	}
	for _, n := range was.Nodes {
		if !is.Has(n.Name) {
			b.log.Warn("node lost", "node", n.Name)
		}
	}
	if was.Quorum != is.Quorum {
		if is.Quorum {
			b.log.Info("quorum", "nodes", len(is.Nodes), "of", is.Size)
		} else if was.Size > 0 {
			b.log.Warn("no quorum", "nodes", len(is.Nodes), "of", is.Size)
		}
	}
}

// quorum says whether this node is among the majority.
func (b *Broker) quorum() bool {
	v := b.view.Load()
	return v == nil || v.Quorum
}

// holder is the node to ask for a session whose record names owner: that one, or,
// if it is lost, the one that takes in its sessions.
func (b *Broker) holder(owner, key string) string {
	v := b.view.Load()
	if v.Has(owner) || b.heardByOthers(v, owner, ever) {
		return owner
	}
	return heir(v, key)
}

// heir is the node that takes in a lost node's session: another one for each
// session, so that they share the work (rendezvous hashing).
func heir(v *cluster.View, key string) (node string) {
	var best uint64
	for _, n := range v.Nodes {
		h := fnv.New64a()
		_, _ = io.WriteString(h, n.Name)
		_, _ = io.WriteString(h, "\x00")
		_, _ = io.WriteString(h, key)
		if w := mix(h.Sum64()); node == "" || w > best {
			node, best = n.Name, w
		}
	}
	return node
}

// mix spreads what FNV leaves close together.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}

// takeIn takes in the sessions of nodes that are lost, as far as they fall to
// this one: their wills and ends are due, and messages for them wait in the log.
// Nothing is written before something is due; until then a node that comes back
// finds its sessions as it left them.
func (b *Broker) takeIn(ctx context.Context) {
	n := 0
	lost := make(map[string]bool) // by node: nobody hears it
	err := b.each(ctx, cluster.Sessions, func(r cluster.Record) error {
		v := b.view.Load()
		owner, rec, err := parseSession(r)
		if err != nil {
			b.log.Error("session not taken in", "err", err)
			return nil
		}
		if v.Has(owner.node) || heir(v, r.Key) != b.o.Node {
			return nil
		}
		if _, asked := lost[owner.node]; !asked {
			lost[owner.node] = !b.heardByOthers(v, owner.node, ever)
		}
		if !lost[owner.node] {
			return errHeard
		}
		b.adopt(rec.ClientID, func(cl *client) error {
			n++
			_, err := cl.inherit(ctx, r, owner, rec)
			return err
		})
		return nil
	})
	if err != nil && ctx.Err() == nil {
		b.log.Warn("sessions of lost nodes not taken in, trying again", "err", err)
		b.later(time.Second, b.quorum, func() { b.takeIn(ctx) })
	}
	if n > 0 {
		b.log.Info("sessions of lost nodes taken in", "sessions", n)
	}
}

// errHeard says that a node is not lost: another one hears it.
var errHeard = errors.New("another node hears a node that this one does not")

// reconcile looks whether this node still has the sessions that it holds.
func (b *Broker) reconcile(ctx context.Context) {
	if err := b.compare(ctx); err != nil && ctx.Err() == nil {
		b.log.Info("sessions are compared with their records once more", "err", err)
		b.later(time.Second, b.quorum, func() { b.reconcile(ctx) })
	}
}

// compare compares the sessions that this node holds with their records. Those
// that others have taken while it was cut off, or stood still, are lost; those it
// only looked after for a node that is back are that one's again. While one is
// being written, which will tell, it gives an error.
func (b *Broker) compare(ctx context.Context) error {
	v, unclear := b.view.Load(), 0
	held := make(map[string]*client)
	for _, cl := range b.all() {
		held[cl.key] = cl
	}
	err := b.each(ctx, cluster.Sessions, func(r cluster.Record) error {
		cl := held[r.Key]
		delete(held, r.Key)
		if cl == nil {
			return nil
		}
		owner, _, err := parseOwnership(r.Value)
		if err != nil || owner.node == b.o.Node {
			return nil
		}
		cl.mu.Lock()
		defer cl.mu.Unlock()
		switch {
		case cl.ses == nil:
		case cl.record.writing:
			unclear++
		case r.Revision > cl.record.revision, cl.link == nil && v.Has(owner.node):
			cl.lose()
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, cl := range held { // no record: ended elsewhere, or never written
		cl.mu.Lock()
		if cl.ses != nil && cl.record.revision != cluster.None && !cl.record.writing {
			unclear++
			cl.ses.Touch(session.Soon)
			cl.record.unsure = true
			cl.settle()
		}
		cl.mu.Unlock()
	}
	if unclear > 0 {
		return fmt.Errorf("%d records are being written", unclear)
	}
	return nil
}

// letClientsGo ends all connections, for their clients to find a node that can
// serve them.
func (b *Broker) letClientsGo() {
	b.mu.Lock()
	links := make([]*link, 0, len(b.links))
	for l := range b.links {
		links = append(links, l)
	}
	b.mu.Unlock()
	for _, l := range links {
		l.sendAway(mqtt.UseAnotherServer)
	}
}
