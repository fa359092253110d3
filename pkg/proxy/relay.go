package proxy

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/mqttlb/mqttlb/pkg/listen"
)

const (
	// relayBuffer is what one read takes at most: a TLS record (RFC 8446 §5.1).
	relayBuffer = 16 << 10
	// lastWords is how long a side that we close may still read what it was
	// sent.
	lastWords      = 2 * time.Second
	lastWordsLimit = 1 << 20
)

var relayBuffers = sync.Pool{New: func() any { b := make([]byte, relayBuffer); return &b }}

// relay moves bytes both ways until both directions are over. It is the
// portable one: two goroutines a connection, blocking reads.
//
// Each direction ends by itself and is passed on as what it was: FIN as FIN
// while the other direction goes on, RST as RST. Whoever is left alone must go
// on making progress, or is closed.
type relay struct {
	s *session

	mu    sync.Mutex    // guards what follows
	idle  time.Duration // the silence of the client that ends it; 0 for none
	ended [2]bool
	lost  [2]error // how a side went, where a write to it was told first
	why   *failure // what ended the connection

	connack connackTimer // of the backend's direction
}

// The two directions, by who sends.
const (
	fromClient  = 0
	fromBackend = 1
)

func (s *session) relay() *failure {
	defer s.backend.Release()
	r := &relay{s: s}
	var keepAlive uint16
	if s.connect != nil {
		keepAlive = s.connect.KeepAlive
	}
	r.keepAlive(keepAlive)
	s.openWay()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.backendToClient()
	}()
	r.clientToBackend()
	<-done
	return r.close()
}

// keepAlive sets the idle timeout: one and a half times the Keep Alive (5
// [MQTT-3.1.2-22]) and the grace, or what the listener says where a client has
// none.
func (r *relay) keepAlive(seconds uint16) {
	r.mu.Lock()
	r.idle = r.s.server.opts.IdleTimeout
	if seconds > 0 {
		r.idle = time.Duration(seconds)*1500*time.Millisecond + r.s.server.opts.KeepAliveGrace
	}
	r.mu.Unlock()
	r.arm(fromClient)
}

// openWay ends the set-up: what it has kept for each side is its pump's to
// write, so that neither waits for the other.
func (s *session) openWay() {
	s.start.SetUp = time.Since(s.accepted)
	s.start.Peer, s.start.Source = s.client.Peer, s.client.Source
	s.opened = true
	s.server.opts.Observer.Opened(s.start)
	s.countSetUp(len(s.opening) + len(s.held))
	s.connect, s.opening, s.key = nil, nil, nil
}

// countSetUp counts what both sides have said before the relay.
func (s *session) countSetUp(client int) {
	s.count(fromClient, client)
	s.count(fromBackend, len(s.answer))
}

func (s *session) count(direction, n int) {
	if direction == fromClient {
		s.fromClient.Add(uint64(n))
		s.server.traffic.FromClients.Add(uint64(n))
		return
	}
	s.fromBackend.Add(uint64(n))
	s.server.traffic.FromBackends.Add(uint64(n))
}

func (r *relay) clientToBackend() {
	err := send(r.s.backendConn, r.s.held)
	r.s.held = nil
	r.s.client.Release() // with it go the bytes of CONNECT and what came behind
	if err == nil {
		err = r.pump(fromClient, nil)
	}
	r.finish(fromClient, ByClient, Idle, err)
}

func (r *relay) backendToClient() {
	var look func([]byte)
	if r.s.watch != nil {
		look = r.lookForConnack
		look(r.s.answer)
		defer r.connack.stop()
	}
	err := send(r.s.client.Stream, r.s.answer)
	r.s.answer = nil
	if err == nil {
		err = r.pump(fromBackend, look)
	}
	r.finish(fromBackend, ByBackend, HalfClosed, err)
}

