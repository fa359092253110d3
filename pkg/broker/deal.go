package broker

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
)

// A shared subscription gives each message to one of its members (5 §4.8.2), on
// whatever node that is. One node of the cluster deals for all of them: it finds
// the messages, picks the members, and knows each message that was dealt until
// the member's node tells that the client has it. A node that is alone deals to
// itself.
//
// Messages are dealt to members that are connected, a window of them to each. All
// that nobody can take now stays where it is, in the log: it costs a group that
// is behind no memory, and its reader goes on when there is room.
//
// What the dealer's record says is what counts after a crash: the place of each
// group, and the holes behind it, which are the messages that are under way.

const (
	// memberWindow is how many messages a member may have and not have ended.
	memberWindow = 256
	// mostPending is how many messages of a group wait in memory for a member.
	mostPending = 1024
	// pendingBytes bounds the bytes of those that are kept with them.
	pendingBytes = 1 << 20
	// dealBatch is how many messages go to a node at once.
	dealBatch = 256
	// mostLoose bounds the QoS 0 messages that wait for a node.
	mostLoose = 1024
	// auditAfter is how old a deal may be before its node is asked what it has.
	auditAfter = 5 * time.Second
	// silentAfter is how long a node may tell nothing before it is asked: it tells
	// who its members are every reportEvery, unless it believes that nobody listens.
	silentAfter = 3 * reportEvery
)

// dealer is the dealing part of a node. Only one node's is on.
type dealer struct {
	saving sync.Mutex // held while the record is written, before mu
	wake   chan struct{}
	tend   chan struct{}

	mu       sync.Mutex
	on       bool
	quorum   func() bool
	epoch    uint64
	revision cluster.Revision
	groups   map[string]*group
	hands    map[string]*hand // by node
	audited  time.Time        // when it was looked for deals that are old
	syncs    uint64           // names states; starts where no earlier dealer has been
	former   uint64           // while this node is about to deal: the last that is of no use to it
}

// hand is what the dealer knows of a node that has members.
type hand struct {
	node    string
	start   uint64 // which start of the node
	ready   bool   // may be dealt to
	busy    bool   // its state is being asked for, or what it had looked after
	heard   heard
	at      time.Time // when it was last heard from
	members map[string][]player
	outbox  []*deal
	sending bool
}

// player is a member as its node tells of it.
type player struct {
	ID     string
	Online bool

	node string
}

func comparePlayers(a, b player) int {
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.node, b.node))
}

// group is a shared subscription where it is dealt.
type group struct {
	share, filter string

	players []player
	next    int
	has     map[string]int  // messages, by member
	full    map[string]bool // could not take one
	dealt   map[session.Ref]*deal
	pending [][]*deal                // to be dealt, by shard, in the order of the log
	waits   int                      // in all of them
	turn    int                      // the shard that is next
	bytes   int                      // of messages in pending
	skip    map[session.Ref]struct{} // ended, and still to be read
	reading []reading
	idle    time.Time // without members since
}

func (*group) isTarget() {}

// deal is a message on its way to a member.
type deal struct {
	dealt
	g     *group
	node  string
	sent  bool // its node may have it
	since time.Time
}

// reading is how far a group is in a shard.
type reading struct {
	at      uint64 // everything up to here is pending, dealt or ended
	behind  bool   // what the node finds is left to the reader
	left    uint64 // the last that was
	running bool
}

func (d *dealer) init(b *Broker) {
	d.wake, d.tend = make(chan struct{}, 1), make(chan struct{}, 1)
	d.quorum = b.quorum
	d.groups, d.hands = make(map[string]*group), make(map[string]*hand)
	d.syncs, d.former = uint64(time.Now().UnixNano()), math.MaxUint64
}

// rouse lets the dealing go on, stir lets the dealer look at the other nodes.
func (d *dealer) rouse() { poke(d.wake) }
func (d *dealer) stir()  { poke(d.tend) }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// found takes a message that this node's reading has found for a group. What is
// for a member on this node it has at once, as from any subscription.
func (b *Broker) found(g *group, m *session.Message, r session.Ref) {
	if h := b.dealer.found(g, m, r, b.o.Node); h != nil {
		b.sendDeals(b.work, h)
	}
}

