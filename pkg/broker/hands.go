package broker

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
)

// This is a node as one of those that the dealer deals to: it tells the dealer
// who its members are and what became of what they were dealt, and takes what it
// deals. The dealer's own node does so, too.

// hands are this node's members of shared subscriptions, and what the dealer is
// to be told.
type hands struct {
	taking sync.Mutex // held while deals are taken, or the state is given

	mu      sync.Mutex
	members map[string]map[*client]struct{} // by share
	changed bool                            // members, or whether they are online
	dealer  string                          // by the record
	epoch   uint64
	sync    uint64 // names the last state that the dealer was given; 0: none
	number  uint64 // of the last report since then
	news    news
	pending *report    // not answered yet
	done    []finished // not known to be in the dealer's record, in the order of reports
	known   map[string]bool
	learned chan struct{} // closed when known has changed
}

// news are what the next report will say.
type news struct {
	Finished []dealt `json:",omitempty"` // the client has them, or they were dropped
	Returned []dealt `json:",omitempty"` // were not sent, and may go to others
	Held     []dealt `json:",omitempty"` // came with a session from another node
}

// finished is a message that the dealer is, or will be, told of.
type finished struct {
	dealt
	sync, number uint64
}

// dealt is a message of a shared subscription for a member.
type dealt struct {
	Share  string
	Client string
	Shard  int    `json:",omitempty"`
	Seq    uint64 `json:",omitempty"`
	QoS    byte   `json:",omitempty"` // as published, or unknownQoS
	Retain bool   `json:",omitempty"`
	Body   []byte `json:",omitempty"` // of a QoS 0 message, which no log has

	m *session.Message // where it is at hand
}

// unknownQoS is that of a message that has to be looked at first.
const unknownQoS = 255

func (d *dealt) ref() session.Ref { return session.Ref{Shard: d.Shard, Seq: d.Seq} }

func (cl *client) dealt(s session.Shared) dealt {
	return dealt{Share: s.Share, Client: cl.id, Shard: s.Ref.Shard, Seq: s.Ref.Seq, QoS: unknownQoS}
}

// report is what a node tells its dealer.
type report struct {
	Sync    uint64
	Number  uint64
	Members map[string][]player `json:",omitempty"` // by share; nil: unchanged
	news
}

// state is all that a node has of shared subscriptions.
type state struct {
	Members map[string][]player
	Held    []dealt
	Done    []dealt
	OK      bool
}

// Questions between nodes about shared subscriptions.
const (
	kindReport = "share-report"
	kindState  = "share-state"
	kindDeal   = "share-deal"
	kindSeize  = "share-seize"
)

const (
	// dealTimeout is how long the dealer waits for a node before it deals to
	// others.
	dealTimeout = 2 * time.Second
	// shareTimeout bounds how long SUBACK waits for a dealer to know of a new
	// shared subscription.
	shareTimeout = 10 * time.Second
	// reportEvery is how often members are told in any case.
	reportEvery = time.Second
)

func (h *hands) init() {
	h.members = make(map[string]map[*client]struct{})
	h.known = make(map[string]bool)
	h.learned = make(chan struct{})
}

// join makes a client a member of a shared subscription, and quit ends that; cl.mu
// is held.
func (b *Broker) join(share string, cl *client) {
	h := &b.hands
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.members[share] == nil {
		h.members[share] = make(map[*client]struct{})
	}
	if _, is := h.members[share][cl]; !is {
		h.members[share][cl] = struct{}{}
		cl.shares++
		b.stats.subscriptions.Add(1)
	}
	h.changed = true
	b.kickReports()
}

func (b *Broker) quit(share string, cl *client) {
	h := &b.hands
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, is := h.members[share][cl]; !is {
		return
	}
	delete(h.members[share], cl)
	if len(h.members[share]) == 0 {
		delete(h.members, share)
	}
	cl.shares--
	b.stats.subscriptions.Add(-1)
	h.changed = true
	b.kickReports()
}

// setOnline notes whether the client is connected; cl.mu is held.
func (cl *client) setOnline(is bool) {
	if cl.online.Swap(is) == is {
		return
	}
	h := &cl.b.hands
	h.mu.Lock()
	defer h.mu.Unlock()
	if cl.shares > 0 {
		h.changed = true
		cl.b.kickReports()
	}
}

func (b *Broker) kickReports() {
	select {
	case b.reportNow <- struct{}{}:
	default:
	}
}

