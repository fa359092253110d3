package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	pahov5 "github.com/eclipse/paho.golang/paho"
	pahov3 "github.com/eclipse/paho.mqtt.golang"

	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/e2e/rig/rigtest"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// entrance is a way to the broker.
type entrance struct {
	name string
	to   target
}

// openHouse starts a broker with every kind of listener, and mqttlb before it.
func openHouse(t *testing.T) (b *rig.Broker, l *lb, ways []entrance) {
	t.Helper()
	certs := newPKI(t)
	own, dev := certs.server(t, "broker", rig.ECDSA), certs.device(t, "device")
	b = startBroker(t, rig.BrokerOptions{
		Listeners: []rig.BrokerListener{
			{Name: "plain"},
			{Name: "tls", TLS: &rig.MosquittoTLS{Cert: own.Cert, Key: own.Key}},
			{Name: "mtls", TLS: &rig.MosquittoTLS{Cert: own.Cert, Key: own.Key, ClientCA: certs.CA}},
			{Name: "proxy", Proxy: true},
		},
		Extra: "durability: 1s\n",
	})
	l, plain, encrypted := behind(t, b, own)
	return b, l, []entrance{
		{"plain", target{addr: b.Listener("plain")}},
		{"tls", target{addr: b.Listener("tls"), ca: certs.CA}},
		{"mtls", target{addr: b.Listener("mtls"), ca: certs.CA, cert: dev.Cert, key: dev.Key}},
		{"mqttlb", target{addr: plain}},
		{"mqttlb, tls", target{addr: encrypted, ca: certs.CA}},
	}
}

// Every client speaks to every other one at each QoS, in whatever version, by
// every way.
func TestRealClientsSpeakToEachOtherThroughTheBroker(t *testing.T) {
	_, _, ways := openHouse(t)
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			ctx := within(t)
			topic := "from/" + way.name
			var clients []messenger
			for i, lib := range libraries {
				c, err := lib.join(t, way.to, fmt.Sprintf("client-%d", i), topic)
				if err != nil {
					t.Fatalf("%s: %v", lib.name, err)
				}
				clients = append(clients, c)
			}
			for i, sender := range clients {
				for qos := range 3 {
					want := rig.Message{Topic: topic, Payload: fmt.Sprintf("%s at QoS %d", libraries[i].name, qos), QoS: qos}
					if err := sender.Publish(ctx, want.Topic, want.Payload, qos); err != nil {
						t.Fatalf("%s: %v", want.Payload, err)
					}
					for j, c := range clients {
						if got, err := c.Next(ctx); err != nil || got != want {
							t.Fatalf("%s received %+v, %v; want %+v", libraries[j].name, got, err, want)
						}
					}
				}
			}
		})
	}
}

// visit says how a client comes.
type visit struct {
	to     target
	id     string
	filter string // subscribed to at QoS 2
	keep   bool   // its session outlives its connection
	will   string // topic; empty: none
}

// visitor is a client that does all that the story needs.
type visitor interface {
	Send(ctx context.Context, m rig.Message) error
	Next(ctx context.Context) (rig.Message, error)
	Vanish() // ends the connection and says nothing
}

var visitors = []struct {
	name string
	come func(t *testing.T, v visit) (visitor, error)
}{
	{"mosquitto clients, MQTT 3.1", comeMosquitto("31")},
	{"mosquitto clients, MQTT 3.1.1", comeMosquitto("311")},
	{"mosquitto clients, MQTT 5.0", comeMosquitto("5")},
	{"paho.mqtt.golang, MQTT 3.1.1", comePahoV3},
	{"paho.golang, MQTT 5.0", comePahoV5},
}

// bigSize is of a payload that takes many reads and writes.
const bigSize = 500_000

