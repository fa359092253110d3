package proxy

import (
	"context"
	"time"

	"github.com/mqttlb/mqttlb/pkg/backend"
	"github.com/mqttlb/mqttlb/pkg/listen"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// kick ends a connection on our word, whatever it is doing. Bytes that were
// read are still delivered. It says false if there was one before.
func (s *session) kick(why Why) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kicked != "" {
		return false
	}
	s.kicked = why
	if s.stop != nil {
		s.stop()
	}
	listen.Stream{Conn: s.socket}.Wake(lastWords)
	if s.backendConn.Conn != nil {
		s.backendConn.Wake(lastWords)
	}
	return true
}

// wakeIfKicked repeats the kick on a side whose deadline was just set: setting
// it may have undone the kick's.
func (s *session) wakeIfKicked(st listen.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kicked != "" {
		st.Wake(lastWords)
	}
}

// onKick has stop called by a kick, or at once if there was one.
func (s *session) onKick(stop context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = stop
	if s.kicked != "" {
		stop()
	}
}

// unlessKicked gives the kick's reason in place of what it led to. A client
// that waits for CONNACK is told to come again.
func (s *session) unlessKicked(f *failure) *failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kicked != "" && s.kicked != f.why {
		return s.sayNo(f.stage, s.kicked, mqtt.ServerUnavailable, "connect again: "+string(s.kicked))
	}
	return f
}

// CloseBackend ends the connections that a backend carries, those on their way
// to it included, for the reason given, and says how many there were.
func (s *Server) CloseBackend(id backend.ID, why Why) int {
	n := 0
	for _, ses := range s.snapshot() {
		if ses.carriedBy(id) {
			ses.kick(why)
			n++
		}
	}
	return n
}

func (s *session) carriedBy(id backend.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backend != nil && s.backend.ID() == id
}

func (s *Server) snapshot() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*session, 0, len(s.sessions))
	for ses := range s.sessions {
		all = append(all, ses)
	}
	return all
}

// shutdownMargin is left at the end of Shutdown's time for the last
// connections to say goodbye.
const shutdownMargin = 500 * time.Millisecond

// Shutdown stops accepting and ends the connections, spread evenly over the
// time that ctx has, so that the clients do not all come back to the others at
// once. It returns when all are over, or with ctx's error after it has cut off
// what was left.
func (s *Server) Shutdown(ctx context.Context) error {
	defer s.throttle.close()
	s.mu.Lock()
	s.draining = true
	for l := range s.sockets {
		l.Close()
	}
	s.mu.Unlock()

	over := make(chan struct{})
	go func() {
		defer close(over)
		s.running.Wait()
	}()
	s.spread(ctx, over)
	select {
	case <-over:
		return nil
	case <-ctx.Done():
	}
	for _, ses := range s.snapshot() {
		ses.cut()
	}
	<-over
	return ctx.Err()
}

// spread kicks the sessions one after the other, evenly until the margin.
func (s *Server) spread(ctx context.Context, over <-chan struct{}) {
	all := s.snapshot()
	if len(all) == 0 {
		return
	}
	var pace time.Duration
	if deadline, ok := ctx.Deadline(); ok {
		pace = max(0, time.Until(deadline)-shutdownMargin) / time.Duration(len(all))
	}
	tick := time.NewTimer(0)
	defer tick.Stop()
	for _, ses := range all {
		select {
		case <-tick.C:
			ses.kick(ShuttingDown)
			tick.Reset(pace)
		case <-over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// cut closes a session's sockets at once.
func (s *session) cut() {
	s.kick(ShuttingDown)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.socket.Close()
	if s.backendConn.Conn != nil {
		s.backendConn.Close()
	}
}