// found gives the node's own hand if that was idle and now has something to take.
func (d *dealer) found(g *group, m *session.Message, r session.Ref, node string) *hand {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.groups[g.share] != g {
		return nil
	}
	if r.Seq == 0 {
		d.loose(g, m)
	} else if !d.next(g, m, r) {
		return nil
	}
	if !d.on || !d.quorum() {
		return nil
	}
	d.dealOut(g)
	h := d.hands[node]
	if h == nil || !h.ready || h.sending || len(h.outbox) == 0 {
		d.rouse()
		return nil
	}
	h.sending = true
	if g.waits > 0 || len(d.hands) > 1 {
		d.rouse()
	}
	return h
}

// next takes the message that follows what the group has had of a shard, and says
// whether it waits for a member now.
func (d *dealer) next(g *group, m *session.Message, r session.Ref) bool {
	at := &g.reading[r.Shard]
	switch {
	case at.behind:
		at.left = r.Seq
		return false
	case r.Seq <= at.at:
		return false
	case g.waits >= mostPending:
		at.behind, at.left = true, r.Seq
		return false
	}
	at.at = r.Seq
	d.put(g, m, r)
	return true
}

// put appends a message to those that are to be dealt, unless it is known: when a
// group is read again after its dealer was lost, its members may have had some of
// what is read, have it, or have given it back. d.mu is held.
func (d *dealer) put(g *group, m *session.Message, r session.Ref) {
	if _, skip := g.skip[r]; skip {
		delete(g.skip, r)
		return
	}
	if g.dealt[r] != nil || g.awaits(r) {
		return
	}
	x := &deal{dealt: dealt{Share: g.share, Shard: r.Shard, Seq: r.Seq, QoS: m.QoS, Retain: m.Retain}, g: g}
	if g.bytes < pendingBytes {
		x.m = m
		g.bytes += size(m)
	}
	g.pending[r.Shard] = append(g.pending[r.Shard], x)
	g.waits++
}

func size(m *session.Message) int {
	if m == nil {
		return 0
	}
	return len(m.Topic) + len(m.Payload) + len(m.Properties)
}

// again lets a message be dealt again; d.mu is held.
func (d *dealer) again(x *deal) {
	g := x.g
	if x.Seq == 0 {
		return
	}
	g.forget(x)
	x.Client, x.node, x.sent = "", "", false
	x.m = nil
	g.insert(x)
}

// insert puts a message at its place among those that wait.
func (g *group) insert(x *deal) {
	all := g.pending[x.Shard]
	i, found := slices.BinarySearchFunc(all, x, func(a, b *deal) int { return cmp.Compare(a.Seq, b.Seq) })
	if !found {
		g.pending[x.Shard] = slices.Insert(all, i, x)
		g.waits++
	}
}

// awaits says that a message waits to be dealt.
func (g *group) awaits(r session.Ref) bool {
	all := g.pending[r.Shard]
	if len(all) == 0 || all[len(all)-1].Seq < r.Seq {
		return false
	}
	_, found := slices.BinarySearchFunc(all, r.Seq, func(x *deal, seq uint64) int { return cmp.Compare(x.Seq, seq) })
	return found
}

// pass notes that a message has ended, so that it is not dealt again when it is
// read.
func (g *group) pass(r session.Ref) {
	if r.Shard < len(g.reading) && r.Seq > g.reading[r.Shard].at {
		g.skip[r] = struct{}{}
	}
}

// forget takes a message off its member.
func (g *group) forget(x *deal) {
	if g.dealt[x.ref()] == x {
		delete(g.dealt, x.ref())
		if g.has[x.Client]--; g.has[x.Client] <= 0 {
			delete(g.has, x.Client)
		}
	}
}

// assign notes that a member has a message.
func (g *group) assign(x *deal, node, client string) {
	x.node, x.Client, x.since = node, client, time.Now()
	g.dealt[x.ref()] = x
	g.has[client]++
}

// pick gives the member whose turn it is, of those that are connected and have
// room; d.mu is held.
func (d *dealer) pick(g *group) *player {
	for i := range g.players {
		at := (g.next + i) % len(g.players)
		p := &g.players[at]
		if h := d.hands[p.node]; p.Online && h != nil && h.ready && g.has[p.ID] < memberWindow && !g.full[p.ID] {
			g.next = at + 1
			return p
		}
	}
	return nil
}

