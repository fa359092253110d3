package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/backend"
	"github.com/mqttlb/mqttlb/pkg/listen"
	"github.com/mqttlb/mqttlb/pkg/pp"
)

// headers is a broker that gives the PROXY header of each connection.
func headers(tb testing.TB) (address string, got chan pp.Header) {
	got = make(chan pp.Header, 16)
	return serve(tb, func(p *peer) {
		got <- p.readHeader()
		p.readConnect()
		p.send(connack311)
		_, _ = p.rest()
	}), got
}

// C013 through a real listener: a header upstream gives the addresses that a
// socket of this machine cannot have.
func TestBackendsAreToldAddressesOfOneFamily_C013(t *testing.T) {
	for _, tt := range []struct{ name, in, v1, v2 string }{
		{"a: client IPv6, destination IPv4", "[2001:db8::a]:40001 198.51.100.5:1883",
			"PROXY TCP6 2001:db8::a ::ffff:198.51.100.5 40001 1883\r\n",
			"21210024 20010db800000000000000000000000a 00000000000000000000ffffc6336405 9c41 075b"},
		{"b: client IPv4, destination IPv6", "192.0.2.10:40001 [2001:db8::b]:1883",
			"PROXY TCP6 ::ffff:192.0.2.10 2001:db8::b 40001 1883\r\n",
			"21210024 00000000000000000000ffffc000020a 20010db800000000000000000000000b 9c41 075b"},
		{"c: both mapped", "[::ffff:192.0.2.10]:40001 [::ffff:198.51.100.5]:1883",
			"PROXY TCP4 192.0.2.10 198.51.100.5 40001 1883\r\n", "2111000c c000020a c6336405 9c41 075b"},
		{"d: both IPv6", "[2001:db8::a]:40001 [2001:db8::b]:1883",
			"PROXY TCP6 2001:db8::a 2001:db8::b 40001 1883\r\n",
			"21210024 20010db800000000000000000000000a 20010db800000000000000000000000b 9c41 075b"},
	} {
		for v, want := range map[HeaderVersion]string{HeaderV1: tt.v1, HeaderV2: "\r\n\r\n\x00\r\nQUIT\n" + unhex(tt.v2)} {
			t.Run(tt.name+", "+[]string{1: "v1", 2: "v2"}[v], func(t *testing.T) {
				got := make(chan []byte, 1)
				address := serve(t, func(p *peer) {
					b := make([]byte, len(want))
					_, _ = readFull(p, b)
					got <- b
					p.readConnect()
					p.send(connack311)
					_, _ = p.rest()
				})
				r := newRig(t, []string{address}, sendHeader(v, TLVs{}))
				client, dest, _ := strings.Cut(tt.in, " ")
				a, b := duplexPipe()
				r.server.accept(context.Background(), addressed{b, client, dest})
				c := newPeer(t, a)
				c.send(connect311("dev-1"))
				c.expect(connack311)
				if b := <-got; string(b) != want {
					t.Errorf("got  %q\nwant %q", b, want)
				}
				c.Close()
				r.end()
			})
		}
	}
}

// addressed is a socket with the addresses of a dual-stack listener: IPv4 as
// mapped IPv6.
type addressed struct {
	net.Conn
	remote, local string
}

func (a addressed) RemoteAddr() net.Addr { return must(net.ResolveTCPAddr("tcp", a.remote)) }
func (a addressed) LocalAddr() net.Addr  { return must(net.ResolveTCPAddr("tcp", a.local)) }

func unhex(s string) string {
	return string(must(hex.DecodeString(strings.ReplaceAll(s, " ", ""))))
}

func TestDualStackListenerTellsPlainAddresses_C013(t *testing.T) {
	address, got := headers(t)
	r := newRig(t, []string{address}, sendHeader(HeaderV1, TLVs{}))
	l, err := listen.Listen(t.Context(), "[::]:0")
	if err != nil {
		t.Skip("no IPv6 here")
	}
	var served sync.WaitGroup
	served.Go(func() { _ = r.server.Serve(t.Context(), l) })
	defer served.Wait()
	defer l.Close()
	for network, host := range map[string]string{"tcp4": "127.0.0.1", "tcp6": "::1"} {
		raw, err := net.Dial(network, net.JoinHostPort(host, portString(l.Addr())))
		if err != nil {
			t.Logf("%s: %v", network, err)
			continue
		}
		c := newPeer(t, raw)
		c.send(connect311("dev-1"))
		c.expect(connack311)
		h := <-got
		if h.Source.String() != raw.LocalAddr().String() || h.Destination.String() != raw.RemoteAddr().String() {
			t.Errorf("%s: told %s to %s, is %s to %s", network, h.Source, h.Destination, raw.LocalAddr(), raw.RemoteAddr())
		}
		c.Close()
		r.end()
	}
}

