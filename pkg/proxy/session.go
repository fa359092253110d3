package proxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mqttlb/mqttlb/pkg/backend"
	"github.com/mqttlb/mqttlb/pkg/listen"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// session is one client's connection. Its fields are filled in the order in
// which its steps happen, by the one goroutine that runs it; what others touch
// is said.
type session struct {
	server   *Server
	socket   net.Conn     // as accepted, below TLS: what kick may touch
	client   *listen.Conn // the socket with its buffer, later with TLS
	accepted time.Time
	over     excess // the bound that it is over: let in to be told so
	counted  bool   // by the limiter of addresses, which must be told when it leaves

	connect *mqtt.Connect // views into the client's buffer until the way is open; nil where no CONNECT is read
	opening []byte        // what a backend is sent first: CONNECT, or the ClientHello
	held    []byte        // what came behind CONNECT: sent once the backend has said yes

	pool    *Pool
	options *PoolOptions // the pool's, as they were when this connection was placed
	key     []byte       // what the ring hashes

	backend     *backend.Backend
	backendConn listen.Stream // to that backend
	replayed    bool          // CONNECT was sent once more: a backend closed on the first
	answer      []byte        // what the backend said first, not yet forwarded
	watch       *connackWatch // CONNACK is still to come: the backend began with AUTH

	start                   Start
	opened                  bool
	fromClient, fromBackend atomic.Uint64 // read at the end, and by whoever looks

	mu     sync.Mutex // guards what others look at: kicked, stop, backend, and backendConn once it is set
	kicked Why
	stop   context.CancelFunc // ends a dial; nil before there is one
}

// run is the whole story of a connection.
func (s *session) run(ctx context.Context) {
	s.budget()
	if f := s.setUp(ctx); f != nil {
		s.countSetUp(len(s.client.Pending()))
		s.refuse(f)
		s.end(f)
		return
	}
	f := s.relay()
	s.end(f)
}

// setUp brings a client to its backend.
func (s *session) setUp(ctx context.Context) *failure {
	for _, step := range []func() *failure{
		s.readHeader, s.limit, s.handshake, // who is there
		s.peek,           // what it wants
		s.clearBudget,    // it has said so in time
		s.admit, s.route, // whether it may, and where to
	} {
		if f := step(); f != nil {
			return s.unlessKicked(f)
		}
	}
	if f := s.dial(ctx); f != nil {
		return s.unlessKicked(f)
	}
	return nil
}

// budget starts the one time limit from accept to whole CONNECT. It is
// absolute: a byte now and then does not renew it.
func (s *session) budget() {
	s.setDeadline(s.accepted.Add(s.server.opts.ConnectTimeout))
}

// clearBudget ends that limit. From here on dialling and waiting for CONNACK
// have their own, and the relay its idle timeout.
func (s *session) clearBudget() *failure {
	s.setDeadline(time.Time{})
	return nil
}

func (s *session) setDeadline(t time.Time) {
	_ = s.client.Conn.SetDeadline(t)
	s.wakeIfKicked(s.client.Stream)
}

// broken is a failure of reading from or writing to the client.
func (s *session) broken(stage Stage, err error) *failure {
	f := &failure{stage: stage, by: ByClient, why: whyOf(err), err: err}
	if s.client.Silent() && f.why != Timeout {
		f.why = NoBytes
	}
	if errors.Is(err, listen.ErrTooLarge) {
		f.why = TooLarge
	}
	return f
}