// loose deals a QoS 0 message, which waits for nobody; d.mu is held.
func (d *dealer) loose(g *group, m *session.Message) {
	if !d.on || !d.quorum() {
		return
	}
	p := d.pick(g)
	if p == nil {
		return
	}
	h := d.hands[p.node]
	if len(h.outbox) >= mostLoose {
		return
	}
	x := &deal{dealt: dealt{Share: g.share, Client: p.ID, m: m}, g: g, node: p.node}
	h.outbox = append(h.outbox, x)
}

// deals deals until ctx ends.
func (b *Broker) deals(ctx context.Context) {
	d := &b.dealer
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		}
		d.mu.Lock()
		if d.on && d.quorum() {
			for _, g := range d.groups {
				d.dealOut(g)
				b.readOn(g)
			}
			for _, h := range d.hands {
				if h.ready && !h.sending && len(h.outbox) > 0 {
					h.sending = true
					b.working.Go(func() { b.sendDeals(ctx, h) })
				}
			}
		}
		d.mu.Unlock()
	}
}

// dealOut deals what waits, as far as there are members with room; d.mu is held.
func (d *dealer) dealOut(g *group) {
	for g.waits > 0 {
		for len(g.pending[g.turn]) == 0 {
			g.turn = (g.turn + 1) % len(g.pending)
		}
		p := d.pick(g)
		if p == nil {
			return
		}
		x := g.pending[g.turn][0]
		g.pending[g.turn][0] = nil
		g.pending[g.turn] = g.pending[g.turn][1:]
		g.waits--
		g.turn = (g.turn + 1) % len(g.pending)
		g.assign(x, p.node, p.ID)
		d.hands[p.node].outbox = append(d.hands[p.node].outbox, x)
		g.bytes -= size(x.m)
	}
}

// sendDeals brings a node what it was dealt, as long as there is something.
func (b *Broker) sendDeals(ctx context.Context, h *hand) {
	d := &b.dealer
	for {
		d.mu.Lock()
		if !h.ready || len(h.outbox) == 0 || ctx.Err() != nil {
			h.sending = false
			d.mu.Unlock()
			d.stir()
			return
		}
		n := min(len(h.outbox), dealBatch)
		sent := h.outbox[:n:n]
		h.outbox = h.outbox[n:]
		deals := batch{Sync: h.heard.Sync, Deals: make([]dealt, n)}
		for i, x := range sent {
			x.sent = true
			deals.Deals[i] = x.dealt
			x.m = nil
		}
		d.mu.Unlock()
		a, err := b.dealTo(ctx, h.node, deals)
		d.mu.Lock()
		if err != nil || !a.OK { // what it has of them, its state will tell
			h.ready, h.sending = false, false
			d.takeBack(h)
			d.mu.Unlock()
			b.log.Info("a node takes nothing of shared subscriptions now", "node", h.node, "err", err)
			d.rouse()
			d.stir()
			return
		}
		for _, i := range a.Refused {
			if x := sent[i]; x.Seq != 0 && x.g.dealt[x.ref()] == x {
				x.g.full[x.Client] = true
				d.again(x)
				d.rouse()
			}
		}
		d.mu.Unlock()
	}
}

// takeBack lets be dealt to others what a node was not sent; d.mu is held.
func (d *dealer) takeBack(h *hand) {
	for _, x := range h.outbox {
		if x.Seq != 0 && x.g.dealt[x.ref()] == x {
			d.again(x)
		}
	}
	h.outbox = nil
}

func (b *Broker) dealTo(ctx context.Context, node string, deals batch) (a batchAnswer, err error) {
	if node == b.o.Node {
		return b.takeDeals(node, deals), nil
	}
	for i := range deals.Deals {
		if x := &deals.Deals[i]; x.Seq == 0 && x.m != nil {
			x.Body = cluster.AppendMessage(nil, toStore(x.m, ""))
		}
	}
	err = b.question(ctx, node, kindDeal, deals, &a)
	return a, err
}

