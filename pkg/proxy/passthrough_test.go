package proxy

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mqttlb/mqttlb/pkg/affinity"
	"github.com/mqttlb/mqttlb/pkg/listen"
)

func passthrough(o *Options, po *PoolOptions) {
	o.Mode = Passthrough
	po.HashKeys = []HashKey{HashSourceIP}
}

// recordedConn keeps what was read of it.
type recordedConn struct {
	net.Conn
	read bytes.Buffer
}

func (c *recordedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Write(p[:n])
	return n, err
}

// tlsEcho is a backend that ends TLS, gives what stood on the wire up to the
// end of the handshake, and echoes. Its certificate is for every name.
func tlsEcho(tb testing.TB, name string) (address string, wire chan []byte) {
	wire = make(chan []byte, 16)
	cert := testCA().issue(name)
	return serve(tb, func(p *peer) {
		raw := &recordedConn{Conn: p.Conn}
		c := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"mqtt", "x-mqtt"}})
		if err := c.Handshake(); err != nil {
			return
		}
		wire <- slices.Clone(raw.read.Bytes())
		_, _ = io.Copy(c, struct{ io.Reader }{c})
		_ = c.CloseWrite()
	}), wire
}

// cutter is a connection whose first write, the ClientHello, goes out in other
// records and other pieces.
type cutter struct {
	net.Conn
	records func(message []byte) [][]byte // fragments of the handshake message
	pieces  func(wire []byte) [][]byte    // writes
	sent    []byte
	done    bool
}

func (c *cutter) Write(p []byte) (int, error) {
	if c.done {
		c.sent = append(c.sent, p...)
		return c.Conn.Write(p)
	}
	c.done = true
	wire := p
	if c.records != nil {
		wire = nil
		for _, f := range c.records(handshakeMessage(p)) {
			wire = append(wire, 0x16, 3, 1)
			wire = binary.BigEndian.AppendUint16(wire, uint16(len(f)))
			wire = append(wire, f...)
		}
	}
	c.sent = append(c.sent, wire...)
	pieces := [][]byte{wire}
	if c.pieces != nil {
		pieces = c.pieces(wire)
	}
	for _, b := range pieces {
		if _, err := c.Conn.Write(b); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func handshakeMessage(wire []byte) (m []byte) {
	for len(wire) > 0 {
		n := 5 + int(binary.BigEndian.Uint16(wire[3:]))
		m = append(m, wire[5:n]...)
		wire = wire[n:]
	}
	return m
}

func inTwo(at int) func([]byte) [][]byte {
	return func(b []byte) [][]byte { return [][]byte{b[:at], b[at:]} }
}

func inChunks(n int) func([]byte) [][]byte {
	return func(b []byte) [][]byte { return slices.Collect(slices.Chunk(b, n)) }
}

func TestClientHelloInPiecesReachesItsBackendUntouched_C007(t *testing.T) {
	type way struct {
		name            string
		records, pieces func([]byte) [][]byte
	}
	ways := []way{
		{"one byte a write", nil, inChunks(1)},
		{"records of one byte", inChunks(1), nil},
		{"records of one byte, seven bytes a write", inChunks(1), inChunks(7)},
		{"segments of a LAN", nil, inChunks(1448)},
	}
	for at := 1; at < 200; at += 1 + at/8 {
		ways = append(ways, way{fmt.Sprintf("two records at %d", at), inTwo(at), nil},
			way{fmt.Sprintf("two writes at %d", at), nil, inTwo(at)})
	}
	var protocols []string
	for i := range 60 {
		protocols = append(protocols, fmt.Sprintf("%0100d", i))
	}
	big := append(protocols, "mqtt") // a hello of more than 6 KB
	address, wire := tlsEcho(t, serverName)
	r := build(t, []string{address}, passthrough)
	defer r.close()
	for _, size := range []struct {
		name string
		alpn []string
	}{{"usual", []string{"mqtt"}}, {"6 KB", big}} {
		for _, w := range ways {
			t.Run(size.name+"/"+w.name, func(t *testing.T) {
				raw := r.pipe("192.0.2.1:4000")
				front := &cutter{Conn: raw, records: w.records, pieces: w.pieces}
				c := tls.Client(front, &tls.Config{RootCAs: testCA().pool, ServerName: serverName, NextProtos: size.alpn})
				if err := c.Handshake(); err != nil {
					t.Fatal(err)
				}
				sent := slices.Clone(front.sent)
				p := &peer{t, c}
				p.send([]byte("hello"))
				p.expect([]byte("hello"))
				if got := <-wire; !bytes.HasPrefix(sent, got) && !bytes.HasPrefix(got, sent) {
					t.Errorf("the backend was sent other bytes than the client has: %d, %d", len(got), len(sent))
				}
				raw.Close()
				if e := r.end(); e.SNI != serverName {
					t.Errorf("SNI %q", e.SNI)
				}
			})
		}
	}
}

// C007 (c): neither time nor memory is without bound.
func TestClientHelloThatNeverCompletes_C007(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := build(t, []string{"nobody"}, passthrough, func(o *Options, _ *PoolOptions) { o.ConnectTimeout = 10 * time.Second })
		defer r.close()
		c := r.pipe("192.0.2.1:4000")
		hello := []byte{0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3}
		c.send(hello)
		for {
			time.Sleep(time.Second)
			if _, err := c.Write([]byte{0}); err != nil {
				break
			}
		}
		if e := r.ended(StageConnect, ByClient, Timeout); e.Duration != 10*time.Second {
			t.Errorf("ended after %v", e.Duration)
		}

		c = r.pipe("192.0.2.1:4000")
		big := []byte{0x16, 3, 1, 0x40, 0, 1, 1, 0, 0} // 64 KiB and more to come
		_, _ = c.Write(big)
		if e := r.ended(StageConnect, ByClient, TooLarge); !errors.Is(e.Err, listen.ErrTooLarge) {
			t.Errorf("ended with %v", e.Err)
		}
		c.Close()
	})
}

