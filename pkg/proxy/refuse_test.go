package proxy

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// mend replaces bytes of a CONNECT.
func mend(b []byte, old, new string) []byte {
	if !bytes.Contains(b, []byte(old)) {
		panic("nothing to replace")
	}
	return bytes.Replace(b, []byte(old), []byte(new), 1)
}

// What a device can read of each refusal, by its version; no 3.x code fits a
// packet that is wrong in itself [MQTT-3.2.2-6].
func TestRefusalsThatADeviceCanRead(t *testing.T) {
	const limit = 200
	long := strings.Repeat("x", limit)
	options := func(v mqtt.Version, id string) mqtt.ConnectOptions {
		return mqtt.ConnectOptions{Version: v, ClientID: id, CleanStart: true, KeepAlive: 60}
	}
	connect := func(v mqtt.Version, id string) []byte { return mqtt.AppendConnect(nil, options(v, id)) }
	property := func(p ...byte) []byte {
		o := options(mqtt.V5, "dev-1")
		o.Properties = p
		return mqtt.AppendConnect(nil, o)
	}
	for _, tt := range []struct {
		name string
		send []byte
		how  string
		why  Why
	}{
		{"5.0 too large", connect(mqtt.V5, long), "connack=95,close", TooLarge},
		{"3.1.1 too large", connect(mqtt.V311, long), "close", TooLarge},
		{"3.1 too large", connect(mqtt.V31, long), "close", TooLarge},
		{"level 6", mend(connect(mqtt.V5, "dev-1"), "MQTT\x05", "MQTT\x06"), "connack=84,close", UnsupportedVersion},
		{"level 3 of MQTT", mend(connect(mqtt.V311, "dev-1"), "MQTT\x04", "MQTT\x03"), "connack=01,close", UnsupportedVersion},
		{"3.1.1 empty identifier", streamOf(t, "C002", "v311"), "connack=02,close", IdentifierRejected},
		{"3.1 empty identifier", streamOf(t, "C002", "v31"), "connack=02,close", IdentifierRejected},
		{"5.0 reserved flag", mend(connect(mqtt.V5, "dev-1"), "MQTT\x05\x02", "MQTT\x05\x03"), "connack=81,close", Malformed},
		{"3.1.1 reserved flag", mend(connect(mqtt.V311, "dev-1"), "MQTT\x04\x02", "MQTT\x04\x03"), "close", Malformed},
		{"5.0 unknown property", property(0x7F, 0), "connack=81,close", Malformed},
		{"5.0 Receive Maximum 0", property(byte(mqtt.PropReceiveMaximum), 0, 0), "connack=82,close", ProtocolError},
		{"wrong name", mend(connect(mqtt.V311, "dev-1"), "MQTT", "MQTx"), "close", NotMQTT},
		{"HTTP", []byte("GET / HTTP/1.1\r\n\r\n"), "close", NotMQTT},
		{"TLS on a plain port", recordHello(), "close", NotMQTT},
		{"PINGREQ first", []byte{0xC0, 0}, "close", NotMQTT},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, []string{closedPort(t)}, func(o *Options, _ *PoolOptions) { o.MaxConnectSize = limit })
			c := r.dial()
			if how, _ := outcome(r, c, nil, tt.send); how != tt.how {
				t.Errorf("%s, want %s", how, tt.how)
			}
			c.Close()
			e := r.ended(StageConnect, ByMqttlb, tt.why)
			if told := e.Answer != mqtt.Success; told != (tt.how != "close") {
				t.Errorf("the record says that the client was told %s", e.Answer)
			}
		})
	}
}

// [MQTT-3.1.2-24]: first the Reason String goes, then the CONNACK.
func TestRefusalKeepsToTheClientsMaximumPacketSize(t *testing.T) {
	connect := func(most byte, broken bool) []byte {
		p := []byte{byte(mqtt.PropMaximumPacketSize), 0, 0, 0, most}
		o := mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "dev-1", CleanStart: true, Properties: p}
		b := mqtt.AppendConnect(nil, o)
		if broken { // the Client Identifier is not UTF-8
			b = mend(b, "dev-1", "dev\xff1")
		}
		return b
	}
	for _, tt := range []struct {
		name   string
		send   []byte
		reason mqtt.Reason
		size   int // of the answer; -1 for more than a bare one
	}{
		{"no backend, 100 bytes", connect(100, false), mqtt.ServerUnavailable, -1},
		{"no backend, 10 bytes", connect(10, false), mqtt.ServerUnavailable, 5},
		{"no backend, 4 bytes", connect(4, false), mqtt.Success, 0},
		{"malformed, 200 bytes", connect(200, true), mqtt.MalformedPacket, -1},
		{"malformed, 10 bytes", connect(10, true), mqtt.MalformedPacket, 5},
		{"malformed, 4 bytes", connect(4, true), mqtt.Success, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, []string{closedPort(t)})
			c := r.dial()
			c.send(tt.send)
			b, _ := c.rest()
			if tt.size >= 0 && len(b) != tt.size || tt.size < 0 && len(b) <= 5 {
				t.Errorf("answer of %d bytes: % x", len(b), b)
			}
			if len(b) > 0 {
				if ack, n, err := mqtt.ParseConnack(b, mqtt.V5); err != nil || n != len(b) || ack.Reason() != tt.reason {
					t.Errorf("answer % x: %v", b, err)
				}
			}
			c.Close()
			if e := r.end(); e.Answer != tt.reason {
				t.Errorf("the record says that the client was told %s", e.Answer)
			}
		})
	}
}

