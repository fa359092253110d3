package session

// Want names a message that a session knows of and does not hold.
type Want struct {
	Ref Ref
	// Topic, if Ref.Seq is 0: the retained message of that topic.
	Topic string
}

// Missing gives what has to be fetched next, at most n, in the order in which
// it will be sent.
func (s *Session) Missing(n int) []Want {
	if s.absent == 0 {
		return nil
	}
	var wants []Want
	for _, id := range s.flight.sorted() {
		if it := s.flight.find(id); it.toFetch() && len(wants) < n {
			wants = append(wants, it.want())
		}
	}
	for i := 0; i < s.queued.n && len(wants) < n; i++ {
		if it := s.queued.at(i); it.toFetch() {
			wants = append(wants, it.want())
		}
	}
	return wants
}

// Attach gives the session a message that it misses, for the first place that
// wants it. Nil says that there is no such message any more, because it expired
// or was trimmed: then what was queued is dropped, and what was in flight ends
// as well as it can.
func (s *Session) Attach(w Want, m *Message) {
	if s.absent == 0 {
		return
	}
	if it := s.inFlight(w); it != nil {
		if m == nil {
			s.drops.Lost++
			s.abandon(it)
		} else {
			s.attach(it, m)
		}
		return
	}
	for i := range s.queued.n { // it is asked for in order, so it is near the head
		it := s.queued.at(i)
		if !it.toFetch() || it.want() != w {
			continue
		}
		if m == nil {
			s.drops.Lost++
			s.lose(it)
		} else {
			s.bytes += int64(m.size()) - int64(it.size)
			it.size = uint32(m.size())
			s.attach(it, m)
		}
		return
	}
}

func (s *Session) inFlight(w Want) (wanting *item) {
	s.flight.each(func(it *item) {
		if wanting == nil && it.toFetch() && it.want() == w {
			wanting = it
		}
	})
	return wanting
}

// Unload forgets the messages that are in the log, since they can be fetched
// again: an offline session with a long queue then costs 64 bytes a message. Done
// after each Queue, it costs nothing that grows with the queue.
func (s *Session) Unload() {
	unload := func(it *item) {
		if it.loaded() {
			s.tally(it, -1)
			it.msg = nil
			it.flags |= absent
			s.tally(it, 1)
		}
	}
	for i := s.queued.n - 1; i >= 0 && s.loaded > 0; i-- {
		unload(s.queued.at(i))
	}
	if s.loaded > 0 {
		s.flight.each(unload)
	}
}

// toFetch: what was sent on this connection is not sent again on it.
func (it *item) toFetch() bool { return it.flags.has(absent) && !it.flags.has(active) }

func (it *item) want() Want {
	w := Want{Ref: it.ref()}
	if it.seq == 0 && it.msg != nil {
		w.Topic = it.msg.Topic
	}
	return w
}

func (s *Session) attach(it *item, m *Message) {
	s.tally(it, -1)
	it.msg = m
	it.flags &^= absent
	s.tally(it, 1)
}

// lose empties an item of the queue, which then is skipped.
func (s *Session) lose(it *item) {
	s.tally(it, -1)
	s.bytes -= int64(it.size)
	s.settle(it)
	it.state, it.size, it.msg = gone, 0, nil
	it.flags &^= absent
	s.changed(Soon)
}

// supply takes the message of something in flight from a delivery of the same
// message, and says whether there was such.
func (s *Session) supply(d *Delivery) bool {
	if d.Message == nil {
		return false
	}
	found := false
	s.flight.each(func(it *item) {
		if it.toFetch() && it.ref() == d.Ref && it.flags.has(shared) == d.Shared {
			s.attach(it, d.Message)
			found = true
		}
	})
	return found
}