func portString(a net.Addr) string {
	_, port, _ := net.SplitHostPort(a.String())
	return port
}

// written notes each write to a backend.
type written struct {
	*net.TCPConn
	mu     sync.Mutex
	writes [][]byte
}

func (w *written) Write(b []byte) (int, error) {
	w.mu.Lock()
	w.writes = append(w.writes, slices.Clone(b))
	w.mu.Unlock()
	return w.TCPConn.Write(b)
}

// A receiver may look for the header in its first read only (PROXY protocol §2).
func TestHeaderAndConnectAreOneWrite(t *testing.T) {
	for _, v := range []HeaderVersion{NoHeader, HeaderV1, HeaderV2} {
		got := make(chan *written, 1)
		address := serve(t, func(p *peer) {
			if v != NoHeader {
				p.readHeader()
			}
			p.readConnect()
			p.send(connack311)
			_, _ = p.rest()
		})
		r := newRig(t, []string{address}, sendHeader(v, TLVs{UniqueID: true, CRC32C: true}), func(_ *Options, po *PoolOptions) {
			dial := po.Dial
			po.Dial = func(ctx context.Context, b *backend.Backend) (net.Conn, error) {
				c, err := dial(ctx, b)
				if err != nil {
					return nil, err
				}
				w := &written{TCPConn: c.(*net.TCPConn)}
				got <- w
				return w, nil
			}
		})
		c := r.dial()
		c.send(connect311("dev-1"))
		c.expect(connack311)
		w := <-got
		w.mu.Lock()
		if len(w.writes) != 1 || !bytes.HasSuffix(w.writes[0], connect311("dev-1")) {
			t.Errorf("version %d: %d writes: %q", v, len(w.writes), w.writes)
		}
		w.mu.Unlock()
		c.Close()
		r.end()
	}
}

// With TLS to the backend the header goes in the clear, before the ClientHello.
func TestHeaderStandsBeforeTheClientHelloOfAPool(t *testing.T) {
	got := make(chan pp.Header, 1)
	address := serve(t, func(p *peer) {
		got <- p.readHeader()
		p = p.overTLSServer()
		if !bytes.Equal(p.readConnect(), connect311("dev-1")) {
			t.Error("CONNECT did not follow")
		}
		p.send(connack311)
		p.expect([]byte{0xC0, 0})
		p.send([]byte{0xD0, 0})
		_, _ = p.rest()
	})
	r := newRig(t, []string{address}, sendHeader(HeaderV2, TLVs{CRC32C: true}), encrypt)
	c := r.dial()
	c.send(connect311("dev-1"))
	c.expect(connack311)
	c.send([]byte{0xC0, 0})
	c.expect([]byte{0xD0, 0})
	if h := <-got; h.Source.String() != c.LocalAddr().String() {
		t.Errorf("source %s", h.Source)
	}
	c.closeWrite()
	c.expectEOF()
	r.ended(StageRelay, ByClient, Closed)
}

// encrypt gives the pool TLS to its backends.
func encrypt(_ *Options, po *PoolOptions) {
	cfg := clientTLS()
	po.TLS = func(*backend.Backend) *tls.Config { return cfg }
}

// A backend whose TLS can't be trusted is as good as unreachable, and the client
// is none the wiser.
func TestBackendWithAnotherCertificateIsPassedOver(t *testing.T) {
	stranger := newAuthority("Other CA").issue(serverName)
	bad := serve(t, func(p *peer) {
		_ = tls.Server(p.Conn, &tls.Config{Certificates: []tls.Certificate{stranger}}).Handshake()
	})
	good := serve(t, func(p *peer) {
		p = p.overTLSServer()
		p.readConnect()
		p.send(connack311)
		_, _ = p.rest()
	})
	r := newRig(t, []string{bad, good}, encrypt)
	c := r.dial()
	c.send(connect311("dev-1"))
	c.expect(connack311)
	r.reported([]string{"b1"}, nil, []string{"b2"})
}