func TestListenersConnectionLimit(t *testing.T) {
	address, _ := recorder(t)
	r := newRig(t, []string{address}, func(o *Options, _ *PoolOptions) { o.MaxConnections = 2 })
	held := []*peer{r.connected("one"), r.connected("two")}
	for want, connect := range map[string][]byte{"connack=03,close": connect311("more"), "connack=97,close": connect5("more")} {
		c := r.dial()
		if how, _ := outcome(r, c, nil, connect); how != want {
			t.Errorf("%s, want %s", how, want)
		}
		c.Close()
		r.ended(StageAdmit, ByMqttlb, Limit)
	}
	eventually(t, "the slots are given back", func() bool { return r.server.Connections() == 2 })
	// Behind the reserve, which is let in to be told, there is only the door.
	var reserve []*peer
	for range 16 {
		reserve = append(reserve, r.dial())
	}
	c := r.dial()
	if b, _ := c.rest(); len(b) > 0 {
		t.Errorf("answered % x", b)
	}
	c.Close()
	r.ended(StageAccept, ByMqttlb, Limit)
	for _, c := range reserve {
		c.Close()
		r.ended(StageConnect, ByClient, NoBytes)
	}
	// A slot that is free again is one.
	held[0].Close()
	r.ended(StageRelay, ByClient, Closed)
	eventually(t, "the slot is given back", func() bool { return r.server.Connections() < 2 })
	r.connected("three")
}

func TestBackendsConnectionLimit(t *testing.T) {
	full := func(spare bool) *rig {
		a, _ := recorder(t)
		b, _ := recorder(t)
		return newRig(t, []string{a, b}, unloaded, func(_ *Options, po *PoolOptions) {
			members := po.Table.Backends()
			for i := range members {
				spec := members[i].Spec
				if spec.MaxConnections = 1; i == 1 && !spare {
					members[i].SetHealth(false, "test")
				}
				members[i] = members[i].With(spec)
			}
			po.Table = ring(members)
		})
	}
	r := full(true)
	r.connected("dev-1")
	r.connected("dev-2") // spills to the one with room
	for want, connect := range map[string][]byte{"connack=03,close": connect311("dev-1"), "connack=89,close": connect5("dev-1")} {
		c := r.dial()
		if how, _ := outcome(r, c, nil, connect); how != want {
			t.Errorf("%s, want %s", how, want)
		}
		c.Close()
		r.ended(StageDial, ByMqttlb, BackendsFull)
	}
	r = full(false)
	r.connected("dev-1")
	c := r.dial()
	if how, _ := outcome(r, c, nil, connect5("dev-1")); how != "connack=89,close" {
		t.Errorf("one full and one down: %s", how)
	}
	c.Close()
	r.ended(StageDial, ByMqttlb, BackendsFull)
}

// The alert says what is wrong with the certificate, and must not be lost to a
// RST for the CONNECT that came along with it.
func TestAlertOfAFailedHandshakeReachesTheClient(t *testing.T) {
	stranger := newAuthority("Other CA").issue("mallory")
	for _, tt := range []struct {
		name    string
		version uint16
		cert    []tls.Certificate
		alert   string
		why     Why
	}{
		{"certificate of another CA", tls.VersionTLS13, []tls.Certificate{stranger}, "unknown certificate authority", BadCertificate},
		{"certificate of another CA, 1.2", tls.VersionTLS12, []tls.Certificate{stranger}, "unknown certificate authority", BadCertificate},
		{"none", tls.VersionTLS13, nil, "certificate required", NoCertificate},
		{"none, 1.2", tls.VersionTLS12, nil, "handshake failure", NoCertificate},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, []string{closedPort(t)}, terminate(func(c *tls.Config) {
				c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, testCA().pool
			}))
			raw := r.dial()
			cfg := clientTLS()
			cfg.MaxVersion = tt.version
			cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if tt.cert == nil {
					return &tls.Certificate{}, nil
				}
				return &tt.cert[0], nil
			}
			front := &corked{Conn: raw.Conn}
			c := tls.Client(front, cfg)
			front.through = tt.version < tls.VersionTLS13
			err := c.Handshake()
			if err == nil {
				// In 1.3 the client believes that all is well and goes on at once.
				_, _ = c.Write(append(connect311("dev-1"), make([]byte, 8<<10)...))
				front.flush()
				_, err = c.Read(make([]byte, 1))
			}
			if err == nil || !strings.Contains(err.Error(), tt.alert) {
				t.Errorf("the client reads %v, want the alert %q", err, tt.alert)
			}
			// Linux hands out what came before a RST; others throw it away.
			if _, err := raw.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("then %v, want FIN", err)
			}
			raw.Close()
			r.ended(StageHandshake, ByMqttlb, tt.why)
			if h := noted(r, &r.handshakes); len(h) != 1 || h[0].Failure != tt.why {
				t.Errorf("handshakes %+v", h)
			}
		})
	}
}