func TestEachRealClientFindsWhatMQTTPromises(t *testing.T) {
	_, _, ways := openHouse(t)
	watchers := way{addr: ways[0].to.addr}
	for _, w := range ways {
		for i, lib := range visitors {
			t.Run(w.name+", "+lib.name, func(t *testing.T) {
				ctx := within(t)
				home := fmt.Sprintf("%s/%d/", strings.ReplaceAll(w.name, ", ", "-"), i)
				come := func(v visit) visitor {
					t.Helper()
					v.to, v.id = w.to, home+v.id
					c, err := lib.come(t, v)
					if err != nil {
						t.Fatal(err)
					}
					return c
				}
				send := func(c visitor, m rig.Message) {
					t.Helper()
					if err := c.Send(ctx, m); err != nil {
						t.Fatalf("send %s: %v", m.Topic, err)
					}
				}
				hear := func(c visitor, want rig.Message) {
					t.Helper()
					got, err := c.Next(ctx)
					if err != nil || got != want {
						got.Payload, want.Payload = got.Payload[:min(80, len(got.Payload))], want.Payload[:min(80, len(want.Payload))]
						t.Fatalf("received %+v, %v; want %+v", got, err, want)
					}
				}

				watcher := watchers.guest(t, home+"watcher")
				watcher.wants(t, 0, home+"will")
				keeper := come(visit{id: "keeper", filter: home + "+/in/#", keep: true, will: home + "will"})
				other := come(visit{id: "other", filter: home + "none"})

				for qos := range 3 { // by wildcards
					m := rig.Message{Topic: fmt.Sprintf("%s%d/in/x/y", home, qos), Payload: fmt.Sprint("at QoS ", qos), QoS: qos}
					send(other, m)
					hear(keeper, m)
				}
				big := rig.Message{Topic: home + "big/in", Payload: strings.Repeat("0123456789", bigSize/10), QoS: 1}
				send(other, big)
				hear(keeper, big)

				keeper.Vanish()
				if m := watcher.hears(t); m.Topic != home+"will" || m.Payload != "gone" {
					t.Errorf("%+v in place of the will", m)
				}
				var missed []rig.Message
				for n := range 10 { // QoS 2 last: some clients hand it on with PUBREL only
					m := rig.Message{Topic: home + "missed/in", Payload: fmt.Sprint(n), QoS: 1 + n/5}
					send(other, m)
					missed = append(missed, m)
				}
				back := come(visit{id: "keeper", filter: home + "+/in/#", keep: true})
				first, err := back.Next(ctx)
				for err == nil && first.Topic != missed[0].Topic { // it had vanished before it acknowledged this
					first, err = back.Next(ctx)
				}
				if err != nil || first != missed[0] {
					t.Fatalf("received %+v, %v; want %+v", first, err, missed[0])
				}
				for _, m := range missed[1:] {
					hear(back, m)
				}

				last := rig.Message{Topic: home + "last", Payload: "known", QoS: 1, Retained: true}
				send(other, rig.Message{Topic: last.Topic, Payload: "old", QoS: 1, Retained: true})
				send(other, last)
				hear(come(visit{id: "late", filter: home + "last"}), last)
			})
		}
	}
}

// mosquittoVisitor is mosquitto_sub, and a mosquitto_pub for each message.
type mosquittoVisitor struct {
	*rig.Subscriber
	pub rig.Client
}

func comeMosquitto(version string) func(t *testing.T, v visit) (visitor, error) {
	return func(t *testing.T, v visit) (visitor, error) {
		c := rig.Client{Addr: v.to.addr, Version: version, CA: v.to.ca, Cert: v.to.cert, Key: v.to.key}
		sub := c
		sub.ID, sub.QoS = v.id, 2
		if v.keep {
			sub.Args = append(sub.Args, "-c")
			if version == "5" {
				sub.Args = append(sub.Args, "-x", "3600")
			}
		}
		if v.will != "" {
			sub.Args = append(sub.Args, "--will-topic", v.will, "--will-payload", "gone")
		}
		if err := c.Publish(t.Context(), "reachable", ""); err != nil {
			return nil, err // mosquitto_sub would try for ever
		}
		return &mosquittoVisitor{rigtest.Subscribe(t, sub, v.filter), c}, nil
	}
}