// pump moves bytes until its source ends or one side fails.
func (r *relay) pump(direction int, look func([]byte)) error {
	from, to := r.sides(direction)
	buf := relayBuffers.Get().(*[]byte)
	defer relayBuffers.Put(buf)
	for {
		r.arm(direction)
		n, err := from.Conn.Read(*buf)
		if n > 0 {
			if look != nil {
				look((*buf)[:n])
			}
			r.s.count(direction, n)
			if err := send(to, (*buf)[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

func send(to listen.Stream, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if _, err := to.Conn.Write(b); err != nil {
		return &stuckError{err}
	}
	return nil
}

// stuckError is a pump that stopped because the side it writes to takes no more.
type stuckError struct{ err error }

func (e *stuckError) Error() string { return "write: " + e.err.Error() }
func (e *stuckError) Unwrap() error { return e.err }

func (r *relay) sides(direction int) (from, to listen.Stream) {
	if direction == fromClient {
		return r.s.client.Stream, r.s.backendConn
	}
	return r.s.backendConn, r.s.client.Stream
}

// arm sets how long the next read of a direction may take. Silence of the
// backend is no end while the client speaks: only a client has a Keep Alive.
func (r *relay) arm(direction int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var patience time.Duration
	switch {
	case r.ended[1-direction]:
		patience = r.s.server.opts.HalfCloseTimeout
	case direction == fromClient:
		patience = r.idle
	}
	var t time.Time
	if patience > 0 {
		t = time.Now().Add(patience)
	}
	from, _ := r.sides(direction)
	_ = from.Conn.SetReadDeadline(t)
	r.s.wakeIfKicked(from)
}

// finish passes the end of one direction on, to the side that it wrote to, and
// bounds the silence of the other direction from now on. silence is the reason
// to give when the source's time ran out.
func (r *relay) finish(direction int, by Side, silence Why, err error) {
	from, to := r.sides(direction)
	why := whyOf(err)
	if lost := r.lostSide(direction); lost != nil && why == Closed {
		why, err = whyOf(lost), lost
	}
	stuck, isStuck := errors.AsType[*stuckError](err)
	switch {
	case isStuck:
		// The other direction reads from that side and finds out why; what it
		// still has to say must not be cut off.
		r.noteLost(1-direction, stuck.err)
	case why == Closed:
		r.record(by, Closed, nil)
		_ = to.CloseWrite()
	case why == Timeout:
		if r.hasEnded(1 - direction) {
			silence = HalfClosed
		}
		r.giveUp(&failure{stage: StageRelay, by: by, why: silence})
	case errors.Is(err, net.ErrClosed): // the other direction has aborted it
	default:
		r.record(by, why, err)
		to.Abort()
		from.Abort()
	}
	r.mu.Lock()
	r.ended[direction] = true
	r.mu.Unlock()
	r.arm(1 - direction)
}

func (r *relay) hasEnded(direction int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended[direction]
}

// noteLost keeps what a write learned of the side it wrote to. The kernel tells
// of a reset only once: to a read that comes later it looks like FIN.
func (r *relay) noteLost(side int, err error) {
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.ETIMEDOUT) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost[side] = err
}

func (r *relay) lostSide(side int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost[side]
}

// record keeps the first reason of an end.
func (r *relay) record(by Side, why Why, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.why == nil {
		r.why = &failure{stage: StageRelay, by: by, why: why, err: err}
	}
}

// giveUp ends both directions because one was silent too long. That says more
// than the FIN which may have gone before.
func (r *relay) giveUp(f *failure) {
	r.mu.Lock() // first: the kick ends the pumps, which must not be asked why before it is said
	defer r.mu.Unlock()
	if r.s.kick(f.why) {
		r.why = f
	}
}

// close ends both sockets when both directions are over.
func (r *relay) close() *failure {
	r.record(ByMqttlb, Failed, nil) // unless something is recorded already
	f := r.s.unlessKicked(r.why)
	if f.why == Idle {
		r.s.backendConn.Close()
		r.s.client.Close() // a client that is not there needs no time to read
		return f
	}
	// Side by side: a backend that hangs must not keep its clients waiting.
	var both sync.WaitGroup
	both.Go(func() { r.s.backendConn.CloseLingering(lastWords, lastWordsLimit) })
	r.s.client.CloseLingering(lastWords, lastWordsLimit)
	both.Wait()
	return f
}
