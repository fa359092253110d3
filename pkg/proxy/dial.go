package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/mqttlb/mqttlb/pkg/affinity"
	"github.com/mqttlb/mqttlb/pkg/backend"
	"github.com/mqttlb/mqttlb/pkg/listen"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// dial brings the connection to a backend that answers: home first, then the
// spares in the order of the ring.
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
	var last *failure
	for s.start.Attempt < s.options.Attempts {
		if last != nil {
			if f := s.clientGone(); f != nil {
				return f
			}
		}
		b := acquire(&walk)
		if b == nil {
			break
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
		if !s.mayTryNext(b, f) {
			return f
		}
		last = f
	}
	return s.nowhere(walk.Full(), last)
}

// acquire takes a connection of the next backend that has room for one; nil if
// none has.
func acquire(walk *affinity.Walk) *backend.Backend {
	for {
		b, ok := walk.Next()
		if !ok || b.Acquire() {
			return b
		}
		walk.NoRoom() // filled up since the walk looked
	}
}

// mayTryNext tells the pool's reports of an attempt that failed, and says
// whether another backend may be sent the same.
//
// What is safe to do again decides. A backend that can't be reached has seen
// nothing: on to the next. One that closed after CONNECT was written and before
// its first byte may have refused this client or may be dying: once more, with
// CONNECT alone, as the device itself would. One that stays silent may still be
// at work on the CONNECT: never again.
func (s *session) mayTryNext(b *backend.Backend, f *failure) bool {
	switch f.why {
	case Unreachable:
		s.options.Reports.DialFailed(b, f.err)
		s.server.log.Debug("backend not reached", "conn", connID(s.start.ID), "backend", b.Name, "err", f.err)
		return true
	case NoResources: // said of no backend
		s.server.log.Debug("backend not dialled", "conn", connID(s.start.ID), "backend", b.Name, "err", f.err)
		return !noDescriptors(f.err)
	case ClosedEarly:
		s.options.Reports.ClosedEarly(b, s.connect.ClientID)
		first := !s.replayed
		s.replayed = true
		return first
	default:
		return false
	}
}

// clientGone is the failure of a client that broke off while its backend was
// looked for; nil while it is there. Its CONNECT must not be repeated in its name: it may be back
// elsewhere, and a second broker would take its session over. One that has sent
// FIN is there still, and waits for its answer.
func (s *session) clientGone() *failure {
	err := s.client.Gone()
	if err == nil {
		return nil
	}
	return &failure{stage: StageDial, by: ByClient, why: whyOf(err), err: fmt.Errorf("while a backend was looked for: %w", err)}
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
	conn, first, err := s.reach(ctx, b, header)
	if err != nil {
		return s.notReached(fmt.Errorf("dial %s: %w", b.Name, err))
	}
	s.attach(conn)
	f := s.ask(first)
	if f != nil {
		conn.Close()
	}
	return f
}

// notReached is the failure of a dial: the backend's, unless it is we who lack
// what a dial takes.
func (s *session) notReached(err error) *failure {
	var f *failure
	if lacksResources(err) {
		f = s.sayNo(StageDial, NoResources, mqtt.ServerBusy, "the load balancer is busy")
	} else {
		f = s.sayNo(StageDial, Unreachable, mqtt.ServerUnavailable, "no backend could be reached")
		f.by = ByBackend
	}
	f.err = err
	return f
}

// lacksResources says whether an error of a dial is about this machine, whoever
// was dialled. package health means the same by its reason "local"; a test
// compares.
func lacksResources(err error) bool {
	return noDescriptors(err) ||
		errors.Is(err, syscall.EADDRNOTAVAIL) || // no local port is left for this backend's address
		errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

// noDescriptors says whether the next backend could not be dialled either.
func noDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// ask sends the backend what goes first, unless the client has gone while it was
// dialled, and waits for its answer.
func (s *session) ask(first []byte) *failure {
	if f := s.clientGone(); f != nil {
		return f
	}
	write(s.backendConn, first, s.options.DialTimeout)
	return s.await()
}

// place makes b the backend that carries this session, from the dial on: what
// ends a backend's connections must not miss one on its way there.
func (s *session) place(b *backend.Backend) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backend = b
}

// attach makes conn the backend's side of this session.
func (s *session) attach(conn listen.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backendConn = conn
}

// reach dials, and does TLS where the pool wants it. first is what goes over the
// connection then: the opening, and before it the PROXY header, unless that is
// sent already because it stands before TLS.
func (s *session) reach(ctx context.Context, b *backend.Backend, header []byte) (st listen.Stream, first []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.DialTimeout)
	defer cancel()
	conn, err := s.options.Dial(ctx, b)
	if err != nil {
		return listen.Stream{}, nil, err
	}
	if s.options.TLS == nil {
		// The header must be one segment where it can be (PROXY protocol §2),
		// and the broker should not wait for a second one.
		return listen.NewStream(conn), slices.Concat(header, s.opening), nil
	}
	if len(header) > 0 {
		if _, err := conn.Write(header); err != nil {
			conn.Close()
			return listen.Stream{}, nil, fmt.Errorf("write PROXY header: %w", err)
		}
	}
	t := tls.Client(conn, s.options.TLS(b))
	if err := t.HandshakeContext(ctx); err != nil {
		conn.Close()
		return listen.Stream{}, nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return listen.NewStream(t), s.opening, nil
}

// write sends the first bytes. A backend that is gone already is found out when
// its answer is read, which is the one place that judges it: a failed write is
// no failure to connect.
func write(st listen.Stream, first []byte, patience time.Duration) {
	if len(first) > 0 {
		_ = st.Conn.SetWriteDeadline(time.Now().Add(patience))
		_, _ = st.Conn.Write(first)
		_ = st.Conn.SetWriteDeadline(time.Time{})
	}
}
