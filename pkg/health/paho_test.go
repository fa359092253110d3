package health

import (
	"crypto/tls"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"
)

// mailbox is a broker of one client: it hands each message back to its sender. The
// fields make it misbehave.
type mailbox struct {
	connack byte
	suback  []byte // codes; nil: what was asked for
	instead []byte // what is written in place of a PUBLISH that came in
	first   []byte // what is written before CONNACK
	hangUp  bool   // closes when PUBLISH comes in

	types []byte // of the packets that came, CONNECT apart
	end   error  // how the stream ended; nil for a FIN
}

func (m *mailbox) serve(c io.ReadWriter) {
	for {
		p, err := packets.ReadPacket(c)
		if err != nil {
			if err != io.EOF {
				m.end = err
			}
			return
		}
		switch p := p.(type) {
		case *packets.ConnectPacket:
			_, _ = c.Write(m.first)
			_, _ = c.Write([]byte{0x20, 2, 0, m.connack})
			if m.connack != 0 {
				return
			}
			continue
		case *packets.SubscribePacket:
			ack := packets.NewControlPacket(packets.Suback).(*packets.SubackPacket)
			ack.MessageID, ack.ReturnCodes = p.MessageID, m.suback
			if m.suback == nil {
				ack.ReturnCodes = p.Qoss
			}
			_ = ack.Write(c)
		case *packets.PublishPacket:
			switch {
			case m.hangUp:
				return
			case m.instead != nil:
				_, _ = c.Write(m.instead)
			default:
				_ = p.Write(c)
			}
		case *packets.DisconnectPacket:
			m.types = append(m.types, packets.Disconnect)
			continue
		}
		m.types = append(m.types, typeOf(p))
	}
}

func typeOf(p packets.ControlPacket) byte {
	switch p.(type) {
	case *packets.SubscribePacket:
		return packets.Subscribe
	case *packets.PublishPacket:
		return packets.Publish
	default:
		return 0
	}
}

func TestPahoProbe(t *testing.T) {
	const topic = "check/mqttlb"
	foreign := append([]byte{0x30, byte(2 + len(topic) + 5), 0, byte(len(topic))}, topic+"other"...)
	for _, tc := range []struct {
		name    string
		box     mailbox
		timeout time.Duration
		reasons []Reason
		words   string
	}{
		{"the message comes back", mailbox{}, 0, []Reason{""}, ""},
		{"0x03", mailbox{connack: 3}, 0, []Reason{ServerUnavailable}, "0x03"},
		{"0x05 is a failure here", mailbox{connack: 5}, 0, []Reason{ConnackRefused}, "0x05"},
		{"subscription refused", mailbox{suback: []byte{0x80}}, 0, []Reason{SubscribeRefused}, topic},
		{"the message does not come back", mailbox{instead: []byte{}}, time.Second, []Reason{Timeout}, "wait for the message on " + topic},
		{"a message of another balancer comes", mailbox{instead: foreign}, time.Second, []Reason{Timeout}, ""},
		{"closes at the message", mailbox{hangUp: true}, 0, []Reason{Closed}, ""},
		{"SUBACK with codes for filters that were not asked for", mailbox{suback: []byte{0, 0, 0}}, 0, []Reason{Protocol}, "SUBACK"},
		{"packet that announces 256 MiB", mailbox{instead: []byte{0x30, 0xFF, 0xFF, 0xFF, 0x7F}}, 0, []Reason{Protocol}, "PUBLISH of 268435455 bytes"},
		{"bytes that are not MQTT", mailbox{instead: []byte{0x00, 0x00}}, 0, []Reason{Protocol}, ""},
		{"PINGRESP before CONNACK", mailbox{first: []byte{0xD0, 0}}, 0, []Reason{Protocol}, "PINGRESP"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			box, done := tc.box, make(chan struct{})
			addr := serve(t, func(c *net.TCPConn) {
				defer close(done)
				box.serve(c)
			})
			if tc.timeout == 0 {
				tc.timeout = 10 * time.Second
			}
			err := probe(t, Paho{Topic: topic}, addr, tc.timeout)
			wantReason(t, err, tc.reasons...)
			if err != nil && !strings.Contains(err.Error(), tc.words) {
				t.Fatalf("%q does not say %q", err, tc.words)
			}
			<-done // and goleak sees that the client has stopped
			if err == nil {
				want := []byte{packets.Subscribe, packets.Publish, packets.Disconnect}
				if !slices.Equal(box.types, want) || box.end != nil {
					t.Fatalf("packets %v, then %v; want %v, then FIN", box.types, box.end, want)
				}
			}
		})
	}
}

func TestPahoProbeOfASilentBroker(t *testing.T) {
	addr := serve(t, func(c *net.TCPConn) { _, _ = readEnd(c) })
	began := time.Now()
	wantReason(t, probe(t, Paho{Topic: "t"}, addr, 200*time.Millisecond), Timeout)
	if took := time.Since(began); took > 5*time.Second {
		t.Fatalf("took %v", took)
	}
}

func TestPahoProbeOverTLSBehindAHeader(t *testing.T) {
	ca := newAuthority(t)
	server := &tls.Config{Certificates: []tls.Certificate{ca.issue(t)}}
	var box mailbox
	done := make(chan struct{})
	addr := serve(t, func(raw *net.TCPConn) {
		defer close(done)
		b := make([]byte, 2)
		if _, err := io.ReadFull(raw, b); err != nil || string(b) != "H\n" {
			t.Errorf("header %q, %v", b, err)
			return
		}
		box.serve(tls.Server(raw, server))
	})
	p := Paho{
		Topic:  "t",
		TLS:    &tls.Config{RootCAs: ca.pool},
		Header: func(net.Conn) ([]byte, error) { return []byte("H\n"), nil },
	}
	wantReason(t, probe(t, p, addr, 10*time.Second), "")
	<-done
	if box.end != nil {
		t.Fatalf("the stream ended with %v; want close_notify", box.end)
	}
}

func TestPahoProbeRefused(t *testing.T) {
	wantReason(t, probe(t, Paho{Topic: "t"}, freePort(t), 5*time.Second), Refused)
}
