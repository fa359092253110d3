package broker

import (
	"errors"

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
	m      *session.Message
	name   string          // DedupID
	first  [2]<-chan error // what has to have happened; nil is nothing
	stored func(err error)
}

// line puts a publication in the client's line, so that its messages keep their
// order; l.cl.mu is held.
func (l *link) line(p waitingPublish) {
	l.lined = append(l.lined, p)
	if !l.storing {
		l.storing = true
		l.b.serving.Go(l.storeLine)
	}
}

// storeLine stores what is in the line, each when what it waits for has happened,
// and ends when there is nothing more.
func (l *link) storeLine() {
	for {
		l.cl.mu.Lock()
		if len(l.lined) == 0 {
			l.lined, l.storing = nil, false
			l.room.Broadcast()
			l.cl.mu.Unlock()
			return
		}
		p := l.lined[0]
		l.lined[0] = waitingPublish{}
		l.lined = l.lined[1:]
		l.cl.mu.Unlock()
		err := p.wait()
		if err == nil && l.certain() != nil {
			err = cluster.ErrUnavailable
		}
		if err != nil {
			p.stored(err)
			continue
		}
		l.b.publish(p.m, p.name, p.stored)
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
