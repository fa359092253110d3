package session

import "slices"

// Places say where the messages of one log are in another that holds the same
// ones in the same order.
type Places interface {
	// Message gives the place of a message; false if the other log has none.
	Message(Ref) (Ref, bool)
	// UpTo gives the place in the other log up to which everything was, here, at
	// this sequence number or below.
	UpTo(shard int, seq uint64) uint64
}

// Move makes the record one of a session whose messages are in another log. What
// is in flight and not there any more keeps its packet identifier, for the
// session to end as well as it can ([Session.Attach]); gone counts those.
func (r *Record) Move(to Places) (gone int) {
	upTo := func(seqs []uint64) []uint64 {
		moved := slices.Clone(seqs)
		for shard := range moved {
			moved[shard] = to.UpTo(shard, moved[shard])
		}
		return moved
	}
	r.Cursors = upTo(r.Cursors)
	subs := slices.Clone(r.Subscriptions)
	for i := range subs {
		subs[i].since = upTo(subs[i].since)
		subs[i] = subs[i].at(r.Cursors)
	}
	r.Subscriptions = subs
	done := r.Done[:0:0]
	for _, d := range r.Done {
		if ref, there := to.Message(d.Ref); there {
			done = append(done, Shared{d.Share, ref})
		}
	}
	r.Done = done
	r.Unacknowledged = slices.Clone(r.Unacknowledged)
	for i := range r.Unacknowledged {
		u := &r.Unacknowledged[i]
		if u.Ref.Seq == 0 {
			continue
		}
		ref, there := to.Message(u.Ref)
		if !there {
			ref = Ref{} // of no topic, which no retained message has
			if !u.Released {
				gone++
			}
		}
		u.Ref = ref
	}
	return gone
}
