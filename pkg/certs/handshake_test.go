package certs

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"
)

// outcome is what both sides have of one connection.
type outcome struct {
	server, client       tls.ConnectionState
	serverErr, clientErr error
}

// connect does one handshake over loopback and one byte each way, after which
// session tickets have arrived and each side knows the other's verdict.
func connect(t *testing.T, server, client *tls.Config) outcome {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	deadline := time.Now().Add(10 * time.Second)
	var o outcome
	served := make(chan struct{})
	go func() {
		defer close(served)
		raw, err := l.Accept()
		if err != nil {
			o.serverErr = err
			return
		}
		defer raw.Close()
		o.server, o.serverErr = exchange(tls.Server(raw, server), deadline)
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	o.client, o.clientErr = exchange(tls.Client(raw, client), deadline)
	raw.Close() // a client that gave up before its hello leaves the server waiting
	<-served
	return o
}

func exchange(c *tls.Conn, deadline time.Time) (tls.ConnectionState, error) {
	c.SetDeadline(deadline)
	if err := c.Handshake(); err != nil {
		return tls.ConnectionState{}, err
	}
	if _, err := c.Write([]byte{1}); err != nil {
		return tls.ConnectionState{}, err
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		return tls.ConnectionState{}, err
	}
	return c.ConnectionState(), nil
}

func serverConfig(t *testing.T, o ServerOptions) *tls.Config {
	t.Helper()
	cfg, err := ServerConfig(o)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}
