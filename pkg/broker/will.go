package broker

import (
	"errors"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/session"
)

// owe publishes a will, once the record says that it is gone; cl.mu is held.
func (cl *client) owe(will *session.Will) {
	if will == nil {
		return
	}
	m := newMessage(*will.Message(cl.id, time.Now()))
	published := func(err error) {
		if err != nil {
			cl.b.log.Error("will not published", "client_id", cl.id, "err", err)
		}
	}
	if !cl.recorded() {
		cl.b.writes.Go(func() { cl.b.publishWill(m, published) })
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
			cl.b.writes.Go(func() { cl.b.publishWill(m, published) })
		}
	}
	cl.save(publish)
}

// publishWill publishes a will; like link.retainFirst it makes it the retained
// message first.
func (b *Broker) publishWill(m *session.Message, done func(error)) {
	if !m.Retain || m.QoS == 0 || !b.clustered() {
		b.publish(m, "", done)
		return
	}
	b.retain(m, func(err error) {
		if err != nil {
			done(err)
			return
		}
		b.writes.Go(func() { b.publish(m, "", done) })
	})
}

// willAgain is the pause before another try to write that a will is due.
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
