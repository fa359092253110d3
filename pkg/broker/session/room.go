package session

// The record of a session is one value in the store, which takes no larger one
// than it was opened for. So what makes records grow has its share of
// [Limits.Record]: half is for subscriptions, a quarter for what is in flight,
// and what then is left for retained messages that wait to be sent. What CONNECT
// brings, such as a will, and the cursors come beside it.

// What things take in a record at most, in bytes; see [Record.Append].
const (
	recordSubscription = 10 // beside its filter, and what it says of each shard
	recordPlace        = 10 // a sequence number
	recordUnacked      = 24 // beside its topic, if it has one
	recordIdentifier   = 4  // a Subscription Identifier [MQTT 5 §1.5.5]
)

// RoomFor says that the record has room for a subscription to filter, or has it
// already. If not, whoever asks for it has to be told so (0x97).
func (s *Session) RoomFor(filter string) bool {
	if s.limits.Record == 0 {
		return true
	}
	if _, found := s.search(filter); found {
		return true
	}
	return s.subscriptionBytes(len(s.subs)+1, s.filterBytes+len(filter)) <= s.limits.Record/2
}

func (s *Session) subscriptionBytes(n, filters int) int {
	return filters + n*(recordSubscription+recordPlace*len(s.shards))
}

// roomInFlight says that one more may be in flight; one alone always may.
func (s *Session) roomInFlight(it *item) bool {
	return s.limits.Record == 0 || s.flight.n == 0 || s.flightBytes+it.recordBytes() <= s.limits.Record/4
}

// roomForWaiting is how many bytes retained messages that were not sent yet may
// take in the record as it is.
func (s *Session) roomForWaiting() int {
	return s.limits.Record - s.subscriptionBytes(len(s.subs), s.filterBytes) - s.flightBytes
}

// recordBytes is what the item takes in a record at most.
func (it *item) recordBytes() int {
	n := recordUnacked + recordIdentifier*len(it.ids)
	if it.seq == 0 && it.msg != nil {
		n += len(it.msg.Topic)
	}
	return n
}
