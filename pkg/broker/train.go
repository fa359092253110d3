package broker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
)

// A session that comes from elsewhere has a place in the log that is behind the
// one where this node reads. A train takes it from there to here: it reads the
// log once for all sessions that wait for it, while those that come meanwhile
// wait for the next one. The node's own reading goes on; what it finds for a
// session on a train is left to the train, until the train has had it, too.

// trains are the sessions that wait for one.
type trains struct {
	mu      sync.Mutex
	waiting []*seat
	running bool
}

// seat is a session's place on a train. The client's lock guards it.
type seat struct {
	cl   *client
	ses  *session.Session
	tree *tree    // of the train; nil before it leaves
	from []uint64 // by shard: the session has had everything up to here
	left []uint64 // by shard: the last message that was left to the train
	done []bool   // by shard: the session is where the node is
	ways int      // shards that are not done
}

// trainPause is how long a train waits that could not read.
const trainPause = 100 * time.Millisecond

// takes says that a message of the log, found by the node, is the train's to
// bring; the client's lock is held.
func (s *seat) takes(r session.Ref) bool {
	if s == nil || r.Seq == 0 || s.done[r.Shard] {
		return false
	}
	s.left[r.Shard] = r.Seq
	return true
}

// board lets the session, which is behind, catch up; cl.mu is held, and
// the session's subscriptions are in the node's tree already, or get there before
// it is given back.
func (cl *client) board(from []uint64) {
	b := cl.b
	n := len(b.shards)
	s := &seat{cl: cl, ses: cl.ses, from: make([]uint64, n), left: make([]uint64, n), done: make([]bool, n), ways: n}
	copy(s.from, from)
	cl.train = s
	b.trains.mu.Lock()
	defer b.trains.mu.Unlock()
	b.trains.waiting = append(b.trains.waiting, s)
	if !b.trains.running {
		b.trains.running = true
		b.working.Go(b.runTrains)
	}
}

// leaveTrain ends the ride of a session that is over, or on another node; cl.mu
// is held.
func (cl *client) leaveTrain() {
	if s := cl.train; s != nil {
		cl.train = nil
		s.ways = 0
	}
}

// add and drop keep the train's tree as the session has it; the client's lock
// is held.

func (s *seat) add(sub *session.Subscription) {
	if s != nil && s.tree != nil && !sub.Shared() {
		s.tree.Subscribe(sub.Filter, s.cl, sub)
	}
}

func (s *seat) drop(filter string) {
	if s != nil && s.tree != nil {
		s.tree.Unsubscribe(filter, s.cl)
	}
}

// alight ends the ride in one shard if the train has brought everything up to
// at; the client's lock is held.
func (s *seat) alight(shard int, at uint64) {
	if s.ways == 0 || s.done[shard] || s.left[shard] > at {
		return
	}
	s.done[shard] = true
	if s.ways--; s.ways > 0 {
		return
	}
	cl := s.cl
	cl.train = nil
	s.ses.CaughtUp()
	cl.settle()
	if cl.link != nil {
		cl.link.kick()
	}
}

// runTrains runs one train after another, until nobody waits.
func (b *Broker) runTrains() {
	for {
		b.trains.mu.Lock()
		seats := b.trains.waiting
		b.trains.waiting = nil
		b.trains.running = len(seats) > 0
		b.trains.mu.Unlock()
		if len(seats) == 0 {
			return
		}
		b.ride(seats)
	}
}

// ride takes sessions to where the node is.
func (b *Broker) ride(seats []*seat) {
	t := new(tree)
	for _, s := range seats {
		s.cl.mu.Lock()
		if s.ways > 0 {
			s.tree = t
			for _, sub := range s.ses.Subscriptions() {
				if !sub.Shared() {
					t.Subscribe(sub.Filter, s.cl, sub)
				}
			}
		}
		s.cl.mu.Unlock()
	}
	var shards sync.WaitGroup
	for shard := range b.shards {
		shards.Go(func() { b.rideShard(t, shard, seats) })
	}
	shards.Wait()
}

func (b *Broker) rideShard(t *tree, shard int, seats []*seat) {
	from := seats[0].from[shard]
	for _, s := range seats {
		from = min(from, s.from[shard])
	}
	riding := slices.Clone(seats)
	for len(riding) > 0 {
		var err error
		from, riding, err = b.rideOn(t, shard, from, riding)
		if err == nil {
			continue
		}
		if b.work.Err() != nil {
			return
		}
		b.log.Warn("sessions wait for the log, trying again", "shard", shard, "sessions", len(riding), "err", err)
		select {
		case <-time.After(trainPause):
		case <-b.work.Done():
			return
		}
	}
}

// rideOn reads a shard behind from until all are there or something fails, and
// gives how far it came and who is not there.
func (b *Broker) rideOn(t *tree, shard int, from uint64, riding []*seat) (at uint64, rest []*seat, err error) {
	at = from
	// Nobody's subscriptions are new to the tree any more: what the node begins
	// to distribute from now on finds them.
	begun := b.shards[shard].begun.Load()
	bounds, cancel := context.WithTimeout(b.work, recordTimeout)
	_, last, err := b.store.Bounds(bounds, shard)
	cancel()
	if err != nil {
		return at, riding, err
	}
	goal := max(begun, last)
	ctx, arrived := context.WithCancelCause(b.work)
	defer arrived(nil)
	there := func() {
		riding = slices.DeleteFunc(riding, func(s *seat) bool {
			s.cl.mu.Lock()
			defer s.cl.mu.Unlock()
			s.alight(shard, at)
			return s.ways == 0 || s.done[shard]
		})
		if len(riding) == 0 {
			arrived(errArrived)
		}
	}
	found := matchings.Get().(*matching)
	defer found.release()
	err = b.store.Tail(ctx, shard, at+1, func(p cluster.Pos, m *cluster.Message) {
		if m != nil {
			r := session.Ref{Shard: shard, Seq: p.Seq}
			m := fromStore(m)
			b.deal(found, t, m, func(cl *client, subs []*session.Subscription) { b.bringTo(cl, t, m, r, subs) })
			found.hits, found.groups = found.hits[:0], found.groups[:0]
		}
		if at = p.Seq; at >= goal {
			there()
		}
	}, func() {
		at = max(at, goal)
		there()
	})
	if errors.Is(context.Cause(ctx), errArrived) {
		err = nil
	}
	return at, riding, err
}

var errArrived = errors.New("all sessions have caught up")

// bringTo gives a message to a session on the train.
func (b *Broker) bringTo(cl *client, t *tree, m *session.Message, r session.Ref, subs []*session.Subscription) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if s := cl.train; s != nil && s.tree == t && !s.done[r.Shard] && r.Seq > s.from[r.Shard] {
		cl.offer(m, r, subs)
	}
}