// A session that was begun without a certificate, before the listener asked for
// one, opens nothing.
func TestResumptionDoesNotStandInForACertificate(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		var key [32]byte
		lax, strict := serverTLS(), serverTLS()
		strict.ClientAuth, strict.ClientCAs = tls.RequireAndVerifyClientCert, testCA().pool
		for _, c := range []*tls.Config{lax, strict} {
			c.SetSessionTicketKeys([][32]byte{key})
		}
		cfg := clientTLS()
		cfg.MaxVersion, cfg.ClientSessionCache = version, tls.NewLRUClientSessionCache(1)
		before := newRig(t, []string{echo(t)}, func(o *Options, _ *PoolOptions) { o.Mode, o.TLS = Terminate, lax })
		c := before.dial().overTLS(cfg)
		c.send(connect311("dev-1"))
		c.expect(connack311)
		after := newRig(t, []string{echo(t)}, func(o *Options, _ *PoolOptions) { o.Mode, o.TLS = Terminate, strict })
		again := tls.Client(after.dial().Conn, cfg)
		_, _ = again.Write(connect311("dev-1"))
		if _, err := again.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: let in", tls.VersionName(version))
		}
		again.Close()
		after.ended(StageHandshake, ByMqttlb, NoCertificate)
	}
}

// corked is a connection that sends what comes after the first write in one.
type corked struct {
	net.Conn
	hello   bool
	through bool // it does not
	rest    []byte
}

func (c *corked) Write(b []byte) (int, error) {
	if !c.hello || c.through {
		c.hello = true
		return c.Conn.Write(b)
	}
	c.rest = append(c.rest, b...)
	return len(b), nil
}

func (c *corked) flush() { _, _ = c.Conn.Write(c.rest) }

func TestFailedHandshakesAreToldApart(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(c *peer)
		by   Side
		why  Why
	}{
		{"plain MQTT on a TLS port", func(c *peer) { c.send(connect311("dev-1")) }, ByMqttlb, NotTLS},
		{"HTTP on a TLS port", func(c *peer) { c.send([]byte("GET / HTTP/1.1\r\n\r\n")) }, ByMqttlb, NotTLS},
		{"client does not trust us", func(c *peer) { _ = tls.Client(c.Conn, &tls.Config{ServerName: serverName}).Handshake() }, ByClient, TLSFailed},
		{"TLS 1.0 only", func(c *peer) {
			_ = tls.Client(c.Conn, &tls.Config{ServerName: serverName, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}).Handshake()
		}, ByClient, TLSFailed},
		{"leaves half-way", func(c *peer) { c.send(recordHello()[:50]); c.Close() }, ByClient, Closed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, []string{closedPort(t)}, terminate(func(c *tls.Config) { c.MinVersion = tls.VersionTLS12 }))
			c := r.dial()
			tt.do(c)
			_, _ = c.rest()
			c.Close()
			r.ended(StageHandshake, tt.by, tt.why)
			if h := noted(r, &r.handshakes); len(h) != 1 || h[0].Failure != tt.why {
				t.Errorf("handshakes %+v", h)
			}
		})
	}
}

// A refused client may go on sending for a while: the answer must reach it all
// the same.
func TestRefusedClientThatKeepsSendingReadsItsAnswer(t *testing.T) {
	r := newRig(t, []string{closedPort(t)})
	c := r.dial()
	c.send(connect5("dev-1"))
	_ = c.Conn.(*net.TCPConn).SetWriteBuffer(4 << 10)
	for range 10 {
		_, _ = c.Write(make([]byte, 1<<10))
	}
	b, err := c.rest()
	if ack, _, perr := mqtt.ParseConnack(b, mqtt.V5); err != nil || perr != nil || ack.Reason() != mqtt.ServerUnavailable {
		t.Errorf("read % x, %v", b, err)
	}
	c.Close()
	r.end()
}
