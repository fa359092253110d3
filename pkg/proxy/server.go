package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mqttlb/mqttlb/pkg/listen"
)

// Mode is what a listener does with TLS.
type Mode string

const (
	Plain       Mode = "off"
	Terminate   Mode = "terminate"
	Passthrough Mode = "passthrough"
)

// Protocol is what a listener expects inside.
type Protocol string

const (
	// MQTT waits for CONNECT; the backend is dialled after it.
	MQTT Protocol = "mqtt"
	// TCP dials at once, so that protocols in which the server speaks first
	// work too.
	TCP Protocol = "tcp"
)

// Defaults of Options.
const (
	DefaultConnectTimeout   = 10 * time.Second
	DefaultMaxConnectSize   = 128 << 10
	DefaultHalfCloseTimeout = 30 * time.Second
	// DefaultKeepAliveGrace is what a client's silence is forgiven beyond one
	// and a half times its Keep Alive, so that the broker, whose duty it is
	// [MQTT-3.1.2-24], acts first and publishes the will at its own time.
	DefaultKeepAliveGrace = 10 * time.Second
)

// Options are a listener's. They are copied by New and do not change.
type Options struct {
	Name     string
	Mode     Mode     // default Plain
	Protocol Protocol // default MQTT
	// TLS is what Terminate uses.
	TLS *tls.Config
	// Accept, if set, makes every connection begin with a PROXY header.
	Accept *listen.ProxyPolicy

	// Routes are tried in order, then Pool. A connection that fits none is
	// refused.
	Routes []Route
	Pool   *Pool

	// ConnectTimeout is the one budget from accept to whole CONNECT: PROXY
	// header, TLS handshake and CONNECT together.
	ConnectTimeout time.Duration
	// MaxConnectSize is the largest CONNECT in bytes, fixed header included.
	MaxConnectSize int
	// MaxConnections bounds the connections held at once; zero is no bound. A
	// few more are let in far enough to be told so.
	MaxConnections int
	// PerAddress bounds what clients of one address can take.
	PerAddress listen.Limit
	// IdleTimeout ends connections whose client sends nothing for this long,
	// where no Keep Alive says better; zero never does.
	IdleTimeout    time.Duration
	KeepAliveGrace time.Duration
	// HalfCloseTimeout is how long one direction may stay silent after the
	// other has ended.
	HalfCloseTimeout time.Duration

	Observer Observer
	Log      *slog.Logger
}

// Server serves one listener of the configuration on any number of sockets.
type Server struct {
	opts     Options
	log      *slog.Logger
	throttle throttle

	addresses *listen.Limiter // nil without limits
	nextID    atomic.Uint64
	accepted  atomic.Uint64
	slots     listen.Slots
	traffic   Traffic

	mu       sync.Mutex
	sessions map[*session]struct{}
	sockets  map[net.Listener]struct{}
	draining bool
	running  sync.WaitGroup
}

// Traffic counts the bytes that clients and backends have sent.
type Traffic struct{ FromClients, FromBackends atomic.Uint64 }

// New gives a server that has no socket yet.
func New(o Options) *Server {
	o.Mode = cmp.Or(o.Mode, Plain)
	o.Protocol = cmp.Or(o.Protocol, MQTT)
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, DefaultConnectTimeout)
	o.MaxConnectSize = cmp.Or(o.MaxConnectSize, DefaultMaxConnectSize)
	o.HalfCloseTimeout = cmp.Or(o.HalfCloseTimeout, DefaultHalfCloseTimeout)
	o.KeepAliveGrace = cmp.Or(o.KeepAliveGrace, DefaultKeepAliveGrace)
	if o.TLS != nil {
		o.TLS = listen.ServerTLS(o.TLS)
	}
	if o.Observer == nil {
		o.Observer = noObserver{}
	}
	s := &Server{
		opts:      o,
		log:       o.Log.With("listener", o.Name),
		addresses: listen.NewLimiter(o.PerAddress),
		slots:     listen.Slots{Limit: o.MaxConnections},
		sessions:  make(map[*session]struct{}),
		sockets:   make(map[net.Listener]struct{}),
	}
	s.throttle.write = s.writeRefusal
	s.nextID.Store(rand.Uint64())
	return s
}

// Name is the listener's name.
func (s *Server) Name() string { return s.opts.Name }

// Connections is the number held now, those being set up included.
func (s *Server) Connections() int64 { return s.slots.Held() }

// Accepted is the number of connections accepted since the start.
func (s *Server) Accepted() uint64 { return s.accepted.Load() }

// Traffic counts bytes as they pass.
func (s *Server) Traffic() *Traffic { return &s.traffic }

// Serve accepts on l until ctx ends or Shutdown is called, either of which
// closes l and gives nil. Connections live on; Shutdown ends those. ctx also
// bounds the dials of connections being set up.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if !s.adopt(l) {
		return l.Close()
	}
	defer s.forget(l)
	defer context.AfterFunc(ctx, func() { l.Close() })()
	return listen.Accept(l, s.log, func(c net.Conn) { s.accept(ctx, c) })
}

func (s *Server) adopt(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	s.sockets[l] = struct{}{}
	return true
}

func (s *Server) forget(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sockets, l)
}