// settleShared tells what has ended in the session; cl.mu is held.
func (cl *client) settleShared() {
	if cl.ses == nil {
		return
	}
	if settled := cl.ses.TakeSettled(); len(settled) > 0 {
		cl.b.hands.finish(cl, settled)
		cl.b.kickReports()
	}
}

func (h *hands) finish(cl *client, all []session.Shared) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range all {
		h.finishOne(cl.dealt(s))
	}
}

// finishOne is of finish; h.mu is held.
func (h *hands) finishOne(d dealt) {
	h.news.Finished = append(h.news.Finished, d)
	h.done = append(h.done, finished{d, h.sync, h.number + 1})
}

// giveBack lets the dealer deal again what the session has and has not sent; with
// over, the session has ended. cl.mu is held.
func (cl *client) giveBack(over bool) {
	left := cl.ses.TakeShared(over)
	cl.settleShared()
	h := &cl.b.hands
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range left {
		if d.Ref.Seq != 0 && d.Share != "" {
			h.news.Returned = append(h.news.Returned, cl.dealt(session.Shared{Share: d.Share, Ref: d.Ref}))
		}
	}
	if over { // what the client may have of QoS 2 is nobody else's [MQTT-4.8.2-5]
		for _, held := range cl.ses.Holdings() {
			if held.Share != "" {
				h.finishOne(cl.dealt(held.Shared))
			}
		}
	}
	cl.b.kickReports()
}

// bringShared tells of what a session has that comes into this node; cl.mu is held.
func (cl *client) bringShared() {
	h := &cl.b.hands
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, held := range cl.ses.Holdings() {
		if held.Share != "" {
			h.news.Held = append(h.news.Held, cl.dealt(held.Shared))
		}
	}
	for _, d := range cl.ses.Done() {
		h.finishOne(cl.dealt(d))
	}
	cl.b.kickReports()
}

// reports tells the dealer what there is to tell, until ctx ends.
func (b *Broker) reports(ctx context.Context) {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.reportNow:
		case <-tick.C:
			b.hands.mu.Lock()
			b.hands.changed = true
			b.hands.mu.Unlock()
		}
		for ctx.Err() == nil && b.report(ctx) {
		}
	}
}

// report makes one report, and says whether there is more to tell.
func (b *Broker) report(ctx context.Context) (more bool) {
	h := &b.hands
	h.mu.Lock()
	if h.sync == 0 {
		h.mu.Unlock()
		return false
	}
	if h.pending == nil {
		n := &h.news
		if !h.changed && len(n.Finished)+len(n.Returned)+len(n.Held) == 0 {
			h.mu.Unlock()
			return false
		}
		h.number++
		h.pending = &report{Sync: h.sync, Number: h.number, news: h.news}
		if h.changed {
			h.pending.Members = h.list()
		}
		h.news, h.changed = news{}, false
	}
	r, to := h.pending, h.dealer
	h.mu.Unlock()
	how, err := b.tellDealer(ctx, to, r)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.pending != r: // the dealer has had the state meanwhile
		return true
	case err != nil, how == laterReport: // again at the next tick, or when there is news of the dealer
		return false
	case how == unknownReport: // the dealer will ask for the state
		h.sync, h.pending = 0, nil
		return false
	}
	h.pending = nil
	return true
}

// reception is what became of a report.
type reception string

const (
	takenReport reception = "taken"
	// laterReport: the dealer has the state that it follows, and is not dealing
	// yet. Were it given up, the dealer would begin with what is not so any more,
	// and never hear of it.
	laterReport reception = "later"
	// unknownReport: this is not the dealer, or it has not had the state.
	unknownReport reception = "unknown"
)

// list gives the members; h.mu is held.
func (h *hands) list() map[string][]player {
	all := make(map[string][]player, len(h.members))
	for share, members := range h.members {
		all[share] = []player{}
		for cl := range members {
			all[share] = append(all[share], player{ID: cl.id, Online: cl.online.Load()})
		}
		slices.SortFunc(all[share], comparePlayers)
	}
	return all
}

func (b *Broker) tellDealer(ctx context.Context, to string, r *report) (how reception, err error) {
	if to == b.o.Node {
		return b.hear(b.o.Node, r), nil
	}
	err = b.question(ctx, to, kindReport, r, &how)
	return how, err
}

// question asks another node, in JSON.
func (b *Broker) question(ctx context.Context, node, kind string, body, answer any) error {
	out, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, dealTimeout)
	defer cancel()
	in, err := b.o.Peers.Ask(ctx, node, kind, out)
	if err != nil {
		return err
	}
	return json.Unmarshal(in, answer)
}

