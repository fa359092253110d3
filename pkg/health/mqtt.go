package health

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// ClientIDPrefix begins the Client Identifier of each check; random characters make it
// one of a kind, so that a check takes over no session. All 23 are of the kind that
// every server must take [MQTT-3.1.3-5].
const ClientIDPrefix = "mqttlbcheck"

const (
	clientIDLength = 23
	// checkKeepAlive, in seconds, lets the broker clear up by itself after a balancer
	// that dies in the middle of a check. Some brokers refuse 0.
	checkKeepAlive = 30
	maxConnack     = 64 << 10 // bytes; 5.0 would allow 256 MiB
)

// MQTT checks that the broker answers CONNECT with CONNACK. It connects with a fresh
// Client Identifier, a clean session and no will, and leaves with DISCONNECT, so that
// nothing of it stays on the broker. The package documentation says which refusals
// count as alive.
type MQTT struct {
	// TLS, if set, is how to speak to the backend. Without a ServerName the host of
	// the backend's address is verified.
	TLS *tls.Config
	// Header, if set, gives the PROXY protocol header that goes before anything else,
	// the ClientHello included. c is the connection to the backend.
	Header func(c net.Conn) ([]byte, error)
	// Version to connect in; zero stands for 3.1.1.
	Version mqtt.Version
	// Username and Password are left out where they are empty.
	Username, Password string
}

// Probe sends CONNECT, waits for CONNACK and sends DISCONNECT.
func (p MQTT) Probe(ctx context.Context, addr string) error {
	c, err := transport{p.TLS, p.Header}.open(ctx, addr)
	if err != nil {
		return err
	}
	defer c.Close()

	version := cmp.Or(p.Version, mqtt.V311)
	if _, err := c.Write(mqtt.AppendConnect(nil, mqtt.ConnectOptions{
		Version:    version,
		ClientID:   newClientID(),
		CleanStart: true,
		KeepAlive:  checkKeepAlive,
		Username:   orNil(p.Username),
		Password:   orNil(p.Password),
	})); err != nil {
		return fail(ctx, "write CONNECT", err)
	}
	ack, err := readConnack(c, version)
	if err != nil {
		return fail(ctx, "wait for CONNACK", err)
	}
	if !ack.Accepted() {
		return judge(ack)
	}
	// The broker has shown that it works; what becomes of the farewell changes nothing.
	_, _ = c.Write(mqtt.AppendDisconnect(nil, version, mqtt.Success))
	return nil
}

// newClientID gives ClientIDPrefix and random capitals and digits, 60 bits of them.
func newClientID() string { return (ClientIDPrefix + rand.Text())[:clientIDLength] }

func orNil(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

// readConnack reads until CONNACK is whole, or cannot become one any more.
func readConnack(c net.Conn, v mqtt.Version) (mqtt.Connack, error) {
	var b []byte
	chunk := make([]byte, 512)
	for {
		n, err := c.Read(chunk)
		b = append(b, chunk[:n]...)
		ack, size, parseErr := mqtt.ParseConnack(b, v)
		switch {
		case parseErr == nil:
			return ack, nil
		case !errors.Is(parseErr, mqtt.ErrShort):
			return ack, &Error{Protocol, parseErr}
		case max(size, len(b)) > maxConnack:
			return ack, &Error{Protocol, fmt.Errorf("CONNACK of %d bytes; a check takes %d", size, maxConnack)}
		case err != nil:
			return ack, err
		}
	}
}

// judge says whether a broker that refuses with ack is down, and if so why.
func judge(ack mqtt.Connack) error {
	switch ack.Reason() {
	case mqtt.BadUserNameOrPassword, mqtt.NotAuthorized, mqtt.Banned, mqtt.BadAuthenticationMethod,
		mqtt.ClientIdentifierNotValid, mqtt.UnsupportedProtocolVersion:
		return nil // it is about the probe: see the package documentation
	default:
		return refused(ack)
	}
}

// refused is the error of a CONNACK that counts as down.
func refused(ack mqtt.Connack) *Error {
	reason := ConnackRefused
	if ack.Reason() == mqtt.ServerUnavailable {
		reason = ServerUnavailable
	}
	err := fmt.Errorf("CONNACK 0x%02x: %s", ack.Code, ack.Reason())
	if len(ack.ReasonString) > 0 {
		err = fmt.Errorf("%w (%q)", err, ack.ReasonString)
	}
	return &Error{reason, err}
}
