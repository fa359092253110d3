package broker

import (
	"sync"
	"time"
)

// doubt is whether the sessions that this node holds may have been taken by
// others: it was cut off, or its process stood still. What a client has sent
// meanwhile lies in the socket; the client may have come back elsewhere, and sent
// it there as well. So nothing of it is taken before the records were looked at.
type doubt struct {
	mu        sync.Mutex
	is        bool
	resolving bool
}

// doubtPause is how often those who wait look.
const doubtPause = 20 * time.Millisecond

// inDoubt says whether it is so now.
func (b *Broker) inDoubt() bool {
	if !b.clustered() {
		return false
	}
	d := &b.doubt
	quorum := b.o.Peers.Quorum()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !quorum {
		d.is = true
	}
	if d.is && !d.resolving && b.work.Err() == nil {
		d.resolving = true
		b.working.Go(b.resolveDoubt)
	}
	return d.is
}

// resolveDoubt looks at the records once there is a quorum.
func (b *Broker) resolveDoubt() {
	tick := time.NewTicker(doubtPause)
	defer tick.Stop()
	resolved := false
	for !resolved {
		select {
		case <-tick.C:
			resolved = b.o.Peers.Quorum() && b.compare(b.work) == nil && b.o.Peers.Quorum()
		case <-b.work.Done():
			return
		}
	}
	b.doubt.mu.Lock()
	defer b.doubt.mu.Unlock()
	b.doubt.is, b.doubt.resolving = false, false
}

// certain waits until the session is known to be this node's, and gives
// errSentAway if it is not, or the connection has to end.
func (l *link) certain() error {
	if !l.b.inDoubt() {
		return nil
	}
	tick := time.NewTicker(doubtPause)
	defer tick.Stop()
	for l.b.inDoubt() && !l.closing.Load() {
		select {
		case <-tick.C:
		case <-l.b.work.Done():
			return errSentAway
		}
	}
	if l.closing.Load() {
		return errSentAway
	}
	return nil
}
