package session

import (
	"slices"
	"strings"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// Subscription is a Topic Filter with its options (5 §3.8.3.1). One that a
// session holds does not change: subscribing anew makes another.
type Subscription struct {
	Filter            string
	QoS               byte // the highest to deliver with
	NoLocal           bool
	RetainAsPublished bool
	RetainHandling    mqtt.RetainHandling
	ID                uint32 // Subscription Identifier; 0 is none

	// since is what the session had been offered of each shard before, if some
	// of that was still queued then: read again after a crash, it is not for
	// this subscription. Mostly nil.
	since []uint64
	id    [1]uint32 // ID, for a Delivery to point at
}

// SharePrefix begins the Topic Filter of a shared subscription [MQTT-4.8.2-1].
const SharePrefix = "$share/"

// Shared says that this is a shared subscription. No Local with it is a
// Protocol Error [MQTT-3.8.3-4], which whoever reads SUBSCRIBE answers.
func (b *Subscription) Shared() bool { return strings.HasPrefix(b.Filter, SharePrefix) }

// follows says that a message came after the subscription.
func (b *Subscription) follows(r Ref) bool {
	return r.Seq == 0 || r.Shard >= len(b.since) || r.Seq > b.since[r.Shard]
}

// Subscribed is what a SUBSCRIBE did for one filter.
type Subscribed struct {
	Now *Subscription // to be matched from now on
	Was *Subscription // which it replaces [MQTT-3.8.4-3]; nil if it is new
	// Retained says that the retained messages that match are to be sent, as
	// Retain Handling wants it [MQTT-3.3.1-9] to [MQTT-3.3.1-11]; never for a
	// shared subscription (5 §4.8.2).
	Retained bool
}

// Subscribe adds or replaces a subscription. tail is the last sequence number
// of each shard that this node has dealt with. The record has to be durable
// before SUBACK goes out; retained messages queued before that are in it. Whether
// it has room is asked before: [Session.RoomFor].
func (s *Session) Subscribe(b Subscription, tail []uint64) Subscribed {
	n := &b
	n.id[0] = n.ID
	i, found := s.search(b.Filter)
	r := Subscribed{Now: n, Retained: !n.Shared() && (n.RetainHandling == mqtt.SendRetained || n.RetainHandling == mqtt.SendRetainedIfNew && !found)}
	n.since = nil
	if found {
		r.Was = s.subs[i]
		n.since = r.Was.since
		s.subs[i] = n
	} else {
		if len(tail) > 0 && s.lags() {
			n.since = slices.Clone(tail)
			s.shard(len(tail) - 1) // records have a cursor for each of them
		}
		s.subs = slices.Insert(s.subs, i, n)
		s.filterBytes += len(n.Filter)
	}
	s.changed(First)
	return r
}

// Unsubscribe removes the subscription with exactly this filter
// [MQTT-3.10.4-1] and gives it; nil if there is none. What is queued because
// of it is still delivered. The record has to be durable before UNSUBACK.
func (s *Session) Unsubscribe(filter string) *Subscription {
	i, found := s.search(filter)
	if !found {
		return nil
	}
	was := s.subs[i]
	s.subs = slices.Delete(s.subs, i, i+1)
	s.filterBytes -= len(was.Filter)
	s.changed(First)
	return was
}

// Subscriptions gives all, ordered by filter. The slice is the session's own.
func (s *Session) Subscriptions() []*Subscription { return s.subs }

func (s *Session) search(filter string) (int, bool) {
	return slices.BinarySearchFunc(s.subs, filter, func(b *Subscription, f string) int {
		return strings.Compare(b.Filter, f)
	})
}
