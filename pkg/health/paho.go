package health

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"sync/atomic"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// Paho checks with a full client that a message makes its way: it connects as [MQTT]
// does, subscribes to Topic, publishes to it, and passes when its own message has come
// back. The credentials must allow that: to this probe every refusal is a failure.
//
// The message is QoS 0 and not retained, so that nothing stays behind, not even in
// the sessions of others. Each check has a payload of its own: balancers may share a Topic.
type Paho struct {
	TLS                *tls.Config                      // as in MQTT
	Header             func(c net.Conn) ([]byte, error) // as in MQTT
	Username, Password string                           // as in MQTT
	Topic              string                           // a topic name, without wildcards
}

// pahoFarewell bounds what the client needs to send DISCONNECT and to stop.
const pahoFarewell = 2 * lingerTime

// Probe makes the round trip.
func (p Paho) Probe(ctx context.Context, addr string) error {
	c, err := transport{p.TLS, p.Header}.open(ctx, addr)
	if err != nil {
		return err
	}
	g := newGuard(c)
	defer g.Close()
	if err := p.roundTrip(ctx, g); err != nil {
		// What the guard has stopped at says more than what the client made of it.
		if fault := g.fault.Load(); fault != nil {
			return fault
		}
		return err
	}
	return nil
}

func (p Paho) roundTrip(ctx context.Context, g *guard) error {
	id := newClientID()
	lost := make(chan error, 1)
	client := paho.NewClient(p.options(ctx, id, g, lost))

	// No wait for ctx here: it takes the connection away, and then the client has let go
	// of everything when the token is done.
	connect := client.Connect().(*paho.ConnectToken)
	connect.Wait()
	if err := connect.Error(); err != nil {
		if ack := (mqtt.Connack{Code: connect.ReturnCode()}); ack.Code > 0 && ack.Code <= 5 {
			return refused(ack)
		}
		return fail(ctx, "connect as an MQTT client", err)
	}
	defer client.Disconnect(uint(pahoFarewell.Milliseconds()))

	back := make(chan struct{}, 1)
	subscribe := client.Subscribe(p.Topic, 0, func(_ paho.Client, m paho.Message) {
		if string(m.Payload()) == id {
			signal(back)
		}
	}).(*paho.SubscribeToken)
	if err := wait(ctx, subscribe, lost); err != nil {
		return fail(ctx, "subscribe to "+p.Topic, err)
	}
	if subscribe.Result()[p.Topic] > 2 {
		return &Error{SubscribeRefused, fmt.Errorf("subscribe to %s: the broker refuses; allow it to the check's user", p.Topic)}
	}

	if err := wait(ctx, client.Publish(p.Topic, 0, false, id), lost); err != nil {
		return fail(ctx, "publish to "+p.Topic, err)
	}
	select {
	case <-back:
		return nil
	case err := <-lost:
		return fail(ctx, "wait for the message on "+p.Topic, err)
	case <-ctx.Done():
		return fail(ctx, "wait for the message on "+p.Topic, ctx.Err())
	}
}

func (p Paho) options(ctx context.Context, id string, c net.Conn, lost chan<- error) *paho.ClientOptions {
	o := paho.NewClientOptions().
		AddBroker("tcp://backend"). // it wants a name; the connection is ours
		SetCustomOpenConnectionFn(func(*url.URL, paho.ClientOptions) (net.Conn, error) { return c, nil }).
		SetClientID(id).
		SetCleanSession(true).
		SetProtocolVersion(4). // said outright, so that a refusal does not lead to a second try in 3.1
		SetKeepAlive(checkKeepAlive * time.Second).
		SetUsername(p.Username).
		SetPassword(p.Password).
		SetAutoReconnect(false).
		SetConnectionLostHandler(func(_ paho.Client, err error) { lost <- err })
	if end, ok := ctx.Deadline(); ok {
		// The context ends the connection in any case; this ends waits inside the client.
		o.SetConnectTimeout(time.Until(end)).SetWriteTimeout(time.Until(end))
	}
	return o
}

// wait ends with the token, with the connection, or with ctx.
func wait(ctx context.Context, t paho.Token, lost <-chan error) error {
	select {
	case <-t.Done():
		return t.Error()
	case err := <-lost:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// guard stands between a backend and the client, which trusts what it reads: a SUBACK
// with more codes than filters makes it panic, and it allocates whatever length a
// packet announces. A backend must not be able to take the balancer down.
type guard struct {
	*conn
	scan  mqtt.Scanner
	begun bool // CONNACK came
	fault atomic.Pointer[Error]
}

// maxGuarded bounds a packet, in bytes; a check's own are tiny, but others may publish
// to the Topic.
const maxGuarded = 64 << 10

func newGuard(c *conn) *guard {
	g := &guard{conn: c}
	g.scan.OnPacket = g.check
	return g
}

func (g *guard) check(t mqtt.PacketType, _ byte, remaining int) {
	switch {
	case !g.begun && t != mqtt.TypeConnack:
		g.stop(fmt.Errorf("%s where CONNACK was due", t))
	case t == mqtt.TypeSuback && remaining != 3:
		g.stop(fmt.Errorf("SUBACK of %d bytes in answer to one filter", remaining))
	case remaining > maxGuarded:
		g.stop(fmt.Errorf("%s of %d bytes; a check takes %d", t, remaining, maxGuarded))
	}
	g.begun = true
}

// stop keeps the first fault.
func (g *guard) stop(err error) { g.fault.CompareAndSwap(nil, &Error{Protocol, err}) }

// Read gives the client no packet that is not fit for it. A client reads header and
// body apart, so a fault found in the one keeps it from the other.
func (g *guard) Read(b []byte) (int, error) {
	n, err := g.conn.Read(b)
	if err := g.scan.Feed(b[:n]); err != nil {
		g.stop(err)
	}
	if fault := g.fault.Load(); fault != nil {
		return 0, fault
	}
	return n, err
}
