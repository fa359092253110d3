package listen

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/mqttlb/mqttlb/pkg/pp"
)

// firstBuffer holds any usual CONNECT, PROXY header or ClientHello.
const firstBuffer = 4 << 10

var buffers = sync.Pool{New: func() any { b := make([]byte, firstBuffer); return &b }}

// leap is the most that the buffer grows at once on a peer's word that so many
// bytes will come. It holds the largest CONNECT that is allowed by default.
const leap = 128 << 10

// ErrTooLarge is a parser that wants more bytes than its caller allows.
var ErrTooLarge = errors.New("larger than allowed")

// Conn is an accepted connection and the buffer in front of it. It serves one
// goroutine until its owner hands it on.
type Conn struct {
	Stream

	// Peer and Local are the socket's own addresses; the zero value where the
	// connection has none.
	Peer, Local netip.AddrPort
	// Source and Destination are the client's address and the one it called,
	// as the PROXY header says, else Peer and Local.
	Source, Destination netip.AddrPort
	// Header is the PROXY header that was read, if one was.
	Header *pp.Header
	// TLS is the state of the finished handshake; nil without.
	TLS *tls.ConnectionState
	// Shown is the leaf of the certificate that this side presented.
	Shown *x509.Certificate
	// ClientHello is what passthrough saw; nil otherwise.
	ClientHello *Hello

	buf      *[]byte     // pooled while it has firstBuffer bytes
	from, to int         // pending bytes are (*buf)[from:to]
	seen     atomic.Bool // a byte has come; whoever lingers at the end reads beside the owner
}

// NewConn wraps an accepted connection.
func NewConn(c net.Conn) *Conn {
	conn := &Conn{Stream: NewStream(c), Peer: AddrPort(c.RemoteAddr()), Local: AddrPort(c.LocalAddr())}
	conn.Source, conn.Destination = conn.Peer, conn.Local
	return conn
}

// AddrPort is the TCP address of a socket, IPv4-mapped ones as IPv4; the zero value for any other.
func AddrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := t.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// Pending are the bytes read and not yet consumed. The slice is good until the
// next call.
func (c *Conn) Pending() []byte {
	if c.buf == nil {
		return nil
	}
	return (*c.buf)[c.from:c.to]
}

// Consume takes n pending bytes off. Slices of them stay good until Release or
// the next read.
func (c *Conn) Consume(n int) { c.from += n }

// Release gives the buffer back; what is pending is lost.
func (c *Conn) Release() {
	if c.buf != nil && len(*c.buf) == firstBuffer {
		buffers.Put(c.buf)
	}
	c.buf, c.from, c.to = nil, 0, 0
}

// Read gives the pending bytes first.
func (c *Conn) Read(p []byte) (int, error) {
	if pending := c.Pending(); len(pending) > 0 {
		n := copy(p, pending)
		c.Consume(n)
		return n, nil
	}
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.seen.Store(true)
	}
	return n, err
}

// Silent says whether the client has not sent a single byte yet; a PROXY header
// is not of its own. One that leaves like this is somebody's health check, and
// never an error to report.
func (c *Conn) Silent() bool { return !c.seen.Load() }

// eager is up to how many bytes ReadWhole parses after each read, so that what
// is no protocol of ours ends at its first wrong byte. Beyond, it waits for the
// bytes to double or to reach the length that the parser has named: a sender of
// single bytes must not cost a parse of everything for each.
const eager = 64

// ReadWhole calls parse with all that is pending, and again as more comes, until
// it says anything but short. Beside short, n is the least that the whole can
// have, if parse knows that already; without it parse sees the bytes of every
// read, since the next one may be the last that the peer sends before it waits
// for us. The buffer grows once where n is known, and to max bytes at most; a parser that is still short
// then gets ErrTooLarge. A peer that leaves before parse is content gives
// io.ErrUnexpectedEOF.
func (c *Conn) ReadWhole(max int, short error, parse func(b []byte) (n int, err error)) error {
	for enough, whole := 1, 1; ; {
		for c.to-c.from < enough {
			if err := c.fill(whole, max); err != nil {
				return err
			}
		}
		n, err := parse(c.Pending())
		if err != short {
			return err
		}
		have := c.to - c.from
		enough, whole = have+1, n
		if have >= eager && n > have {
			enough = min(2*have, n)
		}
	}
}

// fill reads once behind what is pending; whole is the least that there will be
// in the end, as far as is known.
func (c *Conn) fill(whole, max int) error {
	if c.buf == nil {
		c.buf = buffers.Get().(*[]byte)
		c.from, c.to = 0, 0
	}
	if c.to == len(*c.buf) {
		if err := c.makeRoom(whole, max); err != nil {
			return err
		}
	}
	n, err := c.Conn.Read((*c.buf)[c.to:])
	c.to += n
	if n > 0 {
		c.seen.Store(true)
	}
	switch {
	case n > 0:
		return nil
	case err == io.EOF:
		return io.ErrUnexpectedEOF
	default:
		return err
	}
}

// makeRoom moves the pending bytes to the front of the buffer, or to a larger
// one: twice as large, or large enough for the whole, up to max.
func (c *Conn) makeRoom(whole, max int) error {
	pending, size := c.Pending(), len(*c.buf)
	switch {
	case len(pending) >= max:
		return ErrTooLarge
	case c.from > 0 && whole <= size:
		c.to = copy(*c.buf, pending)
		c.from = 0
		return nil
	}
	grown := make([]byte, min(nextSize(size, whole), max))
	n := copy(grown, pending)
	c.Release()
	c.buf, c.to = &grown, n
	return nil
}

func nextSize(size, whole int) int {
	doubled := 2 * size
	switch {
	case whole <= size: // not known
		return doubled
	case doubled < leap:
		return min(whole, leap)
	default:
		return min(whole, doubled)
	}
}

// AwaitBytes returns when the peer has sent something or is gone, or at the read
// deadline. On a plain socket it holds no buffer meanwhile, so that an idle
// connection costs none; under TLS it returns at once.
func (c *Conn) AwaitBytes() error {
	if c.Socket == nil || c.TLS != nil {
		return nil
	}
	return awaitReadable(c.Socket)
}
