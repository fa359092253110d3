package health

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/pkg/backend"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// C017: TCP answers, MQTT does not. A Monitor finds it out and says why.
func TestTCPAnswersMQTTDoesNot(t *testing.T) {
	// answer reads CONNECT and writes b in its place.
	answer := func(b ...byte) func(*testing.T, *net.TCPConn) {
		return func(t *testing.T, c *net.TCPConn) {
			if _, ok := readConnect(t, c); ok {
				_, _ = c.Write(b)
				_, _ = readEnd(c)
			}
		}
	}
	for _, tc := range []struct {
		name    string
		version mqtt.Version
		handle  func(t *testing.T, c *net.TCPConn)
		reasons []Reason // none: up
		words   string
	}{
		{"(a) accepts and stays silent", 0, func(_ *testing.T, c *net.TCPConn) { _, _ = readEnd(c) },
			[]Reason{Timeout}, "wait for CONNACK: no answer within 1s"},
		{"(b) accepts and closes", 0, func(*testing.T, *net.TCPConn) {}, []Reason{Closed, Reset}, ""},
		{"(b) reads CONNECT and closes", 0, func(t *testing.T, c *net.TCPConn) { readConnect(t, c) },
			[]Reason{Closed}, "wait for CONNACK: the backend closed the connection"},
		{"(c) CONNACK 0x03", 0, answer(0x20, 2, 0, 3), []Reason{ServerUnavailable}, "CONNACK 0x03"},
		{"(c) CONNACK 0x88", mqtt.V5, answer(0x20, 3, 0, 0x88, 0), []Reason{ServerUnavailable}, "CONNACK 0x88"},
		{"(c) CONNACK 0x89 with a reason string", mqtt.V5, answer(0x20, 8, 0, 0x89, 5, 0x1F, 0, 2, 'h', 'o'),
			[]Reason{ConnackRefused}, `"ho"`},
		{"(d) answers when the check is gone", 0, func(_ *testing.T, c *net.TCPConn) {
			_, _ = readEnd(c)
			_, _ = c.Write([]byte{0x20, 2, 0, 0})
		}, []Reason{Timeout}, "no answer"},
		{"(d) half a CONNACK", 0, answer(0x20, 2), []Reason{Timeout}, "wait for CONNACK"},
		{"(e) PINGRESP before CONNACK", 0, answer(0xD0, 0, 0x20, 2, 0, 0), []Reason{Protocol}, "PINGRESP"},
		{"speaks HTTP", 0, answer([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")...), []Reason{Protocol}, ""},
		{"CONNACK of 1 MiB", mqtt.V5, answer(0x20, 0x80, 0x80, 0x40, 0, 0), []Reason{Protocol}, ""},
		{"CONNACK with a code that does not exist", 0, answer(0x20, 2, 0, 0x42), []Reason{Protocol, ConnackRefused}, ""},

		{"answers as it should", 0, answer(0x20, 2, 0, 0), nil, ""},
		{"answers in 5.0", mqtt.V5, answer(0x20, 3, 0, 0, 0), nil, ""},
		{"answers byte by byte", 0, func(t *testing.T, c *net.TCPConn) {
			readConnect(t, c)
			for _, b := range []byte{0x20, 2, 0, 0} {
				_, _ = c.Write([]byte{b})
			}
			_, _ = readEnd(c)
		}, nil, ""},
		{"(f) policy: CONNACK 0x05 is alive", 0, answer(0x20, 2, 0, 5), nil, ""},
		{"(f) policy: CONNACK 0x04 is alive", 0, answer(0x20, 2, 0, 4), nil, ""},
		{"(f) policy: CONNACK 0x02 is alive", 0, answer(0x20, 2, 0, 2), nil, ""},
		{"(f) policy: CONNACK 0x86 is alive", mqtt.V5, answer(0x20, 3, 0, 0x86, 0), nil, ""},
		{"(f) policy: CONNACK 0x87 is alive", mqtt.V5, answer(0x20, 3, 0, 0x87, 0), nil, ""},
		{"(f) policy: 5.0 refused in the form of 3.x is alive", mqtt.V5, answer(0x20, 2, 0, 1), nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			addr := serve(t, func(c *net.TCPConn) { tc.handle(t, c) })
			b := backend.New(backend.Spec{Pool: "p", Name: "b1", Address: addr})
			timeout := 5 * time.Second
			if slices.Contains(tc.reasons, Timeout) {
				timeout = time.Second
			}
			var log bytes.Buffer
			m := NewMonitor(MQTT{Version: tc.version}, Options{
				Interval: time.Hour, Timeout: timeout, Log: slog.New(slog.NewTextHandler(&log, nil)),
			})
			m.SetBackends([]*backend.Backend{b})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- m.Run(ctx) }()
			if err := m.First(t.Context()); err != nil {
				t.Fatal(err)
			}
			cancel()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			v, _ := b.Verdict()
			if tc.reasons == nil {
				if !v.Up {
					t.Fatalf("down: %s", v.Reason)
				}
				return
			}
			reason, words, _ := strings.Cut(v.Reason, ": ")
			if v.Up || !slices.Contains(tc.reasons, Reason(reason)) || !strings.Contains(words, tc.words) {
				t.Fatalf("up %v, reason %q; want down for one of %q, with %q", v.Up, v.Reason, tc.reasons, tc.words)
			}
			if !strings.Contains(log.String(), "reason="+reason) {
				t.Fatalf("no reason in the log:\n%s", log.String())
			}
		})
	}
}

// A check takes over no session, leaves none, and its end is no error in the broker's
// log: DISCONNECT, then FIN, also when the broker still has things to say.
func TestMQTTProbeLeavesNothingBehind(t *testing.T) {
	for _, version := range []mqtt.Version{mqtt.V31, mqtt.V311, mqtt.V5} {
		for _, chatty := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, chatty %v", version, chatty), func(t *testing.T) {
				seen := make(chan mqtt.Connect, 2)
				addr := serve(t, func(c *net.TCPConn) {
					connect, ok := readConnect(t, c)
					if !ok {
						t.Error("no CONNECT")
						return
					}
					connect.ClientID = bytes.Clone(connect.ClientID)
					seen <- connect
					out := mqtt.AppendConnack(nil, version, mqtt.Success)
					if chatty {
						out = append(out, bytes.Repeat([]byte{0x30, 3, 0, 1, 'a'}, 2000)...)
					}
					_, _ = c.Write(out)
					rest, err := readEnd(c)
					if want := mqtt.AppendDisconnect(nil, version, mqtt.Success); !bytes.Equal(rest, want) || err != nil {
						t.Errorf("after CONNECT came %x, then %v; want %x, then FIN", rest, err, want)
					}
				})
				p := MQTT{Version: version, Username: "u", Password: "p"}
				wantReason(t, probe(t, p, addr, 5*time.Second), "")
				wantReason(t, probe(t, p, addr, 5*time.Second), "")
				a, b := <-seen, <-seen
				if bytes.Equal(a.ClientID, b.ClientID) || len(a.ClientID) > 23 || !bytes.HasPrefix(a.ClientID, []byte(ClientIDPrefix)) {
					t.Errorf("Client Identifiers %q and %q", a.ClientID, b.ClientID)
				}
				if a.Version != version || !a.CleanStart || a.HasWill || a.SessionExpiry != 0 || a.KeepAlive == 0 {
					t.Errorf("CONNECT %+v", a)
				}
				if string(a.Username) != "u" || string(a.Password) != "p" {
					t.Errorf("user %q, password %q", a.Username, a.Password)
				}
			})
		}
	}
}