// answerWith makes an answering function of one that takes and gives values.
func answerWith[Q, A any](b *Broker, f func(from string, q Q) A) func(string, []byte) []byte {
	return func(from string, body []byte) []byte {
		var q Q
		if err := json.Unmarshal(body, &q); err != nil {
			b.log.Error("a question about shared subscriptions makes no sense", "node", from, "err", err)
			return nil
		}
		if !b.stay() {
			return nil
		}
		defer b.serving.Done()
		out, _ := json.Marshal(f(from, q))
		return out
	}
}

// stateQuestion names the state that is asked for.
type stateQuestion struct {
	Epoch uint64
	Sync  uint64
}

// giveState gives the dealer all that this node has. From then on this node
// follows it, and takes nothing that was dealt before.
func (b *Broker) giveState(from string, q stateQuestion) state {
	h := &b.hands
	h.taking.Lock()
	defer h.taking.Unlock()
	h.mu.Lock()
	if q.Epoch < h.epoch {
		h.mu.Unlock()
		return state{}
	}
	h.dealer, h.epoch, h.sync, h.number = from, q.Epoch, q.Sync, 0
	h.news, h.pending = news{}, nil
	h.mu.Unlock()
	s := state{OK: true}
	held := make(map[dealKey]bool)
	hold := func(d dealt) {
		s.Held = append(s.Held, d)
		held[key(d)] = true
	}
	for _, cl := range b.all() {
		cl.mu.Lock()
		cl.settleShared()
		if cl.ses != nil {
			for _, x := range cl.ses.Holdings() {
				if x.Share != "" {
					hold(cl.dealt(x.Shared))
				}
			}
		}
		cl.mu.Unlock()
	}
	for _, d := range b.released.shared() { // last: it may just have been let go of
		hold(d)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	// What was given back before it was looked at is not held: that says it.
	h.news.Returned = slices.DeleteFunc(h.news.Returned, func(d dealt) bool { return !held[key(d)] })
	h.news.Finished = nil
	for i := range h.done {
		h.done[i].sync, h.done[i].number = q.Sync, 0
		s.Done = append(s.Done, h.done[i].dealt)
	}
	s.Members, h.changed = h.list(), false
	return s
}

// key is what a message and its member are known by.
func key(d dealt) dealKey { return dealKey{d.Share, d.Client, d.ref()} }

type dealKey struct {
	share, client string
	ref           session.Ref
}

// batch is what is dealt to a node at once.
type batch struct {
	Sync  uint64
	Deals []dealt
}

// batchAnswer says which of a batch could not be taken.
type batchAnswer struct {
	OK      bool
	Refused []int
}

// takeDeals takes what the dealer deals.
func (b *Broker) takeDeals(_ string, deals batch) batchAnswer {
	h := &b.hands
	h.taking.Lock()
	defer h.taking.Unlock()
	h.mu.Lock()
	current := h.sync == deals.Sync
	h.mu.Unlock()
	if !current {
		return batchAnswer{}
	}
	a := batchAnswer{OK: true}
	for i := range deals.Deals {
		if !b.takeDeal(&deals.Deals[i]) {
			a.Refused = append(a.Refused, i)
		}
	}
	return a
}

// takeDeal queues a message for a member; false if that can't have it.
func (b *Broker) takeDeal(d *dealt) bool {
	cl := b.lookup(d.Client)
	if cl == nil {
		return false
	}
	if len(d.Body) > 0 {
		m, err := cluster.ParseMessage(d.Body)
		if err != nil {
			return true
		}
		d.m = fromStore(m)
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	sub := cl.plays(d.Share)
	if sub != nil && d.m == nil && (d.QoS == unknownQoS || min(d.QoS, sub.QoS) == 0) {
		cl.mu.Unlock()
		gone, err := b.look(d)
		cl.mu.Lock()
		if gone {
			b.hands.finish(cl, []session.Shared{{Share: d.Share, Ref: d.ref()}})
			b.kickReports()
			return true
		}
		if err != nil {
			b.log.Warn("message of a shared subscription not fetched", "client_id", cl.id, "shard", d.Shard, "seq", d.Seq, "err", err)
			return false
		}
		sub = cl.plays(d.Share)
	}
	if sub == nil {
		return false
	}
	m := d.m
	if m == nil {
		m = &session.Message{QoS: d.QoS, Retain: d.Retain}
	}
	q, _ := cl.ses.Merge(m, session.Ref{}, sub)
	q.Message = d.m
	q.Shared, q.Share = true, d.Share
	if q.QoS > 0 {
		q.Ref = d.ref()
	}
	verdict := cl.queue(q)
	switch {
	case d.Seq == 0: // nothing is owed
	case verdict == session.Dropped:
		return false
	case q.QoS == 0:
		b.hands.finish(cl, []session.Shared{{Share: d.Share, Ref: d.ref()}})
		b.kickReports()
	}
	return true
}

// plays gives the subscription by which a client that is connected here may be
// dealt to; cl.mu is held.
func (cl *client) plays(share string) *session.Subscription {
	if cl.ses == nil || cl.link == nil {
		return nil
	}
	return cl.ses.Subscription(share)
}

// look fetches a message.
func (b *Broker) look(d *dealt) (gone bool, err error) {
	ctx, cancel := context.WithTimeout(b.work, dealTimeout/2)
	defer cancel()
	m, err := b.fetch(ctx, session.Want{Ref: d.ref()})
	if errors.Is(err, cluster.ErrNotFound) {
		return true, nil
	}
	if err == nil {
		d.m, d.QoS, d.Retain = m, m.QoS, m.Retain
	}
	return false, err
}

// learn takes what the dealer's record says: who deals, which subscriptions are
// known, and which reports are in it.
func (b *Broker) learn(r *dealRecord) {
	h := &b.hands
	h.mu.Lock()
	if r.Epoch >= h.epoch || r.Node == "" {
		if h.dealer != r.Node && r.Epoch > h.epoch {
			h.sync = 0
		}
		h.dealer, h.epoch = r.Node, max(h.epoch, r.Epoch)
	}
	h.known = make(map[string]bool, len(r.Groups))
	for _, g := range r.Groups {
		h.known[g.Share] = true
	}
	close(h.learned)
	h.learned = make(chan struct{})
	if h.pending != nil { // it may be taken now
		b.kickReports()
	}
	heard := r.Heard[b.o.Node]
	var passed []dealt
	h.done = slices.DeleteFunc(h.done, func(f finished) bool {
		is := heard.Sync != 0 && f.sync == heard.Sync && f.number <= heard.Number
		if is {
			passed = append(passed, f.dealt)
		}
		return is
	})
	h.mu.Unlock()
	for _, d := range passed {
		if cl := b.lookup(d.Client); cl != nil {
			cl.mu.Lock()
			if cl.ses != nil {
				cl.ses.Passed(session.Shared{Share: d.Share, Ref: d.ref()})
				cl.settle()
			}
			cl.mu.Unlock()
		}
	}
}

// awaitShare waits until a shared subscription has a place in the record: what is
// published from then on reaches a member, whatever happens to this node.
func (b *Broker) awaitShare(share string) bool {
	ctx, cancel := context.WithTimeout(b.work, shareTimeout)
	defer cancel()
	h := &b.hands
	h.mu.Lock()
	defer h.mu.Unlock()
	for !h.known[share] {
		if h.members[share] == nil { // to be known of before it has members
			h.members[share] = make(map[*client]struct{})
		}
		h.changed = true
		b.kickReports()
		learned := h.learned
		h.mu.Unlock()
		select {
		case <-learned:
		case <-ctx.Done():
		}
		h.mu.Lock()
		if ctx.Err() != nil {
			return h.known[share]
		}
	}
	return true
}

// forgetShare forgets what awaitShare has announced, if nobody has become a member.
func (b *Broker) forgetShare(share string) {
	h := &b.hands
	h.mu.Lock()
	defer h.mu.Unlock()
	if members, is := h.members[share]; is && len(members) == 0 {
		delete(h.members, share)
		h.changed = true
	}
}

// watchDealer follows the dealer's record.
func (b *Broker) watchDealer(ctx context.Context, first func()) {
	for ctx.Err() == nil {
		err := b.store.Records(cluster.Shares).Watch(ctx, func(r cluster.Record) {
			if r.Key != SharesKey || r.Gone {
				return
			}
			rec, err := parseDealRecord(r.Value)
			if err != nil {
				b.log.Error("the record of shared subscriptions", "err", err)
				return
			}
			b.dealt.Store(&rec)
			b.learn(&rec)
			b.dealer.stir()
		}, first)
		if err != nil && ctx.Err() == nil {
			b.log.Error("the record of shared subscriptions can't be followed, trying again", "err", err)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}
}
