package listen

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"time"
)

// firstWrite runs a client whose first bytes are kept and sent by the test.
type firstWrite struct {
	net.Conn
	got chan []byte
}

func (f *firstWrite) Write(b []byte) (int, error) {
	if f.got != nil {
		f.got <- slices.Clone(b)
		f.got = nil
		return len(b), nil
	}
	return f.Conn.Write(b)
}

func serverConfig(t *testing.T) (*tls.Config, *tls.Certificate) {
	cert := selfSigned(t, "a.example")
	return ServerTLS(&tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &cert, nil }}), &cert
}

// What came along with the PROXY header is the start of the handshake, however
// much of it that is.
func TestHandshakeTakesPendingBytesFirst(t *testing.T) {
	cfg, cert := serverConfig(t)
	for _, header := range []string{"", "PROXY TCP4 198.51.100.1 198.51.100.2 1 2\r\n"} {
		for _, along := range []int{0, 1, 5, 100, 1 << 20} {
			c, s := tcpPair(t)
			first := &firstWrite{Conn: c, got: make(chan []byte, 1)}
			hello := first.got
			client := tls.Client(first, &tls.Config{InsecureSkipVerify: true})
			done := make(chan error, 1)
			go func() {
				err := client.Handshake()
				if err == nil {
					_, err = client.Write([]byte("inside"))
				}
				done <- err
			}()
			h := <-hello
			cut := min(along, len(h))
			_, _ = c.Write(append([]byte(header), h[:cut]...))
			conn := NewConn(s)
			if header != "" {
				if err := conn.ReadHeader(&ProxyPolicy{From: mustPrefixes("127.0.0.0/8")}); err != nil {
					t.Fatal(err)
				}
			}
			_, _ = c.Write(h[cut:])
			if err := conn.Handshake(cfg); err != nil {
				t.Fatalf("%d bytes along: %v", cut, err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 6)
			if _, err := io.ReadFull(conn, b); err != nil || string(b) != "inside" {
				t.Errorf("%q, %v", b, err)
			}
			if conn.Shown != cert.Leaf || conn.TLS == nil || conn.Silent() || conn.Socket != s {
				t.Errorf("shown %v, TLS %v, silent %v", conn.Shown, conn.TLS, conn.Silent())
			}
			if conn.Pending() != nil {
				t.Error("bytes are pending behind a handshake")
			}
		}
	}
}

func TestHandshakeNotesTheCertificateShownOnResumptionToo(t *testing.T) {
	cfg, cert := serverConfig(t)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		client := &tls.Config{InsecureSkipVerify: true, ServerName: "a.example", MaxVersion: version, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
		for i := range 2 {
			c, s := tcpPair(t)
			done := make(chan error, 1)
			go func() {
				x := tls.Client(c, client)
				_, err := x.Write([]byte("a"))
				if err == nil { // the ticket of 1.3 comes with the first read
					_, err = x.Read(make([]byte, 1))
				}
				done <- err
			}()
			conn := NewConn(s)
			if err := conn.Handshake(cfg); err != nil {
				t.Fatal(err)
			}
			if conn.TLS.DidResume != (i == 1) || conn.Shown != cert.Leaf {
				t.Errorf("%s, connection %d: resumed %v, shown %v", tls.VersionName(version), i, conn.TLS.DidResume, conn.Shown)
			}
			_, _ = conn.Conn.Write([]byte("b"))
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
}

func TestHandshakeKeepsToTheDeadlineThatIsSet(t *testing.T) {
	cfg, _ := serverConfig(t)
	_, s := tcpPair(t)
	conn := NewConn(s)
	_ = conn.SetDeadline(time.Now().Add(10 * time.Millisecond))
	if err := conn.Handshake(cfg); !errors.Is(err, os.ErrDeadlineExceeded) || !conn.Silent() {
		t.Errorf("%v, silent %v", err, conn.Silent())
	}
}

func TestHandshakeWithSomethingElse(t *testing.T) {
	cfg, _ := serverConfig(t)
	for _, pending := range []bool{true, false} {
		c, s := tcpPair(t)
		conn := NewConn(s)
		_, _ = c.Write([]byte("PROXY UNKNOWN\r\n")[:map[bool]int{true: 15}[pending]])
		_, _ = c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		if pending {
			if err := conn.ReadHeader(&ProxyPolicy{From: mustPrefixes("127.0.0.0/8")}); err != nil {
				t.Fatal(err)
			}
		}
		err := conn.Handshake(cfg)
		if _, ok := errors.AsType[tls.RecordHeaderError](err); !ok || conn.Silent() {
			t.Errorf("%v, silent %v", err, conn.Silent())
		}
	}
}

// The choice that a configuration makes is kept, and so is crypto/tls's own.
func TestServerTLSKeepsTheChoice(t *testing.T) {
	cert := selfSigned(t, "a.example")
	plain := &tls.Config{Certificates: []tls.Certificate{cert}}
	if ServerTLS(plain) != plain {
		t.Error("a configuration without GetCertificate was changed")
	}
	refuse := errors.New("no certificate fits")
	cfg := ServerTLS(&tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, refuse }})
	c, s := tcpPair(t)
	go func() { _ = tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake() }()
	if err := NewConn(s).Handshake(cfg); !errors.Is(err, refuse) {
		t.Errorf("%v", err)
	}
}

func TestHandshakeNamesTheLackOfACertificate(t *testing.T) {
	own := selfSigned(t, "a.example")
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, asked := range []tls.ClientAuthType{tls.RequireAnyClientCert, tls.RequireAndVerifyClientCert} {
			cfg, _ := serverConfig(t)
			cfg.ClientAuth = asked
			c, s := tcpPair(t)
			go func() {
				x := tls.Client(c, &tls.Config{InsecureSkipVerify: true, MaxVersion: version})
				_, _ = x.Read(make([]byte, 1))
			}()
			if err := NewConn(s).Handshake(cfg); err != ErrNoCertificate {
				t.Errorf("%s, %s: %v", tls.VersionName(version), asked, err)
			}
		}
		cfg, _ := serverConfig(t)
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
		c, s := tcpPair(t)
		go func() {
			x := tls.Client(c, &tls.Config{InsecureSkipVerify: true, MaxVersion: version, Certificates: []tls.Certificate{own}})
			_, _ = x.Read(make([]byte, 1))
		}()
		if err := NewConn(s).Handshake(cfg); err == nil || errors.Is(err, ErrNoCertificate) {
			t.Errorf("%s, one that nobody has signed: %v", tls.VersionName(version), err)
		}
	}
}