// hear takes a report.
func (b *Broker) hear(from string, r *report) reception {
	d := &b.dealer
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.on && r.Sync > d.former {
		return laterReport
	}
	h := d.hands[from]
	if !d.on || h == nil || h.heard.Sync != r.Sync {
		return unknownReport
	}
	h.at = time.Now()
	switch r.Number {
	case h.heard.Number: // it was taken, and the answer lost
		return takenReport
	case h.heard.Number + 1:
		h.heard.Number = r.Number
	default:
		return unknownReport
	}
	for _, x := range r.Held {
		d.held(from, x)
	}
	for _, x := range r.Finished {
		d.ended(x)
	}
	for _, x := range r.Returned {
		g := d.groups[x.Share]
		if g == nil {
			continue
		}
		if is := g.dealt[x.ref()]; is != nil && is.node == from && is.Client == x.Client {
			d.again(is)
		}
	}
	if r.Members != nil {
		if b.openNew(r.Members) {
			b.saveSoonShares()
		}
		d.seat(h, r.Members)
	}
	d.rouse()
	return takenReport
}

// ended notes that a message has come to its end; d.mu is held.
func (d *dealer) ended(x dealt) {
	g := d.groups[x.Share]
	if g == nil {
		return
	}
	r := x.ref()
	delete(g.full, x.Client)
	if is := g.dealt[r]; is != nil {
		if is.Client == x.Client {
			g.forget(is)
			g.pass(r)
		}
		return
	}
	g.withdraw(r)
	g.pass(r)
}

// withdraw takes a message out of those that wait.
func (g *group) withdraw(r session.Ref) bool {
	if r.Shard >= len(g.pending) {
		return false
	}
	all := g.pending[r.Shard]
	i, found := slices.BinarySearchFunc(all, r.Seq, func(x *deal, seq uint64) int { return cmp.Compare(x.Seq, seq) })
	if found {
		g.bytes -= size(all[i].m)
		g.pending[r.Shard] = slices.Delete(all, i, i+1)
		g.waits--
	}
	return found
}

// held notes that a node has a message for a member; d.mu is held.
func (d *dealer) held(node string, x dealt) {
	g := d.groups[x.Share]
	if g == nil {
		return
	}
	r := x.ref()
	if is := g.dealt[r]; is != nil {
		if is.Client == x.Client {
			is.node, is.sent, is.since = node, true, time.Now()
		}
		return
	}
	if _, ended := g.skip[r]; ended { // with the session, on another node
		return
	}
	if g.withdraw(r) || r.Shard < len(g.reading) && r.Seq > g.reading[r.Shard].at {
		x.QoS = unknownQoS
		g.assign(&deal{dealt: x, g: g, sent: true}, node, x.Client)
	}
}

// seat notes who a node's members are; d.mu is held.
func (d *dealer) seat(h *hand, members map[string][]player) {
	for share := range h.members {
		if _, still := members[share]; !still {
			d.reseat(share, h, nil)
		}
	}
	for share, players := range members {
		d.reseat(share, h, players)
	}
	h.members = members
}

func (d *dealer) reseat(share string, h *hand, players []player) {
	g := d.groups[share]
	if g == nil {
		return
	}
	for i := range players {
		players[i].node = h.node
		delete(g.full, players[i].ID)
	}
	g.players = slices.DeleteFunc(g.players, func(p player) bool { return p.node == h.node })
	g.players = append(g.players, players...)
	slices.SortFunc(g.players, comparePlayers)
	if len(g.players) > 0 {
		g.idle = time.Time{}
	} else if g.idle.IsZero() {
		g.idle = time.Now()
	}
}

// readOn lets the reader of a group that is behind go on, if there is somebody to
// deal to; d.mu is held.
func (b *Broker) readOn(g *group) {
	if g.waits > mostPending/2 || !b.dealer.anyone(g) {
		return
	}
	for shard := range g.reading {
		if at := &g.reading[shard]; at.behind && !at.running {
			at.running = true
			b.working.Go(func() { b.readShare(g, shard) })
		}
	}
}

func (d *dealer) anyone(g *group) bool {
	return slices.ContainsFunc(g.players, func(p player) bool {
		h := d.hands[p.node]
		return p.Online && h != nil && h.ready
	})
}
