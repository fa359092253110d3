package broker

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
)

const (
	// tendEvery is how often a node looks whether the dealer's part falls to it,
	// and the dealer at the other nodes.
	tendEvery = 100 * time.Millisecond
	// idleAfter is how long a group is kept that has no members: a session that
	// moves has none for a moment.
	idleAfter = 10 * time.Second
)

var errNotDealer = errors.New("another node deals")

// tendDeals takes on the dealer's part when it falls to this node, and looks
// after the nodes that are dealt to, until ctx ends.
func (b *Broker) tendDeals(ctx context.Context) {
	d := &b.dealer
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	seen := make(map[string]bool)
	begun := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-d.tend:
		}
		v := b.nodes()
		for _, n := range v.Nodes {
			seen[n.Name] = true
		}
		if !v.Quorum {
			continue
		}
		// Who has not been seen may be about to start.
		patient := time.Since(begun) > startPatience || len(seen) >= v.Size
		rec := b.dealt.Load()
		d.mu.Lock()
		on, epoch := d.on, d.epoch
		d.mu.Unlock()
		switch {
		case on && rec != nil && (rec.Node != b.o.Node || rec.Epoch > epoch):
			b.stopDealing()
		case on:
			b.tendHands(ctx, v)
		case patient && b.mayDeal(v, rec):
			if err := b.beginDealing(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, errNotDealer) {
				b.log.Warn("shared subscriptions wait, trying again", "err", err)
			}
		}
	}
}

// nodes is the view; of itself, for a node that is alone.
func (b *Broker) nodes() *cluster.View {
	if v := b.view.Load(); v != nil {
		return v
	}
	return &cluster.View{Size: 1, Quorum: true, Nodes: []cluster.Node{{Name: b.o.Node, Start: 1, Heard: true}}}
}

// mayDeal says whether the dealer's part falls to this node.
func (b *Broker) mayDeal(v *cluster.View, rec *dealRecord) bool {
	if rec != nil && rec.Node == b.o.Node {
		return true
	}
	if rec != nil && rec.Node != "" && v.Has(rec.Node) {
		return false
	}
	return heir(v, SharesKey) == b.o.Node
}

// beginDealing makes this node the dealer: it writes its name into the record,
// learns from all nodes what they have, and deals what is left.
func (b *Broker) beginDealing(ctx context.Context) error {
	d := &b.dealer
	d.saving.Lock()
	defer d.saving.Unlock()
	get, cancel := context.WithTimeout(ctx, recordTimeout)
	r, err := b.store.Records(cluster.Shares).Get(get, SharesKey)
	cancel()
	var rec dealRecord
	switch {
	case errors.Is(err, cluster.ErrNotFound):
	case err != nil:
		return err
	default:
		if rec, err = parseDealRecord(r.Value); err != nil {
			return err
		}
	}
	if !b.mayDeal(b.nodes(), &rec) {
		return errNotDealer
	}
	rec.Node, rec.Heard = b.o.Node, nil
	b.hands.mu.Lock()
	rec.Epoch = max(rec.Epoch, b.hands.epoch) + 1
	b.hands.mu.Unlock()
	revision, err := b.putShares(&rec, r.Revision)
	if err != nil {
		return err
	}
	first := b.nodes()
	if b.clustered() {
		if err := b.seizeLost(ctx, first); err != nil {
			return err
		}
	}
	d.mu.Lock()
	d.former = d.syncs
	d.mu.Unlock()
	states, hands, err := b.allStates(ctx, first, rec.Epoch)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.former = math.MaxUint64
	if err != nil {
		return err
	}
	d.epoch, d.revision = rec.Epoch, revision
	d.hands = hands
	d.groups = make(map[string]*group)
	for _, g := range rec.Groups {
		b.open(g)
	}
	for node, s := range states {
		if b.openNew(s.Members) {
			b.saveSoonShares()
		}
		for _, x := range s.Held {
			d.held(node, x)
		}
		for _, x := range s.Done {
			d.ended(x)
		}
	}
	for node, s := range states {
		d.seat(hands[node], s.Members)
	}
	d.on = true
	d.rouse()
	b.log.Info("this node deals for shared subscriptions", "groups", len(d.groups), "epoch", d.epoch)
	return nil
}