func TestTLVsOfATerminatedConnection(t *testing.T) {
	all := TLVs{SSL: true, ALPN: true, Authority: true, UniqueID: true, CRC32C: true}
	device := testCA().issue("device-7")
	for _, tt := range []struct {
		name    string
		auth    tls.ClientAuthType
		version uint16
		cert    bool
		resume  bool
		want    pp.SSL
	}{
		{"no certificate asked for", tls.NoClientCert, tls.VersionTLS13, false, false, pp.SSL{Verify: pp.NotVerified}},
		{"optional, none given", tls.VerifyClientCertIfGiven, tls.VersionTLS13, false, false, pp.SSL{Verify: pp.NotVerified}},
		{"optional, one given", tls.VerifyClientCertIfGiven, tls.VersionTLS12, true, false, pp.SSL{CertConn: true, CertSess: true, CN: "device-7"}},
		{"required", tls.RequireAndVerifyClientCert, tls.VersionTLS13, true, false, pp.SSL{CertConn: true, CertSess: true, CN: "device-7"}},
		{"required, resumed 1.3", tls.RequireAndVerifyClientCert, tls.VersionTLS13, true, true, pp.SSL{CertSess: true, CN: "device-7"}},
		{"required, resumed 1.2", tls.RequireAndVerifyClientCert, tls.VersionTLS12, true, true, pp.SSL{CertSess: true, CN: "device-7"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			address, got := headers(t)
			r := newRig(t, []string{address}, sendHeader(HeaderV2, all), terminate(func(c *tls.Config) {
				c.ClientAuth, c.ClientCAs, c.NextProtos = tt.auth, testCA().pool, []string{"mqtt"}
			}))
			cfg := clientTLS()
			cfg.MaxVersion, cfg.NextProtos, cfg.ClientSessionCache = tt.version, []string{"mqtt"}, tls.NewLRUClientSessionCache(1)
			if tt.cert {
				cfg.Certificates = []tls.Certificate{device}
			}
			var h pp.Header
			var e End
			for range 1 + map[bool]int{true: 1}[tt.resume] {
				c := r.dial().overTLS(cfg)
				c.send(connect311("dev-1"))
				c.expect(connack311)
				h = <-got
				c.closeWrite()
				c.expectEOF()
				e = r.end()
			}
			if e.Resumed != tt.resume || e.SNI != serverName || e.TLSVersion != tt.version || e.CertCN != tt.want.CN {
				t.Errorf("record %+v", e)
			}
			raw, _ := h.TLV(pp.SSLInfo)
			ssl, err := pp.ParseSSL(raw)
			if err != nil {
				t.Fatal(err)
			}
			want := tt.want
			want.Client = true
			want.Version = map[uint16]string{tls.VersionTLS12: "TLSv1.2", tls.VersionTLS13: "TLSv1.3"}[tt.version]
			want.SigAlg, want.KeyAlg = "ecdsa-with-SHA256", "EC256"
			if want.Cipher = ssl.Cipher; ssl.Cipher == "" {
				t.Error("no cipher")
			}
			if ssl != want {
				t.Errorf("SSL %+v\nwant %+v", ssl, want)
			}
			for typ, want := range map[pp.TLVType]string{pp.ALPN: "mqtt", pp.Authority: serverName, pp.UniqueID: connID(e.ID)} {
				if v, _ := h.TLV(typ); string(v) != want {
					t.Errorf("%s is %q, want %q", typ, v, want)
				}
			}
		})
	}
}

// The checksum is there, is right, and is the first thing a receiver would miss
// if a byte went astray: readHeader has verified it above.
func TestChecksumIsOverTheWholeHeader(t *testing.T) {
	for _, on := range []bool{true, false} {
		got := make(chan []byte, 1)
		connect := connect311("dev-1")
		address := serve(t, func(p *peer) {
			b := make([]byte, 16+12+map[bool]int{true: 7}[on])
			_, _ = io.ReadFull(p, b)
			got <- b
			p.readConnect()
			p.send(connack311)
			_, _ = p.rest()
		})
		r := newRig(t, []string{address}, sendHeader(HeaderV2, TLVs{CRC32C: on}))
		c := r.dial()
		c.send(connect)
		c.expect(connack311)
		b := <-got
		if _, n, err := pp.Parse(b, 0); err != nil || n != len(b) {
			t.Errorf("checksum %v: header of %d bytes: %v", on, n, err)
		}
		if on {
			b[17] ^= 1
			if _, _, err := pp.Parse(b, 0); err == nil {
				t.Error("another source address goes with the same checksum")
			}
		}
		c.Close()
		r.end()
	}
}