func TestProbesLeaveNoDescriptor(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("counts the entries of /proc/self/fd")
	}
	count := func() int {
		e, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(e)
	}
	connected, ended := make(chan struct{}), make(chan struct{})
	addr := serve(t, func(c *net.TCPConn) {
		if _, ok := readConnect(t, c); ok {
			connected <- struct{}{}
		}
		_, _ = readEnd(c)
		c.Close()
		ended <- struct{}{}
	})
	closed := freePort(t)
	before := count()
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-connected
			cancel()
		}()
		if err := (MQTT{}).Probe(ctx, addr); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
		<-ended
		wantReason(t, probe(t, TCP{}, addr, time.Minute), "")
		<-ended
		wantReason(t, probe(t, MQTT{}, closed, time.Minute), Refused)
	}
	if after := count(); after > before+2 {
		t.Fatalf("%d descriptors before, %d after", before, after)
	}
}

func TestMQTTProbeBreaksOffWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	addr := serve(t, func(c *net.TCPConn) {
		readConnect(t, c)
		cancel()
		_, _ = readEnd(c)
	})
	if err := (MQTT{}).Probe(ctx, addr); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}

func TestMQTTProbeOverTLS(t *testing.T) {
	ca := newAuthority(t)
	good := &tls.Config{Certificates: []tls.Certificate{ca.issue(t, "broker.test")}}
	const header = "PROXY UNKNOWN\r\n"
	for _, tc := range []struct {
		name    string
		server  *tls.Config // nil: speaks plain MQTT
		client  *tls.Config
		header  string
		reasons []Reason
		words   string
	}{
		{"host of the address", good, &tls.Config{RootCAs: ca.pool}, "", []Reason{""}, ""},
		{"named server", good, &tls.Config{RootCAs: ca.pool, ServerName: "broker.test"}, "", []Reason{""}, ""},
		{"PROXY header before the ClientHello", good, &tls.Config{RootCAs: ca.pool}, header, []Reason{""}, ""},
		{"TLS 1.2", good, &tls.Config{RootCAs: ca.pool, MaxVersion: tls.VersionTLS12}, "", []Reason{""}, ""},
		{"unknown authority", good, &tls.Config{RootCAs: newAuthority(t).pool}, "", []Reason{TLS}, "TLS handshake"},
		{"wrong name", good, &tls.Config{RootCAs: ca.pool, ServerName: "other.test"}, "", []Reason{TLS}, "other.test"},
		{"no common version", &tls.Config{Certificates: good.Certificates, MinVersion: tls.VersionTLS13},
			&tls.Config{RootCAs: ca.pool, MaxVersion: tls.VersionTLS12}, "", []Reason{TLS}, "TLS handshake"},
		{"client certificate missing", &tls.Config{
			Certificates: good.Certificates, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.pool,
		}, &tls.Config{RootCAs: ca.pool}, "", []Reason{TLS}, "certificate required"},
		{"backend speaks plain MQTT", nil, &tls.Config{RootCAs: ca.pool}, "", []Reason{TLS}, "TLS handshake"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			addr := serve(t, func(raw *net.TCPConn) {
				if tc.header != "" {
					b := make([]byte, len(tc.header))
					if _, err := io.ReadFull(raw, b); err != nil || string(b) != tc.header {
						t.Errorf("the header is %q, %v", b, err)
						return
					}
				}
				if tc.server == nil {
					_, _ = raw.Write([]byte{0x20, 2, 0, 0, 0, 0, 0, 0})
					_, _ = readEnd(raw)
					return
				}
				wire := &recorder{TCPConn: raw}
				c := tls.Server(wire, tc.server)
				if err := c.Handshake(); err != nil {
					// Read on, so that our alert is not lost to a reset.
					_, _ = readEnd(raw)
					return
				}
				if _, ok := readConnect(t, c); !ok {
					return
				}
				_, _ = c.Write([]byte{0x20, 2, 0, 0})
				rest, err := readEnd(c)
				if !bytes.Equal(rest, []byte{0xE0, 0}) || err != nil {
					t.Errorf("after CONNECT came %x, then %v; want DISCONNECT, then close_notify", rest, err)
				}
				// A reader takes FIN alone for an end, too, so look at the wire.
				if c.ConnectionState().Version == tls.VersionTLS12 && wire.lastRecord() != recordAlert {
					t.Errorf("the last record is of type %d; want close_notify", wire.lastRecord())
				}
				if rest, err := readEnd(raw); len(rest) > 0 || err != nil {
					t.Errorf("after close_notify came %x, then %v; want FIN", rest, err)
				}
			})
			p := MQTT{TLS: tc.client}
			if tc.header != "" {
				p.Header = func(net.Conn) ([]byte, error) { return []byte(tc.header), nil }
			}
			err := probe(t, p, addr, 5*time.Second)
			wantReason(t, err, tc.reasons...)
			if err != nil && !strings.Contains(err.Error(), tc.words) {
				t.Fatalf("%q does not say %q", err, tc.words)
			}
		})
	}
}

