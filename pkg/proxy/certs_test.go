package proxy

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"
)

// The certificates hold from before the year in which synctest begins.
var (
	validFrom = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
	validTo   = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
)

type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pool *x509.CertPool
}

var testCA = sync.OnceValue(func() *authority { return newAuthority("Test CA") })

func newAuthority(name string) *authority {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: validFrom, NotAfter: validTo,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	cert := must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))))
	a := &authority{cert, key, x509.NewCertPool()}
	a.pool.AddCert(cert)
	return a
}

func (a *authority) issue(name string) tls.Certificate {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: validFrom, NotAfter: validTo,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der := must(x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: must(x509.ParseCertificate(der))}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

const serverName = "broker.example"

var serverCert = sync.OnceValue(func() tls.Certificate { return testCA().issue(serverName) })

// serverTLS is a listener's configuration, its certificate chosen by a function
// as package certs does.
func serverTLS() *tls.Config {
	c := serverCert()
	return &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &c, nil }}
}

func clientTLS() *tls.Config { return &tls.Config{RootCAs: testCA().pool, ServerName: serverName} }

// terminate makes a rig's listener end TLS; change may alter its configuration.
func terminate(change func(*tls.Config)) setup {
	return func(o *Options, _ *PoolOptions) {
		o.Mode, o.TLS = Terminate, serverTLS()
		if change != nil {
			change(o.TLS)
		}
	}
}

// fronts are the two ways in which a client's bytes are seen, for what must hold
// in both.
var fronts = []struct {
	name  string
	setup setup
	wrap  func(*peer) *peer
}{
	{"plain", func(*Options, *PoolOptions) {}, func(p *peer) *peer { return p }},
	{"tls", terminate(nil), func(p *peer) *peer { return p.overTLS(clientTLS()) }},
}

func onBothFronts(t *testing.T, f func(t *testing.T, front setup, wrap func(*peer) *peer)) {
	for _, x := range fronts {
		t.Run(x.name, func(t *testing.T) { f(t, x.setup, x.wrap) })
	}
}

// mute is a connection on which nothing is heard.
type mute struct{ net.Conn }

func (*mute) Read([]byte) (int, error) { return 0, io.EOF }

// recordHello is what a client of crypto/tls sends first.
func recordHello() []byte {
	var c hearing
	_ = tls.Client(&c, clientTLS()).Handshake()
	return c.sent.Bytes()
}

type hearing struct {
	mute
	sent bytes.Buffer
}

func (h *hearing) Write(b []byte) (int, error) { return h.sent.Write(b) }
