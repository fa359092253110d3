package health

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// How a probe leaves: it waits so long for the backend to close, and reads so much of
// what still comes.
const (
	lingerTime  = time.Second
	lingerBytes = 64 << 10
)

// transport is how the probes that speak reach a backend.
type transport struct {
	tls    *tls.Config
	header func(c net.Conn) ([]byte, error)
}

// conn is a probe's connection. It breaks off when the context that opened it ends,
// whatever deadlines its user sets.
type conn struct {
	net.Conn // the TLS connection, or raw
	raw      *net.TCPConn
	unbind   func() bool // ends the context's hold on raw
}

// open dials addr and makes the connection ready for MQTT: PROXY header, then TLS.
func (t transport) open(ctx context.Context, addr string) (*conn, error) {
	c, err := dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	if err := t.prepare(ctx, c, addr); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func dial(ctx context.Context, addr string) (*conn, error) {
	// No keepalive: a check is over long before the first one.
	d := net.Dialer{KeepAlive: -1}
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fail(ctx, "connect to "+addr, err)
	}
	raw := nc.(*net.TCPConn)
	return &conn{
		Conn:   raw,
		raw:    raw,
		unbind: context.AfterFunc(ctx, func() { raw.Close() }),
	}, nil
}

func (t transport) prepare(ctx context.Context, c *conn, addr string) error {
	if t.header != nil {
		h, err := t.header(c.raw)
		if err != nil {
			return &Error{Local, fmt.Errorf("make the PROXY header: %w", err)}
		}
		if _, err := c.raw.Write(h); err != nil {
			return fail(ctx, "write the PROXY header", err)
		}
	}
	if t.tls == nil {
		return nil
	}
	tc := tls.Client(c.raw, configFor(t.tls, addr))
	if err := tc.HandshakeContext(ctx); err != nil {
		e := fail(ctx, "TLS handshake", err)
		if e.Reason == Other {
			e.Reason = TLS
		}
		return e
	}
	c.Conn = tc
	return nil
}

// configFor verifies the host of addr where cfg names no server.
func configFor(cfg *tls.Config, addr string) *tls.Config {
	if cfg.ServerName != "" || cfg.InsecureSkipVerify {
		return cfg
	}
	cfg = cfg.Clone()
	cfg.ServerName, _, _ = net.SplitHostPort(addr)
	return cfg
}

// Close ends the connection as a client in good order does: our end first, then what
// still comes up to the backend's end. A plain close would answer bytes on their way
// with a reset, and a reset is an error in the broker's log.
func (c *conn) Close() error {
	_ = c.raw.SetDeadline(time.Now().Add(lingerTime))
	if tc, ok := c.Conn.(*tls.Conn); ok {
		_ = tc.CloseWrite()
	}
	if c.raw.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
	}
	c.unbind()
	return c.raw.Close()
}

// fail says what was being done when err came. When ctx has ended, its cause is what
// matters: err tells only that the connection was taken away.
func fail(ctx context.Context, doing string, err error) *Error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if errors.Is(err, io.EOF) {
		err = closedError{}
	}
	return &Error{ReasonOf(err), fmt.Errorf("%s: %w", doing, err)}
}

// closedError is io.EOF in words.
type closedError struct{}

func (closedError) Error() string { return "the backend closed the connection" }
func (closedError) Unwrap() error { return io.EOF }