// open begins to deal for a group, from where the record says; d.mu is held.
func (b *Broker) open(r dealGroup) {
	_, filter, shared := shareOf(r.Share)
	if !shared {
		return
	}
	g := b.newGroup(r.Share, filter)
	for shard := range g.reading {
		g.reading[shard].behind = true
		if shard < len(r.Places) {
			g.reading[shard].at = r.Places[shard]
		}
	}
	for _, h := range r.Holes {
		if h.Shard < len(g.pending) {
			g.insert(&deal{dealt: dealt{Share: r.Share, Shard: h.Shard, Seq: h.Seq, QoS: unknownQoS}, g: g})
		}
	}
	for _, e := range r.Ended {
		g.pass(e)
	}
}

func (b *Broker) newGroup(share, filter string) *group {
	g := &group{
		share: share, filter: filter,
		has: make(map[string]int), full: make(map[string]bool),
		dealt: make(map[session.Ref]*deal), skip: make(map[session.Ref]struct{}),
		pending: make([][]*deal, len(b.shards)), reading: make([]reading, len(b.shards)),
		idle: time.Now(),
	}
	b.dealer.groups[share] = g
	b.tree.Subscribe(filter, g, nil)
	return g
}

// openNew begins to deal for groups that a node has members of and that are new,
// and says whether there are such; d.mu is held.
func (b *Broker) openNew(members map[string][]player) (are bool) {
	for share := range members {
		if b.dealer.groups[share] != nil {
			continue
		}
		if _, filter, shared := shareOf(share); shared {
			b.newGroup(share, filter)
			are = true
		}
	}
	return are
}

// close ends a group; d.mu is held.
func (b *Broker) close(g *group) {
	delete(b.dealer.groups, g.share)
	b.tree.Unsubscribe(g.filter, g)
}

// stopDealing gives the dealer's part up.
func (b *Broker) stopDealing() {
	d := &b.dealer
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.on {
		b.log.Info("another node deals for shared subscriptions now")
	}
	d.on = false
	for _, g := range d.groups {
		b.close(g)
	}
	for _, h := range d.hands {
		h.ready, h.outbox = false, nil
	}
	d.hands = make(map[string]*hand)
}

