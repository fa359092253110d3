package broker

import (
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/session"
	"github.com/mqttlb/mqttlb/pkg/broker/topics"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// takeSubscribe makes the subscriptions and queues the retained messages that
// they ask for. The writer holds SUBACK back until the record is durable.
func (l *link) takeSubscribe(b []byte) error {
	p, _, err := mqtt.ParseSubscribe(b, l.version)
	if err != nil {
		return err
	}
	refused := l.announce(p)
	cl := l.cl
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.link != l { // taken over meanwhile
		return nil
	}
	now := time.Now()
	codes := make([]byte, 0, 8)
	var wanted []*session.Subscription // whose retained messages are to be sent
	for s := range p.Subscriptions.All() {
		filter := string(s.Filter)
		if refused[filter] {
			codes = append(codes, l.failure(mqtt.UnspecifiedError))
			continue
		}
		if !l.allows(filter) {
			codes = append(codes, l.failure(mqtt.TopicFilterInvalid))
			continue
		}
		if !cl.ses.RoomFor(filter) {
			codes = append(codes, l.failure(mqtt.QuotaExceeded))
			continue
		}
		made := cl.ses.Subscribe(session.Subscription{
			Filter: filter, QoS: s.QoS, NoLocal: s.NoLocal,
			RetainAsPublished: s.RetainAsPublished, RetainHandling: s.RetainHandling, ID: p.SubscriptionID,
		}, l.b.tail())
		l.b.add(cl, made.Now)
		cl.train.add(made.Now)
		if made.Retained {
			wanted = append(wanted, made.Now)
		}
		codes = append(codes, s.QoS)
	}
	if len(wanted) > 0 && l.b.clustered() {
		// From here on what is published comes from the log. What was in the log
		// before is among the retained messages, but this node may not know it yet.
		cl.mu.Unlock()
		l.b.syncRetained()
		cl.mu.Lock()
		if cl.link != l {
			return nil
		}
	}
	l.say(mqtt.AppendSuback(nil, l.version, mqtt.Suback{PacketID: p.PacketID, Codes: codes}))
	for _, sub := range wanted {
		l.b.retained.match(sub.Filter, now, func(m *session.Message) {
			if d, ok := cl.ses.Retained(m, sub); ok {
				cl.ses.Queue(d, now)
			}
		})
	}
	l.b.stats.drop(cl.ses.TakeDrops())
	cl.settle()
	l.kick()
	return nil
}

// announce sees to it that the shared subscriptions that are asked for have a
// place before there is a SUBACK. It gives those that have none.
func (l *link) announce(p mqtt.Subscribe) (refused map[string]bool) {
	for s := range p.Subscriptions.All() {
		filter := string(s.Filter)
		if _, _, shared := shareOf(filter); !shared || !l.allows(filter) || l.b.awaitShare(filter) {
			continue
		}
		if refused == nil {
			refused = make(map[string]bool)
		}
		refused[filter] = true
		l.b.forgetShare(filter)
	}
	return refused
}

// allows says whether a filter can be subscribed to.
func (l *link) allows(filter string) bool {
	if len(filter) > l.b.o.MaxTopicLength {
		return false
	}
	_, rest, shared, err := topics.ParseShare(filter)
	if err != nil {
		return false
	}
	if !shared {
		rest = filter
	}
	return topics.ValidFilter([]byte(rest)) == nil
}

// failure is a reason as SUBACK of the client's version says it.
func (l *link) failure(r mqtt.Reason) byte {
	if l.version == mqtt.V5 {
		return byte(r)
	}
	return 0x80 // [MQTT-3.9.3-2]
}

func (l *link) takeUnsubscribe(b []byte) error {
	p, _, err := mqtt.ParseUnsubscribe(b, l.version)
	if err != nil {
		return err
	}
	cl := l.cl
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.link != l {
		return nil
	}
	var codes []byte
	for filter := range p.Filters.All() {
		code := mqtt.Success
		if cl.ses.Unsubscribe(string(filter)) != nil {
			l.b.drop(cl, string(filter))
			cl.train.drop(string(filter))
		} else {
			code = mqtt.NoSubscriptionExisted
		}
		codes = append(codes, byte(code))
	}
	l.say(mqtt.AppendUnsuback(nil, l.version, mqtt.Unsuback{PacketID: p.PacketID, Codes: codes}))
	cl.settle()
	return nil
}

// add and drop keep the tree as the sessions have it; cl.mu is held.

func (b *Broker) add(cl *client, sub *session.Subscription) {
	_, _, shared := shareOf(sub.Filter)
	if !shared {
		if !b.tree.Subscribe(sub.Filter, cl, sub) {
			b.stats.subscriptions.Add(1)
		}
		return
	}
	b.join(sub.Filter, cl)
}

func (b *Broker) drop(cl *client, filter string) {
	_, _, shared := shareOf(filter)
	if !shared {
		if b.tree.Unsubscribe(filter, cl) {
			b.stats.subscriptions.Add(-1)
		}
		return
	}
	b.quit(filter, cl)
}

// shareOf splits a filter that is known to be valid.
func shareOf(filter string) (name, rest string, shared bool) {
	name, rest, shared, _ = topics.ParseShare(filter)
	return name, rest, shared
}
