package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/eclipse/paho.golang/packets"
	pahov5 "github.com/eclipse/paho.golang/paho"
	pahov3 "github.com/eclipse/paho.mqtt.golang"

	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/e2e/rig/rigtest"
)

// target is what a user types into a client: an address, and files for TLS.
type target struct {
	addr      string
	ca        string // with it the client speaks TLS
	cert, key string // the client's own certificate
}

// tls is the files as crypto/tls wants them; nil for plain TCP.
func (to target) tls(t testing.TB) *tls.Config {
	t.Helper()
	if to.ca == "" {
		return nil
	}
	pem, err := os.ReadFile(to.ca)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1"}
	cfg.RootCAs.AppendCertsFromPEM(pem)
	if to.cert != "" {
		pair, err := tls.LoadX509KeyPair(to.cert, to.key)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg
}

// messenger is a connected client that has subscribed to one filter at QoS 2.
type messenger interface {
	Publish(ctx context.Context, topic, payload string, qos int) error
	Next(ctx context.Context) (rig.Message, error)
}

// library is a client implementation that people use.
type library struct {
	name string
	join func(t *testing.T, to target, id, filter string) (messenger, error)
}

var libraries = []library{
	{"mosquitto clients, MQTT 3.1", joinMosquitto("31")},
	{"mosquitto clients, MQTT 3.1.1", joinMosquitto("311")},
	{"mosquitto clients, MQTT 5.0", joinMosquitto("5")},
	{"paho.mqtt.golang, MQTT 3.1.1", joinPahoV3},
	{"paho.golang, MQTT 5.0", joinPahoV5},
}

// mosquittoPair is mosquitto_sub, and a mosquitto_pub for each message.
type mosquittoPair struct {
	*rig.Subscriber
	pub rig.Client
}

func joinMosquitto(version string) func(t *testing.T, to target, id, filter string) (messenger, error) {
	return func(t *testing.T, to target, id, filter string) (messenger, error) {
		c := rig.Client{Addr: to.addr, ID: id, Version: version, QoS: 2, CA: to.ca, Cert: to.cert, Key: to.key}
		if err := c.Publish(t.Context(), "reachable", ""); err != nil {
			return nil, err // mosquitto_sub would try for ever
		}
		s := rigtest.Subscribe(t, c, filter)
		c.ID = ""
		return &mosquittoPair{s, c}, nil
	}
}

func (m *mosquittoPair) Publish(ctx context.Context, topic, payload string, qos int) error {
	pub := m.pub
	pub.QoS = qos
	return pub.Publish(ctx, topic, payload)
}

// inbox is where callbacks put messages; nobody sends more than it holds.
type inbox chan rig.Message

func newInbox() inbox { return make(inbox, 1000) }

func (in inbox) Next(ctx context.Context) (rig.Message, error) {
	select {
	case m := <-in:
		return m, nil
	case <-ctx.Done():
		return rig.Message{}, fmt.Errorf("waiting for a message: %w", context.Cause(ctx))
	}
}

type pahoV3 struct {
	inbox
	client pahov3.Client
}

func joinPahoV3(t *testing.T, to target, id, filter string) (messenger, error) {
	url := "tcp://" + to.addr
	o := pahov3.NewClientOptions().SetClientID(id).SetAutoReconnect(false).SetConnectTimeout(patience).SetProtocolVersion(4)
	if cfg := to.tls(t); cfg != nil {
		url = "ssl://" + to.addr
		o.SetTLSConfig(cfg)
	}
	p := &pahoV3{newInbox(), pahov3.NewClient(o.AddBroker(url))}
	if err := settle(p.client.Connect()); err != nil {
		return nil, err
	}
	t.Cleanup(func() { p.client.Disconnect(100) })
	return p, settle(p.client.Subscribe(filter, 2, func(_ pahov3.Client, m pahov3.Message) {
		p.inbox <- rig.Message{Topic: m.Topic(), Payload: string(m.Payload()), QoS: int(m.Qos()), Retained: m.Retained()}
	}))
}

func (p *pahoV3) Publish(_ context.Context, topic, payload string, qos int) error {
	return settle(p.client.Publish(topic, byte(qos), false, payload))
}

// settle waits for what paho.mqtt.golang has begun.
func settle(token pahov3.Token) error {
	if !token.WaitTimeout(patience) {
		return fmt.Errorf("no end after %v", patience)
	}
	return token.Error()
}

type pahoV5 struct {
	inbox
	client *pahov5.Client
}

func joinPahoV5(t *testing.T, to target, id, filter string) (messenger, error) {
	conn, err := dialTarget(t, to)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { conn.Close() })
	p := &pahoV5{inbox: newInbox()}
	p.client = pahov5.NewClient(pahov5.ClientConfig{
		Conn:          conn,
		PacketTimeout: patience,
		OnPublishReceived: []func(pahov5.PublishReceived) (bool, error){func(r pahov5.PublishReceived) (bool, error) {
			m := r.Packet
			p.inbox <- rig.Message{Topic: m.Topic, Payload: string(m.Payload), QoS: int(m.QoS), Retained: m.Retain}
			return true, nil
		}},
	})
	ctx := within(t)
	if _, err := p.client.Connect(ctx, &pahov5.Connect{ClientID: id, CleanStart: true, KeepAlive: 60}); err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = p.client.Disconnect(&pahov5.Disconnect{}) })
	_, err = p.client.Subscribe(ctx, &pahov5.Subscribe{Subscriptions: []pahov5.SubscribeOptions{{Topic: filter, QoS: 2}}})
	return p, err
}

func (p *pahoV5) Publish(ctx context.Context, topic, payload string, qos int) error {
	_, err := p.client.Publish(ctx, &pahov5.Publish{Topic: topic, QoS: byte(qos), Payload: []byte(payload)})
	return err
}

// dialTarget gives a connection as paho.golang wants it. It writes a packet in
// several pieces, and those of a PINGREQ would get between them on a tls.Conn,
// which is only safe for one piece at a time.
func dialTarget(t *testing.T, to target) (net.Conn, error) {
	d := net.Dialer{Timeout: patience}
	cfg := to.tls(t)
	if cfg == nil {
		return d.Dial("tcp", to.addr)
	}
	c, err := tls.DialWithDialer(&d, "tcp", to.addr, cfg)
	if err != nil {
		return nil, err
	}
	return packets.NewThreadSafeConn(c), nil
}
