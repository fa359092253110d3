package broker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
	"github.com/mqttlb/mqttlb/pkg/broker/topics"
)

// retained are the retained messages of all topics, as this node knows them.
type retained struct {
	index topics.Index

	mu      sync.RWMutex
	byTopic map[string]kept
	coming  map[string]coming
}

// kept is what the store is known to have.
type kept struct {
	m        *session.Message // nil: it was removed
	revision cluster.Revision // a later change has a higher one
}

// coming is what clients of this node have published and the store does not
// have yet. It counts at once: who subscribes while a new value is under way, and
// too late to get it as it is published, must not be left with the old one
// (C023).
type coming struct {
	m     *session.Message // the last one
	count int
}

func (r *retained) init() {
	r.byTopic = make(map[string]kept)
	r.coming = make(map[string]coming)
}

func (r *retained) get(topic string) *session.Message {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.shown(topic)
}

// shown is what subscribers get; r.mu is held.
func (r *retained) shown(topic string) *session.Message {
	m := r.byTopic[topic].m
	if c, ok := r.coming[topic]; ok {
		m = c.m
	}
	if m == nil || len(m.Payload) == 0 {
		return nil
	}
	return m
}

func (r *retained) len() int { return r.index.Len() }

// expect shows a message that is on its way into the store.
func (r *retained) expect(m *session.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.coming[m.Topic] = coming{m, r.coming[m.Topic].count + 1}
	r.list(m.Topic)
}

// arrive takes the outcome of that.
func (r *retained) arrive(m *session.Message, revision cluster.Revision, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.keep(m, revision)
	}
	c := r.coming[m.Topic]
	if c.count--; c.count > 0 {
		r.coming[m.Topic] = c
	} else {
		delete(r.coming, m.Topic)
		if r.byTopic[m.Topic].m == nil {
			delete(r.byTopic, m.Topic)
		}
	}
	r.list(m.Topic)
}

// apply takes a change that the store tells of, ours as well.
func (r *retained) apply(m *session.Message, revision cluster.Revision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keep(m, revision)
	r.list(m.Topic)
}

// keep takes a change unless a later one is known. That a message was removed is
// remembered as long as an earlier change may still arrive. r.mu is held.
func (r *retained) keep(m *session.Message, revision cluster.Revision) {
	if r.byTopic[m.Topic].revision >= revision {
		return
	}
	k := kept{m, revision}
	if len(m.Payload) == 0 {
		k.m = nil
	}
	if _, ok := r.coming[m.Topic]; k.m == nil && !ok {
		delete(r.byTopic, m.Topic)
		return
	}
	r.byTopic[m.Topic] = k
}

// list keeps the index as it has to be; r.mu is held.
func (r *retained) list(topic string) {
	if r.shown(topic) == nil {
		r.index.Delete(topic)
	} else {
		r.index.Set(topic)
	}
}

// match calls f with the retained messages that a filter matches and that have
// not expired.
func (r *retained) match(filter string, now time.Time, f func(*session.Message)) {
	r.index.Match(filter, func(name string) bool {
		if m := r.get(name); m != nil && !expired(m.Expires, now) {
			f(m)
		}
		return true
	})
}

// retain makes m the retained message of its topic [MQTT-3.3.1-5]; an empty one
// removes it [MQTT-3.3.1-6]. Subscribers see that at once, done says when it
// will last.
func (b *Broker) retain(m *session.Message, done func(error)) {
	b.retained.expect(m)
	b.store.SetRetained(toStore(m, ""), func(revision cluster.Revision, err error) {
		b.retained.arrive(m, revision, err)
		done(err)
	})
}

// syncRetained waits until this node knows what other nodes' clients have
// retained by now: whoever was answered there can rely on what a subscriber gets
// here. Without an answer in time, what is known has to do.
func (b *Broker) syncRetained() {
	if !b.clustered() {
		return
	}
	ctx, cancel := context.WithTimeout(b.work, retainedTimeout)
	defer cancel()
	if err := b.store.SyncRetained(ctx); err != nil && b.work.Err() == nil {
		b.log.Warn("retained messages may be behind those of other nodes", "err", err)
	}
}

// retainedTimeout bounds the wait for that.
const retainedTimeout = 3 * time.Second

// watchRetained loads all retained messages and goes on to follow their changes.
func (b *Broker) watchRetained(ctx, work context.Context) error {
	loaded := make(chan struct{})
	failed := make(chan error, 1)
	b.working.Go(func() {
		err := b.store.Retained(work, func(m *cluster.Message, revision cluster.Revision) {
			b.retained.apply(fromStore(m), revision)
		}, func() { close(loaded) })
		if err != nil && work.Err() == nil {
			b.log.Error("retained messages can't be followed any more", "err", err)
			b.ready.Store(false)
			failed <- err
		}
	})
	select {
	case <-loaded:
		return nil
	case err := <-failed:
		return fmt.Errorf("read retained messages: %w", err)
	case <-ctx.Done():
		return ctx.Err()
	}
}