// recorder keeps what a TLS server reads.
type recorder struct {
	*net.TCPConn
	read []byte
}

func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.TCPConn.Read(b)
	r.read = append(r.read, b[:n]...)
	return n, err
}

const recordAlert = 21 // RFC 8446 §5.1; TLS 1.3 hides the type

// lastRecord is the type of the last TLS record.
func (r *recorder) lastRecord() (kind byte) {
	for b := r.read; len(b) >= 5; b = b[5+int(binary.BigEndian.Uint16(b[3:])):] {
		kind = b[0]
	}
	return kind
}

func TestHeaderKnowsBothEndsAndComesFirst(t *testing.T) {
	addr := serve(t, func(c *net.TCPConn) {
		want := fmt.Sprintf("%s>%s\n", c.RemoteAddr(), c.LocalAddr())
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
			t.Errorf("read %q, %v; want %q", got, err, want)
		}
		readConnect(t, c)
		_, _ = c.Write([]byte{0x20, 2, 0, 0})
		_, _ = readEnd(c)
	})
	p := MQTT{Header: func(c net.Conn) ([]byte, error) {
		return fmt.Appendf(nil, "%s>%s\n", c.LocalAddr(), c.RemoteAddr()), nil
	}}
	wantReason(t, probe(t, p, addr, 5*time.Second), "")
}

func TestHeaderThatCannotBeMadeIsTroubleOfOurOwn(t *testing.T) {
	addr := serve(t, func(c *net.TCPConn) { _, _ = readEnd(c) })
	p := MQTT{Header: func(net.Conn) ([]byte, error) { return nil, errors.New("over 4096 bytes") }}
	wantReason(t, probe(t, p, addr, 5*time.Second), Local)
}
