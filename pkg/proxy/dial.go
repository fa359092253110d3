package proxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"time"

	"github.com/mqttlb/mqttlb/pkg/backend"
	"github.com/mqttlb/mqttlb/pkg/listen"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// dial brings the connection to a backend that answers: home first, then the
// spares in the order of the ring.
//
// What is safe to do again decides. A backend that can't be reached has seen
// nothing: on to the next. One that closed after CONNECT was written and before
// its first byte may have refused this client or may be dying: once more, with
// CONNECT alone, as the device itself would. One that stays silent may still be
// at work on the CONNECT: never again.
func (s *session) dial(ctx context.Context) *failure {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.onKick(cancel)
	header, err := s.appendHeader(nil)
	if err != nil { // too much in it, of what came with the client's own: no backend's fault
		f := s.sayNo(StageDial, BadHeader, mqtt.ServerUnavailable, "the PROXY header for the backend would be too large")
		f.err = fmt.Errorf("write PROXY header: %w", err)
		return f
	}
	walk := s.options.Table.Walk(s.key)
	replayed := false
	var last *failure
	for s.start.Attempt < s.options.Attempts {
		b, ok := walk.Next()
		if !ok {
			break
		}
		if !b.Acquire() {
			walk.NoRoom() // filled up since the walk looked
			continue
		}
		s.start.Attempt++
		s.place(b)
		f := s.try(ctx, b, header)
		if f == nil {
			return nil
		}
		s.place(nil)
		b.Release()
		if ctx.Err() != nil { // given up by us: that is no word against the backend
			return s.sayNo(f.stage, ShuttingDown, mqtt.ServerUnavailable, "shutting down")
		}
		switch f.why {
		case Unreachable:
			s.options.Reports.DialFailed(b, f.err)
			s.srv.log.Debug("backend not reached", "conn", connID(s.start.ID), "backend", b.Name, "err", f.err)
		case ClosedEarly:
			s.options.Reports.ClosedEarly(b, s.connect.ClientID)
			if replayed {
				return f
			}
			replayed = true
		default:
			return f
		}
		last = f
	}
	return s.nowhere(walk.Full(), last)
}

// nowhere is the failure of having no backend left to try.
func (s *session) nowhere(full bool, last *failure) *failure {
	switch {
	case last != nil:
		return last
	case full:
		return s.sayNo(StageDial, BackendsFull, mqtt.ServerBusy, "all backends are full")
	default:
		return s.sayNo(StageDial, NoBackend, mqtt.ServerUnavailable, "no backend is up")
	}
}

// try sets up the way over one backend: connect, header, TLS, CONNECT, CONNACK.
func (s *session) try(ctx context.Context, b *backend.Backend, header []byte) *failure {
	s.start.Backend = b.Name
	conn, err := s.connectTo(ctx, b, header)
	if err != nil {
		f := s.sayNo(StageDial, Unreachable, mqtt.ServerUnavailable, "no backend could be reached")
		f.by, f.err = ByBackend, fmt.Errorf("dial %s: %w", b.Name, err)
		return f
	}
	s.serve(conn)
	if f := s.await(); f != nil {
		conn.Close()
		return f
	}
	return nil
}

// place makes b the backend that carries this session, from the dial on: what
// ends a backend's connections must not miss one on its way there.
func (s *session) place(b *backend.Backend) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backend = b
}

// serve makes conn the backend's side of this session.
func (s *session) serve(conn listen.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server = conn
}

// connectTo dials and writes what goes first: PROXY header and opening in one
// write, or the header, then TLS, then the opening.
func (s *session) connectTo(ctx context.Context, b *backend.Backend, header []byte) (listen.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.DialTimeout)
	defer cancel()
	conn, err := s.options.Dial(ctx, b)
	if err != nil {
		return listen.Stream{}, err
	}
	if s.options.TLS == nil {
		// The header must be one segment where it can be (PROXY protocol §2),
		// and the broker should not wait for a second one.
		return write(listen.NewStream(conn), slices.Concat(header, s.opening), s.options.DialTimeout), nil
	}
	if len(header) > 0 {
		if _, err := conn.Write(header); err != nil {
			conn.Close()
			return listen.Stream{}, fmt.Errorf("write PROXY header: %w", err)
		}
	}
	t := tls.Client(conn, s.options.TLS(b))
	if err := t.HandshakeContext(ctx); err != nil {
		conn.Close()
		return listen.Stream{}, fmt.Errorf("TLS handshake: %w", err)
	}
	return write(listen.NewStream(t), s.opening, s.options.DialTimeout), nil
}

// write sends the first bytes. A backend that is gone already is found out when
// its answer is read, which is the one place that judges it: a failed write is
// no failure to connect.
func write(st listen.Stream, first []byte, patience time.Duration) listen.Stream {
	if len(first) > 0 {
		_ = st.Conn.SetWriteDeadline(time.Now().Add(patience))
		_, _ = st.Conn.Write(first)
		_ = st.Conn.SetWriteDeadline(time.Time{})
	}
	return st
}