// allStates asks all nodes that are there what they have, and gives up when one is
// gone that was there at first. It asks until all answer, and then once more: while
// one loads what it has, sessions may move by their records, and be with nobody when
// that is asked. When all are at work they are handed over, and always with one.
func (b *Broker) allStates(ctx context.Context, first *cluster.View, epoch uint64) (map[string]state, map[string]*hand, error) {
	complete := false
	for pause, waited := tendEvery/4, time.Duration(0); ; pause = min(2*pause, statePause) {
		v := b.nodes()
		if !v.Quorum {
			return nil, nil, cluster.ErrUnavailable
		}
		for _, n := range first.Nodes {
			if v.Start(n.Name) != n.Start { // what it had is to be taken in first
				return nil, nil, cluster.ErrUnavailable
			}
		}
		states, hands, silent := b.askAll(ctx, v, epoch)
		if len(silent) == 0 && complete {
			return states, hands, nil
		}
		if complete = len(silent) == 0; complete {
			continue
		}
		if waited += pause; waited > stateWarning {
			b.log.Warn("shared subscriptions wait for nodes that do not tell what they have", "nodes", silent)
			waited = 0
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

const (
	statePause   = time.Second      // at most, between two rounds of questions
	stateWarning = 10 * time.Second // after which the log has who is waited for
)

// askAll asks each node once, and gives those that have not answered.
func (b *Broker) askAll(ctx context.Context, v *cluster.View, epoch uint64) (states map[string]state, hands map[string]*hand, silent []string) {
	states, hands = make(map[string]state), make(map[string]*hand)
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, n := range v.Nodes {
		asked.Go(func() {
			h := &hand{node: n.Name, start: n.Start, ready: true, heard: heard{Sync: b.nextSync()}}
			s, err := b.stateOf(ctx, n.Name, stateQuestion{epoch, h.heard.Sync})
			h.at = time.Now()
			mu.Lock()
			defer mu.Unlock()
			if err != nil || !s.OK {
				silent = append(silent, n.Name)
				return
			}
			states[n.Name], hands[n.Name] = s, h
		})
	}
	asked.Wait()
	slices.Sort(silent)
	return states, hands, silent
}

func (b *Broker) nextSync() uint64 {
	d := &b.dealer
	d.mu.Lock()
	defer d.mu.Unlock()
	d.syncs++
	return d.syncs
}

func (b *Broker) stateOf(ctx context.Context, node string, q stateQuestion) (s state, err error) {
	if node == b.o.Node {
		return b.giveState(node, q), nil
	}
	err = b.question(ctx, node, kindState, q, &s)
	return s, err
}

// tendHands looks after the nodes: the state of those that have come, or have not
// answered, is asked for; what those had that are lost is dealt again.
func (b *Broker) tendHands(ctx context.Context, v *cluster.View) {
	d := &b.dealer
	d.mu.Lock()
	defer d.mu.Unlock()
	audit := time.Since(d.audited) > auditAfter/2
	if audit {
		d.audited = time.Now()
	}
	for _, n := range v.Nodes {
		h := d.hands[n.Name]
		if h == nil {
			h = &hand{node: n.Name}
			d.hands[n.Name] = h
		}
		if h.busy || h.sending {
			continue
		}
		if !h.ready || h.start != n.Start || audit && d.old(n.Name) || time.Since(h.at) > silentAfter {
			if h.start != n.Start {
				d.takeBack(h)
			}
			h.busy, h.ready = true, false
			b.working.Go(func() { b.askAgain(ctx, h, n.Start) })
		}
	}
	for _, h := range d.hands {
		if v.Has(h.node) || h.busy {
			continue
		}
		h.ready, h.busy, h.start = false, true, 0
		h.heard = heard{}
		d.takeBack(h)
		d.seat(h, nil)
		d.rouse()
		b.working.Go(func() { b.lostHand(ctx, h) })
	}
}

// old says that a node has had something for so long that it is asked about it;
// d.mu is held.
func (d *dealer) old(node string) bool {
	for _, g := range d.groups {
		for _, x := range g.dealt {
			if x.node == node && x.sent && time.Since(x.since) > auditAfter {
				return true
			}
		}
	}
	return false
}

// askAgain asks a node for its state, and deals again what it should have and has
// not.
func (b *Broker) askAgain(ctx context.Context, h *hand, start uint64) {
	d := &b.dealer
	d.mu.Lock()
	epoch := d.epoch
	d.mu.Unlock()
	q := stateQuestion{epoch, b.nextSync()}
	s, err := b.stateOf(ctx, h.node, q)
	d.mu.Lock()
	defer d.mu.Unlock()
	h.busy = false
	if err != nil || !s.OK || d.hands[h.node] != h || d.epoch != epoch {
		return
	}
	h.ready, h.start, h.heard, h.at = true, start, heard{Sync: q.Sync}, time.Now()
	if b.openNew(s.Members) {
		b.saveSoonShares()
	}
	held := make(map[dealKey]bool)
	for _, x := range s.Held {
		d.held(h.node, x)
		held[key(x)] = true
	}
	for _, x := range s.Done {
		d.ended(x)
	}
	d.seat(h, s.Members)
	d.rouse()
	var missing []*deal
	for _, g := range d.groups {
		for _, x := range g.dealt {
			if x.node == h.node && x.sent && !held[key(x.dealt)] {
				x.since = time.Now()
				missing = append(missing, x)
			}
		}
	}
	if len(missing) > 0 {
		b.working.Go(func() { b.resolve(ctx, missing) })
	}
}

// lostHand finds out what became of what a lost node had.
func (b *Broker) lostHand(ctx context.Context, h *hand) {
	d := &b.dealer
	d.mu.Lock()
	var all []*deal
	clients := make(map[string]bool)
	for _, g := range d.groups {
		for _, x := range g.dealt {
			if x.node == h.node {
				all = append(all, x)
				clients[x.Client] = true
			}
		}
	}
	d.mu.Unlock()
	ids := make([]string, 0, len(clients))
	for id := range clients {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	err := b.seizeAll(ctx, b.nodes(), ids)
	if err == nil {
		b.resolve(ctx, all)
	} else if ctx.Err() == nil {
		b.log.Warn("sessions of a lost node not taken in, trying again", "node", h.node, "err", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	h.busy = false
	if err == nil && d.hands[h.node] == h && !b.nodes().Has(h.node) && !slices.ContainsFunc(all, func(x *deal) bool { return x.node == h.node }) {
		delete(d.hands, h.node)
	}
}

// resolve finds out from the records of sessions where messages are that no node
// says to have, and deals those again that nobody has.
func (b *Broker) resolve(ctx context.Context, all []*deal) {
	d := &b.dealer
	type records struct {
		owner string
		known bool
		has   map[dealKey]bool // true: has it, false: it is done
	}
	sessions := make(map[string]*records)
	for _, x := range all {
		d.mu.Lock()
		client := x.Client
		d.mu.Unlock()
		if client == "" || sessions[client] != nil {
			continue
		}
		s := &records{has: make(map[dealKey]bool)}
		sessions[client] = s
		get, cancel := context.WithTimeout(ctx, recordTimeout)
		r, err := b.store.Records(cluster.Sessions).Get(get, recordKey(client))
		cancel()
		if errors.Is(err, cluster.ErrNotFound) {
			s.known = true
			continue
		}
		if err != nil {
			continue
		}
		owner, rec, err := parseSession(r)
		if err != nil {
			continue
		}
		s.owner, s.known = owner.node, true
		for _, u := range rec.Unacknowledged {
			s.has[dealKey{u.Share, client, u.Ref}] = true
		}
		for _, u := range rec.Done {
			s.has[dealKey{u.Share, client, u.Ref}] = false
		}
	}
	v := b.nodes()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, x := range all {
		s := sessions[x.Client]
		if x.g.dealt[x.ref()] != x || s == nil || !s.known {
			continue
		}
		has, there := s.has[key(x.dealt)]
		switch {
		case there && !has:
			x.g.forget(x)
			x.g.pass(x.ref())
		case s.owner != "" && s.owner != x.node && v.Has(s.owner): // that one tells, and is asked now
			x.node, x.since, d.audited = s.owner, time.Time{}, time.Time{}
		case there && v.Has(s.owner):
			x.since = time.Now()
		default:
			d.again(x)
		}
	}
	d.rouse()
}

// seizeLost has all sessions that have to do with shared subscriptions and whose
// nodes are lost taken in by others: from then on, what their records say of
// messages in flight is all that they can still deliver.
func (b *Broker) seizeLost(ctx context.Context, v *cluster.View) error {
	var ids []string
	err := b.each(ctx, cluster.Sessions, func(r cluster.Record) error {
		owner, rec, err := parseSession(r)
		if err != nil || v.Has(owner.node) {
			return nil
		}
		shares := len(rec.Done) > 0 ||
			slices.ContainsFunc(rec.Subscriptions, func(s session.Subscription) bool { return s.Shared() }) ||
			slices.ContainsFunc(rec.Unacknowledged, func(u session.Unacknowledged) bool { return u.Share != "" })
		if shares {
			ids = append(ids, rec.ClientID)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return b.seizeAll(ctx, v, ids)
}

// seizeAll has sessions taken in by those nodes to which they fall, and their
// records say so.
func (b *Broker) seizeAll(ctx context.Context, v *cluster.View, ids []string) error {
	by := make(map[string][]string)
	for _, id := range ids {
		node := heir(v, recordKey(id))
		by[node] = append(by[node], id)
	}
	var there []string
	for _, n := range v.Nodes {
		there = append(there, n.Name)
	}
	var errs error
	for node, ids := range by {
		var ok bool
		var err error
		q := seizure{ids, there}
		if node == b.o.Node {
			ok = b.seize(node, q)
		} else {
			err = b.question(ctx, node, kindSeize, q, &ok)
		}
		if err == nil && !ok {
			err = cluster.ErrUnavailable
		}
		errs = errors.Join(errs, err)
	}
	return errs
}

// seizure is the wish to have sessions taken in, but for those whose nodes are
// there.
type seizure struct {
	IDs   []string
	There []string
}

// seize takes in sessions of nodes that are lost, and writes so into their
// records. It fails as long as this node sees one of those nodes: what that has is
// not settled then.
func (b *Broker) seize(_ string, q seizure) bool {
	var all sync.WaitGroup
	var mu sync.Mutex
	failed := false
	width := make(chan struct{}, 64)
	for _, id := range q.IDs {
		width <- struct{}{}
		all.Go(func() {
			defer func() { <-width }()
			if !b.seizeOne(id, q.There) {
				mu.Lock()
				failed = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return !failed
}

func (b *Broker) seizeOne(id string, there []string) bool {
	ctx, cancel := context.WithTimeout(b.work, recordTimeout)
	defer cancel()
	r, err := b.store.Records(cluster.Sessions).Get(ctx, recordKey(id))
	if err != nil {
		return errors.Is(err, cluster.ErrNotFound)
	}
	owner, rec, err := parseSession(r)
	switch {
	case err != nil:
		return false
	case slices.Contains(there, owner.node):
		return true
	case b.nodes().Has(owner.node):
		return false
	}
	b.adopt(id, func(cl *client) error {
		_, err := cl.inherit(ctx, r, owner, rec)
		return err
	})
	cl := b.lookup(id)
	if cl == nil {
		return false
	}
	written := make(chan error, 1)
	cl.mu.Lock()
	if cl.ses == nil { // it was over
		cl.mu.Unlock()
		return false
	}
	cl.ses.Touch(session.First)
	cl.save(func(err error) { written <- err })
	cl.mu.Unlock()
	select {
	case err := <-written:
		return err == nil
	case <-ctx.Done():
		return false
	}
}

// putShares writes the record and waits.
func (b *Broker) putShares(rec *dealRecord, revision cluster.Revision) (cluster.Revision, error) {
	type result struct {
		revision cluster.Revision
		err      error
	}
	done := make(chan result, 1)
	b.store.Records(cluster.Shares).Put(SharesKey, rec.append(nil), revision, func(r cluster.Revision, err error) { done <- result{r, err} })
	r := <-done
	return r.revision, r.err
}

// saveSoonShares has the record written at once.
func (b *Broker) saveSoonShares() {
	select {
	case b.saveNow <- struct{}{}:
	default:
	}
}

// saveShares writes how far shared subscriptions are, if this node deals and
// something has changed.
func (b *Broker) saveShares() { b.saveSharesFor(b.o.Node) }

func (b *Broker) saveSharesFor(owner string) {
	d := &b.dealer
	d.saving.Lock()
	defer d.saving.Unlock()
	b.dropIdle()
	tail := b.tail() // before the groups are looked at: what was found by then is with them
	d.mu.Lock()
	if !d.on || !b.quorum() {
		d.mu.Unlock()
		return
	}
	rec := dealRecord{Node: owner, Epoch: d.epoch, Heard: make(map[string]heard, len(d.hands))}
	revision := d.revision
	for node, h := range d.hands {
		if h.heard.Sync != 0 {
			rec.Heard[node] = h.heard
		}
	}
	for _, g := range d.groups {
		rec.Groups = append(rec.Groups, g.record(tail))
	}
	d.mu.Unlock()
	slices.SortFunc(rec.Groups, func(a, b dealGroup) int { return strings.Compare(a.Share, b.Share) })
	if is := b.dealt.Load(); is != nil && is.equal(&rec) {
		return
	}
	revision, err := b.putShares(&rec, revision)
	if err != nil {
		if revision, err = b.examineShares(err, rec.Epoch); err != nil {
			if errors.Is(err, errNotDealer) {
				b.stopDealing()
			} else {
				b.log.Warn("the place of shared subscriptions not written, trying again", "err", err)
			}
			return
		}
	}
	d.mu.Lock()
	d.revision = revision
	d.mu.Unlock()
}

// examineShares looks at the record after a write that failed: it may have
// happened, and the engine says a conflict now and then where there is none.
func (b *Broker) examineShares(err error, epoch uint64) (cluster.Revision, error) {
	if !errors.Is(err, cluster.ErrConflict) && !errors.Is(err, cluster.ErrUnavailable) {
		return cluster.None, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	r, e := b.store.Records(cluster.Shares).Get(ctx, SharesKey)
	if e != nil {
		return cluster.None, errors.Join(err, e)
	}
	is, e := parseDealRecord(r.Value)
	if e != nil || is.Node != b.o.Node || is.Epoch != epoch {
		return cluster.None, errNotDealer
	}
	return r.Revision, nil
}

// record is how far a group is; d.mu is held.
func (g *group) record(tail []uint64) dealGroup {
	r := dealGroup{Share: g.share, Places: make([]uint64, len(g.reading))}
	for shard := range g.reading {
		at := &g.reading[shard]
		r.Places[shard] = at.at
		if !at.behind {
			r.Places[shard] = max(at.at, tail[shard])
		}
	}
	hole := func(x *deal) {
		if x.Seq <= r.Places[x.Shard] {
			r.Holes = append(r.Holes, x.ref())
		}
	}
	for _, x := range g.dealt {
		hole(x)
	}
	for _, all := range g.pending {
		for _, x := range all {
			hole(x)
		}
	}
	slices.SortFunc(r.Holes, compareRefs)
	for e := range g.skip {
		if e.Seq > r.Places[e.Shard] {
			r.Ended = append(r.Ended, e)
		} else { // it was not there any more when the place was read
			delete(g.skip, e)
		}
	}
	slices.SortFunc(r.Ended, compareRefs)
	return r
}

// dropIdle ends the groups that nobody is a member of any more, nor is to be when
// the node of a session is back.
func (b *Broker) dropIdle() {
	d := &b.dealer
	idle := make(map[string]*group)
	d.mu.Lock()
	for share, g := range d.groups {
		if d.on && !g.idle.IsZero() && time.Since(g.idle) > idleAfter {
			g.idle = time.Now()
			idle[share] = g
		}
	}
	d.mu.Unlock()
	if len(idle) == 0 {
		return
	}
	err := b.each(b.work, cluster.Sessions, func(r cluster.Record) error {
		_, rec, err := parseSession(r)
		if err != nil {
			return err
		}
		for _, s := range rec.Subscriptions {
			delete(idle, s.Filter)
		}
		return nil
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range idle {
		if err == nil && len(g.players) == 0 && d.groups[g.share] == g {
			b.close(g)
		}
	}
}

// leaveDeals ends the dealer's part of a node that stops: what its members have
// told is in the record, and anyone may be the dealer then.
func (b *Broker) leaveDeals() {
	b.hands.mu.Lock()
	own := b.hands.dealer == b.o.Node
	b.hands.mu.Unlock()
	for own && b.report(context.Background()) {
	}
	owner := b.o.Node
	if b.clustered() {
		owner = ""
	}
	b.saveSharesFor(owner)
}