// Send has mosquitto_pub read the payload from its standard input, which has
// no bound.
func (m *mosquittoVisitor) Send(ctx context.Context, msg rig.Message) error {
	pub := m.pub
	pub.QoS = msg.QoS
	args := append(pub.Flags(), "-t", msg.Topic, "-s")
	if msg.Retained {
		args = append(args, "-r")
	}
	cmd := exec.CommandContext(ctx, "mosquitto_pub", args...)
	cmd.Stdin = strings.NewReader(msg.Payload)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mosquitto_pub: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

func (m *mosquittoVisitor) Vanish() { m.Kill() }

type pahoV3Visitor struct {
	pahoV3
	conn net.Conn
}

func comePahoV3(t *testing.T, v visit) (visitor, error) {
	p := &pahoV3Visitor{pahoV3: pahoV3{inbox: newInbox()}}
	o := pahov3.NewClientOptions().SetClientID(v.id).SetAutoReconnect(false).SetConnectTimeout(patience).SetProtocolVersion(4).
		SetCleanSession(!v.keep).AddBroker("tcp://" + v.to.addr).
		SetCustomOpenConnectionFn(func(_ *url.URL, _ pahov3.ClientOptions) (net.Conn, error) {
			var err error
			p.conn, err = dialTarget(t, v.to)
			return p.conn, err
		}).
		// What comes for a kept session comes before any subscription is made here.
		SetDefaultPublishHandler(func(_ pahov3.Client, m pahov3.Message) {
			p.inbox <- rig.Message{Topic: m.Topic(), Payload: string(m.Payload()), QoS: int(m.Qos()), Retained: m.Retained()}
		})
	if v.will != "" {
		o.SetWill(v.will, "gone", 0, false)
	}
	p.client = pahov3.NewClient(o)
	if err := settle(p.client.Connect()); err != nil {
		return nil, err
	}
	t.Cleanup(func() { p.client.Disconnect(100) })
	return p, settle(p.client.Subscribe(v.filter, 2, nil))
}

func (p *pahoV3Visitor) Send(_ context.Context, m rig.Message) error {
	return settle(p.client.Publish(m.Topic, byte(m.QoS), m.Retained, m.Payload))
}

func (p *pahoV3Visitor) Vanish() { p.conn.Close() }

type pahoV5Visitor struct {
	pahoV5
	conn net.Conn
}

func comePahoV5(t *testing.T, v visit) (visitor, error) {
	conn, err := dialTarget(t, v.to)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { conn.Close() })
	p := &pahoV5Visitor{pahoV5{inbox: newInbox()}, conn}
	p.client = pahov5.NewClient(pahov5.ClientConfig{
		Conn:          conn,
		PacketTimeout: patience,
		OnPublishReceived: []func(pahov5.PublishReceived) (bool, error){func(r pahov5.PublishReceived) (bool, error) {
			m := r.Packet
			p.inbox <- rig.Message{Topic: m.Topic, Payload: string(m.Payload), QoS: int(m.QoS), Retained: m.Retain}
			return true, nil
		}},
	})
	connect := &pahov5.Connect{ClientID: v.id, CleanStart: !v.keep, KeepAlive: 60}
	if v.keep {
		hour := uint32(3600)
		connect.Properties = &pahov5.ConnectProperties{SessionExpiryInterval: &hour}
	}
	if v.will != "" {
		connect.WillMessage = &pahov5.WillMessage{Topic: v.will, Payload: []byte("gone")}
	}
	ctx := within(t)
	if _, err := p.client.Connect(ctx, connect); err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = p.client.Disconnect(&pahov5.Disconnect{}) })
	_, err = p.client.Subscribe(ctx, &pahov5.Subscribe{Subscriptions: []pahov5.SubscribeOptions{{Topic: v.filter, QoS: 2}}})
	return p, err
}

