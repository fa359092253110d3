package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"time"

	"github.com/mqttlb/mqttlb/pkg/affinity"
	"github.com/mqttlb/mqttlb/pkg/backend"
)

// DialFunc opens a TCP connection to a backend; ctx carries the time limit.
type DialFunc func(ctx context.Context, b *backend.Backend) (net.Conn, error)

// HashKey names what of a connection decides its place.
type HashKey string

const (
	HashClientID HashKey = "client_id" // the Client Identifier of CONNECT
	HashSourceIP HashKey = "source_ip" // the client's address, as a trusted PROXY header says
	HashSNI      HashKey = "sni"       // the server name of the ClientHello, in lower case
)

// HeaderVersion says which PROXY protocol header a backend is sent.
type HeaderVersion int

const (
	NoHeader HeaderVersion = 0
	HeaderV1 HeaderVersion = 1
	HeaderV2 HeaderVersion = 2
)

// TLVs chooses what a version 2 header says besides the addresses.
type TLVs struct{ SSL, ALPN, Authority, UniqueID, CRC32C bool }

// Reports is where a pool's connections tell what they met of a backend; the
// health monitor listens. Each may be nil.
type Reports struct {
	// DialFailed: refused, unreachable, timed out, or TLS to the backend failed.
	DialFailed func(b *backend.Backend, err error)
	// ClosedEarly: closed after CONNECT was written and before its first byte.
	// One client alone is no proof against a backend: its CONNECT may be the
	// reason, so the Client Identifier goes along.
	ClosedEarly func(b *backend.Backend, clientID []byte)
	// Answered: a CONNACK came.
	Answered func(b *backend.Backend)
}

// PoolOptions are a pool at one moment. They are not changed once they are in
// use: a reload swaps them whole.
type PoolOptions struct {
	Table *affinity.Table
	// HashKeys are tried in order: the first that the listener can know decides.
	HashKeys []HashKey

	Dial        DialFunc
	DialTimeout time.Duration // for one attempt, TLS to the backend included
	Attempts    int           // backends tried for one client
	// TLS gives the settings for re-encryption to a backend; nil for none.
	TLS func(b *backend.Backend) *tls.Config
	// Header is written in front of everything else, TLS included.
	Header HeaderVersion
	TLVs   TLVs
	// ConnackTimeout bounds the wait from CONNECT written to CONNACK whole.
	ConnackTimeout time.Duration

	Reports Reports
}

// Pool is a named set of backends that connections are placed on.
type Pool struct {
	Name    string
	options atomic.Pointer[PoolOptions]
}

// NewPool gives a pool with its first options.
func NewPool(name string, o PoolOptions) *Pool {
	p := &Pool{Name: name}
	p.Swap(o)
	return p
}

// Swap changes the pool for the connections that come; those that are there
// stay as they are. Reports left nil become no-ops.
func (p *Pool) Swap(o PoolOptions) {
	if o.Reports.DialFailed == nil {
		o.Reports.DialFailed = func(*backend.Backend, error) {}
	}
	if o.Reports.ClosedEarly == nil {
		o.Reports.ClosedEarly = func(*backend.Backend, []byte) {}
	}
	if o.Reports.Answered == nil {
		o.Reports.Answered = func(*backend.Backend) {}
	}
	p.options.Store(&o)
}

// Options is the pool as it is now.
func (p *Pool) Options() *PoolOptions { return p.options.Load() }

// Route sends connections to a pool by what their ClientHello asked for. A
// list that is empty matches everything.
type Route struct {
	// SNI are server names in lower case: exact, or "*.example.com" for one
	// label more.
	SNI []string
	// ALPN are protocol names; one of them must be negotiated (terminate) or
	// offered (passthrough).
	ALPN []string
	Pool *Pool
}