func TestPassthroughRoutesByNameAndProtocol(t *testing.T) {
	eu, euWire := tlsEcho(t, "eu.example")
	us, usWire := tlsEcho(t, "us.example")
	alpn, alpnWire := tlsEcho(t, "any.example")
	pools := map[string]*Pool{}
	r := newRig(t, []string{eu, us, alpn}, passthrough, func(o *Options, po *PoolOptions) {
		members := po.Table.Backends()
		for i, name := range []string{"eu", "us", "alpn"} {
			p := *po
			p.Table = must(affinity.Build(members[i:i+1], affinity.Options{}))
			pools[name] = NewPool(name, p)
		}
		o.Routes = []Route{
			{SNI: []string{"eu.example", "*.eu.example"}, Pool: pools["eu"]},
			{SNI: []string{"us.example"}, ALPN: []string{"mqtt"}, Pool: pools["us"]},
			{ALPN: []string{"x-mqtt"}, Pool: pools["alpn"]},
		}
	})
	for _, tt := range []struct {
		sni, alpn, pool string
		wire            chan []byte
	}{
		{"eu.example", "", "eu", euWire},
		{"EU.Example", "", "eu", euWire},
		{"a.eu.example", "", "eu", euWire},
		{"a.b.eu.example", "", "", nil},
		{"us.example", "mqtt", "us", usWire},
		{"us.example", "", "", nil},
		{"us.example", "x-mqtt", "alpn", alpnWire},
		{"elsewhere.example", "", "", nil},
		{"", "", "", nil},
	} {
		t.Run(tt.sni+" "+tt.alpn, func(t *testing.T) {
			cfg := &tls.Config{ServerName: tt.sni, InsecureSkipVerify: true}
			if tt.alpn != "" {
				cfg.NextProtos = []string{tt.alpn}
			}
			p := r.dial()
			c := tls.Client(p.Conn, cfg)
			err := c.Handshake()
			if tt.pool == "" {
				// The alert that names what is wrong, not a bare close.
				if err == nil || !strings.Contains(err.Error(), "unrecognized name") {
					t.Errorf("handshake: %v", err)
				}
				p.Close()
				r.ended(StageRoute, ByMqttlb, NoRoute)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			<-tt.wire
			p.Close()
			if e := r.end(); e.Pool != tt.pool || e.SNI != strings.ToLower(tt.sni) {
				t.Errorf("pool %s for %q, want %s", e.Pool, e.SNI, tt.pool)
			}
		})
	}
}

func TestStrayProtocolsOnAPassthroughPortAreClosedAtOnce(t *testing.T) {
	r := newRig(t, []string{closedPort(t)}, passthrough)
	for _, b := range [][]byte{connect311("dev-1"), []byte("GET / HTTP/1.1\r\n\r\n")} {
		c := r.dial()
		c.send(b)
		if got, _ := c.rest(); len(got) > 0 {
			t.Errorf("answered % x", got)
		}
		r.ended(StageConnect, ByMqttlb, NotTLS)
	}
}