func (p *pahoV5Visitor) Send(ctx context.Context, m rig.Message) error {
	_, err := p.client.Publish(ctx, &pahov5.Publish{Topic: m.Topic, QoS: byte(m.QoS), Retain: m.Retained, Payload: []byte(m.Payload)})
	return err
}

func (p *pahoV5Visitor) Vanish() { p.conn.Close() }

// The clients that are no Go and no C tell their story themselves: wildcards,
// each QoS, a big payload, a will, a kept session, a retained message.
const scriptStory = `at QoS 0
at QoS 1
at QoS 2
big: 500000
will: gone
missed: 0 1 2 3 4 5 6 7 8 9
retained: known`

func TestScriptedClientsFindWhatMQTTPromises(t *testing.T) {
	_, _, ways := openHouse(t)
	js := installMQTTjs(t)
	for _, client := range []struct {
		name    string
		levels  []string
		command []string
	}{
		// Debian's package is for Debian's Python, whatever else is in PATH.
		{"python3-paho-mqtt", []string{"3", "4", "5"}, []string{"/usr/bin/python3", "pahopython/story.py"}},
		{"MQTT.js", []string{"3", "4", "5"}, []string{"node", strings.Replace(js, "roundtrip.js", "story.js", 1)}},
	} {
		for _, w := range ways {
			for _, level := range client.levels {
				t.Run(strings.Join([]string{client.name, "level " + level, w.name}, ", "), func(t *testing.T) {
					cmd := exec.CommandContext(within(t), client.command[0], append(client.command[1:],
						w.to.addr, level, strings.NewReplacer("/", "-", " ", "", ",", "-").Replace(t.Name()), w.to.ca, w.to.cert, w.to.key)...)
					out, err := cmd.CombinedOutput()
					if got := strings.TrimSpace(string(out)); err != nil || got != scriptStory {
						t.Errorf("%v, %s\nwant\n%s", err, got, scriptStory)
					}
				})
			}
		}
	}
}

// Behind mqttlb the broker sees the clients, not mqttlb.
func TestTheBrokerBelievesWhoMqttlbSaysTheClientIs(t *testing.T) {
	b, l, ways := openHouse(t)
	from := b.Log().Len()
	d := way{addr: ways[3].to.addr, from: "127.0.0.77"}.join(t, "far-away")
	source := d.LocalAddr().String()
	d.leave()
	line := awaitLine(t, b.Process, from, `msg="connection ended"`, "client_id=far-away")
	if !strings.Contains(line, "client="+source) || !strings.Contains(line, "listener=proxy") {
		t.Errorf("the broker's log does not say that the client is at %s: %s", source, line)
	}
	if line := l.awaitLine(t, 0, `msg="connection ended"`, "client_id=far-away"); !strings.Contains(line, source) {
		t.Errorf("mqttlb's log does not name %s: %s", source, line)
	}

	// Nobody gets in there without a header, nor elsewhere with one.
	header := "PROXY TCP4 192.0.2.1 192.0.2.2 1 1883\r\n"
	connect := mqtt.AppendConnect(nil, mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "liar", CleanStart: true})
	for listener, first := range map[string]string{"proxy": "", "plain": header} {
		d := must(way{addr: b.Listener(listener)}.dial(t))(t)
		_, _ = d.Write(append([]byte(first), connect...))
		if p, err := d.packet(); !isOver(err) {
			t.Errorf("listener %s, header %q: % x, %v; want the end", listener, first, p, err)
		}
	}
}

func TestMTLSListenerTakesNobodyWithoutACertificate(t *testing.T) {
	_, _, ways := openHouse(t)
	stranger := newPKI(t).device(t, "stranger")
	for name, to := range map[string]target{
		"none":             {addr: ways[2].to.addr, ca: ways[2].to.ca},
		"of another house": {addr: ways[2].to.addr, ca: ways[2].to.ca, cert: stranger.Cert, key: stranger.Key},
	} {
		if _, err := (way{addr: to.addr, tls: to.tls(t)}).tryJoin(t, "stranger"); err == nil {
			t.Errorf("certificate %s: let in", name)
		}
	}
}
