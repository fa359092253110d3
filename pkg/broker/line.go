package broker

import (
	"errors"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
)

// retainFirst makes a message the retained one before it is in the log, in a
// cluster; else it gives nil. The two are different streams, which other nodes
// read at their own pace: who has seen the message in the log can rely on finding
// it among the retained ones (C023).
func (l *link) retainFirst(m *session.Message) <-chan error {
	if !m.Retain || !l.b.clustered() {
		return nil
	}
	done := make(chan error, 1)
	l.b.retain(m, func(err error) { done <- err })
	return done
}

// waitingPublish is a publication that is to be stored behind something else.
type waitingPublish struct {
	l      *link // that it came on
	m      *session.Message
	name   string          // DedupID
	first  [2]<-chan error // what has to have happened; nil is nothing
	stored func(err error)
}

// line puts a publication in the client's line, so that its messages keep their
// order, over its connections too; cl.mu is held.
func (cl *client) line(p waitingPublish) {
	cl.lined = append(cl.lined, p)
	if !cl.storing {
		cl.storing = true
		cl.b.serving.Go(cl.storeLine)
	}
}

// storeLine stores what is in the line, each when what it waits for has happened,
// and ends when there is nothing more. What is left in it when the session goes to
// another node fails: its client sends it again there. Even then each waits, since
// a record that is written behind the new node's back would be taken for another
// publication's.
func (cl *client) storeLine() {
	for {
		cl.mu.Lock()
		if len(cl.lined) == 0 {
			cl.lined, cl.storing = nil, false
			cl.quiet.Broadcast()
			cl.mu.Unlock()
			return
		}
		p := cl.lined[0]
		cl.lined[0] = waitingPublish{}
		cl.lined = cl.lined[1:]
		cl.mu.Unlock()
		err := p.wait()
		if err == nil && (p.l.certain() != nil || cl.leaves()) {
			err = cluster.ErrUnavailable
		}
		if err != nil {
			p.stored(err)
			continue
		}
		cl.b.publish(p.m, p.name, p.stored)
	}
}

func (p *waitingPublish) wait() error {
	var errs []error
	for _, first := range p.first {
		if first != nil {
			errs = append(errs, <-first)
		}
	}
	return errors.Join(errs...)
}

// leaves says that the session is, or is about to be, another node's.
func (cl *client) leaves() bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.letting || cl.lost
}

// owes counts what the store has not answered for; cl.mu is held.
func (cl *client) owes(by int) {
	cl.unsettled += by
	cl.quiet.Broadcast()
}

// settled waits until all that the client has published, on whichever connection,
// is stored or has failed, and says whether that was so in time, and before the
// client was back; cl.mu is held before and after.
func (cl *client) settled(patience time.Duration) bool {
	late := false
	timer := time.AfterFunc(patience, func() {
		cl.mu.Lock()
		defer cl.mu.Unlock()
		late = true
		cl.quiet.Broadcast()
	})
	defer timer.Stop()
	for cl.unsettled > 0 || cl.storing {
		if late || cl.link != nil {
			return false
		}
		cl.quiet.Wait()
	}
	return cl.link == nil
}
