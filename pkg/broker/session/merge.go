package session

// Merge makes one delivery of all the session's subscriptions that match a
// message: either its own, or a single shared one that chose this session. ok
// is false if nothing is to be delivered. It reads only what does not change,
// so it needs no lock.
//
// MQTT leaves it to the server to send one copy or several. One copy, with
//
//   - the highest QoS that the subscriptions allow, at most the message's own
//     [MQTT-3.3.4-2],
//   - all their Subscription Identifiers, repeated ones too [MQTT-3.3.4-4],
//   - the RETAIN flag as published if one of them has Retain As Published, else
//     0 [MQTT-3.3.1-12], [MQTT-3.3.1-13].
//
// A No Local subscription does not match what its own client published
// [MQTT-3.8.3-3].
func (s *Session) Merge(m *Message, r Ref, matching ...*Subscription) (d Delivery, ok bool) {
	d = Delivery{Ref: r, Message: m}
	for _, b := range matching {
		if s.own(b, m) || !b.follows(r) {
			continue
		}
		ok = true
		d.QoS = max(d.QoS, min(b.QoS, m.QoS))
		d.Retain = d.Retain || b.RetainAsPublished && m.Retain
		if b.Shared() {
			d.Shared, d.Share = true, b.Filter
		}
		switch {
		case b.ID == 0:
		case d.SubscriptionIDs == nil:
			d.SubscriptionIDs = b.id[:] // full, so appending makes another
		default:
			d.SubscriptionIDs = append(d.SubscriptionIDs, b.ID)
		}
	}
	return d, ok
}

// Retained makes the delivery of a retained message to a subscription just
// made, with RETAIN 1 (5 §3.3.1.3). It has no [Ref]: whatever place in the log
// it once had, the session is past it.
func (s *Session) Retained(m *Message, b *Subscription) (d Delivery, ok bool) {
	d, ok = s.Merge(m, Ref{}, b)
	d.Retain = true
	return d, ok
}

func (s *Session) own(b *Subscription, m *Message) bool {
	return b.NoLocal && m.Publisher != "" && m.Publisher == s.clientID
}
