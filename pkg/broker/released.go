package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
)

// released are sessions that were let go of a moment ago, in case that nobody
// takes them: the answer may have been lost, or whoever asked have died.
type released struct {
	mu   sync.Mutex
	byID map[string]*handover
}

type handover struct {
	identity string
	answer   taken
	timer    *time.Timer
}

// keep keeps an answer, and calls back when it is time to look what became of
// the session.
func (r *released) keep(t take, answer taken, look func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID == nil {
		r.byID = make(map[string]*handover)
	}
	if h := r.byID[t.ClientID]; h != nil {
		h.timer.Stop()
	}
	r.byID[t.ClientID] = &handover{t.Identity, answer, time.AfterFunc(reclaimAfter, look)}
}

// again gives the answer again, to whoever asks now: the record decides who is
// right.
func (r *released) again(t take) taken {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.byID[t.ClientID]
	switch {
	case h == nil:
		return taken{Outcome: notHere}
	case h.identity != t.Identity:
		return taken{Outcome: foreign}
	}
	return h.answer
}

// of gives the session; nil: there is none.
func (r *released) of(id string) *handover {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[id]
}

// forget forgets the session, once it is back or another node has it: whoever looks
// for it meanwhile finds it.
func (r *released) forget(id string, h *handover) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h != nil && r.byID[id] == h {
		h.timer.Stop()
		delete(r.byID, id)
	}
}

// stop forgets all.
func (r *released) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.byID {
		h.timer.Stop()
	}
	r.byID = nil
}

// reclaim takes a session back that was let go of and that nobody has taken.
func (b *Broker) reclaim(id string) {
	if !b.stay() {
		return
	}
	defer b.serving.Done()
	h := b.released.of(id)
	if h == nil {
		return
	}
	defer func() { b.released.forget(id, h) }() // unless it is kept again
	t := h.answer
	ctx, cancel := context.WithTimeout(b.work, recordTimeout)
	defer cancel()
	r, err := b.store.Records(cluster.Sessions).Get(ctx, recordKey(id))
	if err != nil && !errors.Is(err, cluster.ErrNotFound) {
		b.released.keep(take{ClientID: id, Identity: h.identity}, t, func() { b.reclaim(id) })
		return
	}
	if err != nil || r.Revision != t.Revision {
		return // taken, or over; or the node that can tell will come for it
	}
	if owner, _, err := parseOwnership(r.Value); err == nil && owner.node == b.o.Node {
		b.adopt(id, func(cl *client) error {
			_, err := cl.receive(t)
			return err
		})
	}
}

// adopt brings a session into this node that no client has asked for.
func (b *Broker) adopt(id string, in func(*client) error) {
	cl := b.client(id)
	cl.bringing.Lock()
	defer cl.bringing.Unlock()
	cl.mu.Lock()
	known := cl.known || cl.gone
	cl.mu.Unlock()
	if known {
		return
	}
	if err := in(cl); err != nil {
		b.log.Error("session not taken in", "client_id", id, "err", err)
		cl.mu.Lock()
		cl.forget()
		cl.mu.Unlock()
		return
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.ses != nil && cl.link == nil {
		cl.adopted = true
		cl.schedule(time.Now())
		if cl.ses != nil {
			cl.settle()
		}
	}
}

// shared gives what those sessions have of shared subscriptions.
func (r *released) shared() (all []dealt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, h := range r.byID {
		rec, err := session.ParseRecord(h.answer.Record)
		if err != nil {
			continue
		}
		for _, u := range rec.Unacknowledged {
			if u.Share != "" {
				all = append(all, dealt{Share: u.Share, Client: id, Shard: u.Ref.Shard, Seq: u.Ref.Seq, QoS: unknownQoS})
			}
		}
	}
	return all
}
