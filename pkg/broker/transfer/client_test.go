package transfer

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// patience bounds waits that a sound broker ends much sooner.
const patience = 30 * time.Second

// running is a broker on a socket.
type running struct {
	*broker.Broker
	t    *testing.T
	addr string
	stop func()
}

func run(t *testing.T, o broker.Options) *running {
	t.Helper()
	b := broker.New(o)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := b.Start(ctx); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- b.Serve(context.Background(), l, broker.Listener{Name: "test"}) }()
	stopped := false
	r := &running{Broker: b, t: t, addr: l.Addr().String(), stop: func() {
		if stopped {
			return
		}
		stopped = true
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := b.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	}}
	t.Cleanup(r.stop)
	return r
}

// alone waits until no more than so many clients are connected.
func (r *running) alone(clients int) {
	r.t.Helper()
	for late := time.Now().Add(patience); r.Stats().Clients > clients; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			r.t.Fatal("a client that has left counts as connected")
		}
	}
}

// client speaks 5.0.
type client struct {
	t *testing.T
	net.Conn
	buf []byte
}

// connect gives a client whose session lasts, and whether it was there already.
func (r *running) connect(id string, o mqtt.ConnectOptions) (*client, bool) {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	d := &client{t: r.t, Conn: c}
	o.Version, o.ClientID = mqtt.V5, id
	o.Properties = o.Properties.AppendUint(mqtt.PropSessionExpiryInterval, 3600)
	d.send(mqtt.AppendConnect(nil, o))
	ack, _, err := mqtt.ParseConnack(d.next(mqtt.TypeConnack), mqtt.V5)
	if err != nil || ack.Code != 0 {
		r.t.Fatalf("CONNACK %+v, %v", ack, err)
	}
	return d, ack.SessionPresent
}

func (c *client) send(b []byte) {
	c.t.Helper()
	if _, err := c.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// next reads a packet that has to be of this type. What is to be released comes
// when it comes, and is answered on the way.
func (c *client) next(want mqtt.PacketType) []byte {
	c.t.Helper()
	for {
		is, p := c.packet(want)
		switch {
		case is == want:
			return p
		case is == mqtt.TypePubrel:
			c.release(p)
		default:
			c.t.Fatalf("got %s % x, want %s", is, p, want)
		}
	}
}

// packet reads the next one, whatever it is.
func (c *client) packet(want mqtt.PacketType) (mqtt.PacketType, []byte) {
	c.t.Helper()
	for {
		if is, _, remaining, n, err := mqtt.ParseFixedHeader(c.buf); err == nil && len(c.buf) >= n+remaining {
			p := c.buf[: n+remaining : n+remaining]
			c.buf = c.buf[n+remaining:]
			return is, p
		}
		more := make([]byte, 4096)
		n, err := c.Read(more)
		if err != nil {
			c.t.Fatalf("waiting for %s: %v", want, err)
		}
		c.buf = append(c.buf, more[:n]...)
	}
}

// release answers PUBREL.
func (c *client) release(p []byte) {
	c.t.Helper()
	a, _, err := mqtt.ParseAck(p, mqtt.V5)
	if err != nil {
		c.t.Fatal(err)
	}
	c.ack(mqtt.TypePubcomp, a.PacketID)
}

func (c *client) publication() mqtt.Publish {
	c.t.Helper()
	p, _, err := mqtt.ParsePublish(c.next(mqtt.TypePublish), mqtt.V5)
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

func (c *client) acked(t mqtt.PacketType) uint16 {
	c.t.Helper()
	a, _, err := mqtt.ParseAck(c.next(t), mqtt.V5)
	if err != nil {
		c.t.Fatal(err)
	}
	return a.PacketID
}

func (c *client) ack(t mqtt.PacketType, id uint16) {
	c.t.Helper()
	c.send(mqtt.AppendAck(nil, mqtt.V5, mqtt.Ack{Type: t, PacketID: id}))
}

func (c *client) subscribe(qos byte, filter string) {
	c.t.Helper()
	s := mqtt.Subscribe{PacketID: 1}
	s.Subscriptions = s.Subscriptions.Append(mqtt.Subscription{Filter: []byte(filter), QoS: qos})
	c.send(mqtt.AppendSubscribe(nil, mqtt.V5, s))
	c.next(mqtt.TypeSuback)
}

func (c *client) publish(m mqtt.Publish) {
	c.t.Helper()
	c.send(mqtt.AppendPublish(nil, mqtt.V5, m))
	switch m.QoS {
	case 1:
		c.acked(mqtt.TypePuback)
	case 2:
		c.acked(mqtt.TypePubrec)
	}
}

// quiet says that nothing more is on its way.
func (c *client) quiet() {
	c.t.Helper()
	c.send(mqtt.AppendPingreq(nil))
	c.next(mqtt.TypePingresp)
}
