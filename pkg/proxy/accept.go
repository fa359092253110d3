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
	held := s.slots.Add(1)
	ses := &session{
		server:   s,
		socket:   c,
		client:   listen.NewConn(c),
		accepted: time.Now(),
	}
	if s.opts.MaxConnections > 0 && held > int64(s.opts.MaxConnections) {
		ses.over = overListener
	}
	ses.start.ID = s.nextID.Add(1)
	ses.start.Listener = s.opts.Name
	why := Limit
	if held <= s.ceiling() && s.enter(ses, &why) {
		go func() {
			defer s.leave(ses)
			ses.run(ctx)
		}()
		return
	}
	c.Close()
	s.slots.Add(-1)
	ses.end(&failure{stage: StageAccept, by: ByMqttlb, why: why})
}

// ceiling is MaxConnections and the reserve: connections beyond the bound that
// are let in to be told, in MQTT's own words, that there is no room.
func (s *Server) ceiling() int64 {
	limit := int64(s.opts.MaxConnections)
	if limit == 0 {
		return 1<<63 - 1
	}
	return limit + max(16, limit/16)
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
	s.slots.Add(-1)
	s.running.Done()
}
