package broker

import (
	"sync/atomic"

	"github.com/mqttlb/mqttlb/pkg/broker/session"
)

// Stats are a node's figures at one moment. What counts events counts since the
// start.
type Stats struct {
	Clients       int // connected
	Sessions      int // with those of clients that are away
	Subscriptions int64
	Retained      int
	Queued        int   // messages waiting in sessions
	QueuedBytes   int64 // of those that are in memory
	InFlight      int   // sent and not acknowledged
	Takeovers     uint64
	Received      [3]uint64 // PUBLISH from clients, by QoS
	Sent          [3]uint64 // PUBLISH to clients, by QoS
	Dropped       Dropped
	Tail          []uint64 // the last message of each shard that was fanned out
	TailLag       []int    // by shard, messages that this node has stored and not fanned out yet
}

// Dropped counts deliveries that were given up, by reason.
type Dropped struct{ Full, Expired, TooLarge, Offline, Lost uint64 }

// counters are what is counted as it happens.
type counters struct {
	subscriptions                          atomic.Int64
	takeovers                              atomic.Uint64
	received, sent                         [3]atomic.Uint64
	full, expired, tooLarge, offline, lost atomic.Uint64
}

func (c *counters) drop(d session.Drops) {
	if d == (session.Drops{}) {
		return
	}
	c.full.Add(uint64(d.Full))
	c.expired.Add(uint64(d.Expired))
	c.tooLarge.Add(uint64(d.TooLarge))
	c.offline.Add(uint64(d.Offline))
	c.lost.Add(uint64(d.Lost))
}

// Stats goes through all sessions: for a scrape now and then.
func (b *Broker) Stats() Stats {
	c := &b.stats
	s := Stats{
		Subscriptions: c.subscriptions.Load(),
		Retained:      b.retained.len(),
		Takeovers:     c.takeovers.Load(),
		Dropped: Dropped{
			Full: c.full.Load(), Expired: c.expired.Load(), TooLarge: c.tooLarge.Load(),
			Offline: c.offline.Load(), Lost: c.lost.Load(),
		},
		Tail: b.tail(),
	}
	for i := range b.shards {
		s.TailLag = append(s.TailLag, b.shards[i].lag())
	}
	for i := range s.Received {
		s.Received[i], s.Sent[i] = c.received[i].Load(), c.sent[i].Load()
	}
	for _, cl := range b.all() {
		cl.mu.Lock()
		if cl.ses != nil {
			s.Sessions++
			n, bytes := cl.ses.Queued()
			s.Queued += n
			s.QueuedBytes += bytes
			s.InFlight += cl.ses.InFlight()
		}
		if cl.link != nil {
			s.Clients++
		}
		cl.mu.Unlock()
	}
	return s
}
