package broker

import (
	"errors"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
)

// owe publishes a will, once the record says that it is gone; cl.mu is held.
func (cl *client) owe(will *session.Will) {
	if will == nil {
		return
	}
	m := newMessage(*will.Message(cl.id, time.Now()))
	send := func() { cl.b.publishWill(cl.id, m, newDedupID()) }
	if !cl.recorded() {
		cl.b.writes.Go(send)
		return
	}
	var publish func(error)
	publish = func(err error) {
		switch {
		case errors.Is(err, errLost): // it is another node's to publish
		case err != nil && cl.b.clustered():
			cl.b.later(willAgain, cl.b.quorum, func() {
				cl.mu.Lock()
				defer cl.mu.Unlock()
				cl.save(publish)
			})
		default: // better twice after a crash than never
			cl.b.writes.Go(send)
		}
	}
	cl.save(publish)
}

// publishWill publishes a will, again and again until the store has it, under a
// name by which the store takes it once: nobody else knows of it any more. Like
// link.retainFirst it makes it the retained message first.
func (b *Broker) publishWill(client string, m *session.Message, name string) {
	done := func(err error) {
		switch {
		case err == nil:
		case errors.Is(err, cluster.ErrTooLarge), b.work.Err() != nil:
			b.log.Error("will not published", "client_id", client, "topic", m.Topic, "err", err)
		default:
			b.log.Warn("will not published yet, trying again", "client_id", client, "topic", m.Topic, "err", err)
			b.later(willAgain, b.quorum, func() { b.publishWill(client, m, name) })
		}
	}
	if !m.Retain || m.QoS == 0 || !b.clustered() {
		b.publish(m, name, done)
		return
	}
	b.retain(m, func(err error) {
		if err != nil {
			done(err)
			return
		}
		b.writes.Go(func() { b.publish(m, name, done) })
	})
}

// willAgain is the pause before another try to write that a will is due, or to
// publish it.
const willAgain = time.Second

// later calls f after a while, once may says so, unless the broker stops before.
func (b *Broker) later(after time.Duration, may func() bool, f func()) {
	b.writes.Go(func() {
		tick := time.NewTicker(after)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if may() {
					f()
					return
				}
			case <-b.work.Done():
				return
			}
		}
	})
}
