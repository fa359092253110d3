package health

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// serve runs handle on each connection to a port of its own, until the test ends. It
// closes the connection after handle.
func serve(t *testing.T, handle func(c *net.TCPConn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				handle(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// freePort gives an address where nobody listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// probe runs one check under the given timeout, as a Monitor does.
func probe(t *testing.T, p Prober, addr string, timeout time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), timeout, noAnswer{timeout})
	defer cancel()
	return p.Probe(ctx, addr)
}

// wantReason wants err to be of one of the reasons; "" is a pass.
func wantReason(t *testing.T, err error, reasons ...Reason) {
	t.Helper()
	for _, r := range reasons {
		if ReasonOf(err) == r {
			return
		}
	}
	t.Fatalf("got %q (%v), want one of %q", ReasonOf(err), err, reasons)
}

// readConnect reads a CONNECT, and fails the test at anything else.
func readConnect(t *testing.T, c io.Reader) (mqtt.Connect, bool) {
	var b []byte
	for {
		one := make([]byte, 1)
		if _, err := c.Read(one); err != nil {
			return mqtt.Connect{}, false
		}
		b = append(b, one...)
		connect, n, err := mqtt.ParseConnect(b, 0)
		switch {
		case err == nil && n == len(b):
			return connect, true
		case !errors.Is(err, mqtt.ErrShort):
			t.Errorf("the check sent %x: %v", b, err)
			return mqtt.Connect{}, false
		}
	}
}

// readEnd reads what still comes and how it ends: nil for a FIN, after close_notify in
// the case of TLS.
func readEnd(c io.Reader) (rest []byte, err error) { return io.ReadAll(c) }

// authority makes certificates for the tests.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{pool: x509.NewCertPool()}
	tmpl := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "test authority"},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	a.key, a.cert = sign(t, tmpl, nil, nil)
	a.pool.AddCert(a.cert)
	return a
}

// issue makes a certificate for names and 127.0.0.1.
func (a *authority) issue(t *testing.T, names ...string) tls.Certificate {
	t.Helper()
	key, cert := sign(t, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "test"},
		NotAfter:    time.Now().Add(time.Hour),
		DNSNames:    names,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, a.cert, a.key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

func sign(t *testing.T, tmpl, parent *x509.Certificate, by *ecdsa.PrivateKey) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if parent == nil {
		parent, by = tmpl, key
	}
	tmpl.SerialNumber = big.NewInt(1)
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return key, cert
}
