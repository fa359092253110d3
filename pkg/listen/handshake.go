package listen

import (
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"sync/atomic"
)

// ServerTLS prepares a configuration for Handshake: the certificate that a
// client is shown is noted with its connection, because ConnectionState keeps
// only the peer's. Resumed sessions show none; what they would have been shown
// is noted all the same.
func ServerTLS(cfg *tls.Config) *tls.Config {
	choose := cfg.GetCertificate
	if choose == nil { // the caller left the choice to crypto/tls
		return cfg
	}
	cfg = cfg.Clone()
	cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if e, ok := hello.Conn.(*encrypted); ok {
			e.shown, _ = choose(hello) // an error comes again when it counts
		}
		return nil, nil
	}
	cfg.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if e, ok := hello.Conn.(*encrypted); ok && e.shown != nil {
			return e.shown, nil
		}
		return choose(hello)
	}
	return cfg
}

// Handshake does the server side of TLS with a configuration of ServerTLS,
// under the deadline that is set on the connection; crypto/tls has none of its
// own. The stream that Read and Write use is the decrypted one from then on.
func (c *Conn) Handshake(cfg *tls.Config) error {
	below := &encrypted{Conn: c.Conn, prefix: slices.Clone(c.Pending()), seen: &c.seen}
	c.Release()
	t := tls.Server(below, cfg)
	if err := t.Handshake(); err != nil {
		return nameLack(err, cfg.ClientAuth)
	}
	state := t.ConnectionState()
	c.TLS = &state
	if below.shown != nil {
		c.Shown, below.shown = below.shown.Leaf, nil
	}
	c.Stream.Conn = t
	return nil
}

// ErrNoCertificate is a client that showed no certificate where one is required.
var ErrNoCertificate = errors.New("the client has shown no certificate")

// lackInWords is how crypto/tls says it: it has no type for it. The check could
// be ours, in VerifyConnection, but then clients would be sent the alert
// bad_certificate in place of certificate_required (RFC 8446 §4.4.2.4) or, in
// 1.2, handshake_failure (RFC 5246 §7.4.6), and sessions begun without one would
// be ours to turn down. A test holds the words to both versions; were they to
// change, the cause would be lost, not the refusal.
const lackInWords = "tls: client didn't provide a certificate"

func nameLack(err error, asked tls.ClientAuthType) error {
	required := asked == tls.RequireAndVerifyClientCert || asked == tls.RequireAnyClientCert
	if required && err.Error() == lackInWords {
		return ErrNoCertificate
	}
	return err
}

// encrypted is the stream below TLS: first the bytes that came along with the
// PROXY header, then the socket's.
type encrypted struct {
	net.Conn
	prefix []byte
	seen   *atomic.Bool
	shown  *tls.Certificate // during the handshake
}

func (e *encrypted) Read(p []byte) (int, error) {
	if len(e.prefix) > 0 {
		n := copy(p, e.prefix)
		e.prefix = e.prefix[n:]
		return n, nil
	}
	n, err := e.Conn.Read(p)
	if n > 0 && !e.seen.Load() {
		e.seen.Store(true)
	}
	return n, err
}

// ReadHello looks at the ClientHello of a connection that stays encrypted; its
// bytes stay pending.
func (c *Conn) ReadHello() error {
	return c.ReadWhole(MaxHello, ErrShort, func(b []byte) (int, error) {
		n, err := helloEnd(b, MaxHello)
		if err != nil {
			return n, err
		}
		h, err := decodeHello(b[:n])
		if err == nil {
			c.ClientHello = &h
		}
		return n, err
	})
}
