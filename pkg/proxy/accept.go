package proxy

import (
	"context"
	"net"
	"time"

	"github.com/mqttlb/mqttlb/pkg/listen"
)

// accept counts the slot and starts the session in a goroutine of its own.
func (s *Server) accept(ctx context.Context, c net.Conn) {
	s.accepted.Add(1)
	entry := s.slots.Take()
	ses := &session{
		server:   s,
		socket:   c,
		client:   listen.NewConn(c),
		accepted: time.Now(),
	}
	if entry == listen.TooMany {
		ses.over = overListener
	}
	ses.start.ID = s.nextID.Add(1)
	ses.start.Listener = s.opts.Name
	why := Limit
	if entry != listen.FarTooMany && s.enter(ses, &why) {
		go func() {
			defer s.leave(ses)
			ses.run(ctx)
		}()
		return
	}
	c.Close()
	if entry != listen.FarTooMany {
		s.slots.Give()
	}
	ses.end(&failure{stage: StageAccept, by: ByMqttlb, why: why})
}

// enter lists a session, unless the server is shutting down.
func (s *Server) enter(ses *session, why *Why) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		*why = ShuttingDown
		return false
	}
	s.sessions[ses] = struct{}{}
	s.running.Add(1)
	return true
}

func (s *Server) leave(ses *session) {
	s.mu.Lock()
	delete(s.sessions, ses)
	s.mu.Unlock()
	if ses.counted {
		s.addresses.Leave(ses.client.Source.Addr())
	}
	s.slots.Give()
	s.running.Done()
}
