package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// testCA makes certificates of nodes.
type testCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newTestCA(t *testing.T) *testCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &testCA{key: key, pool: x509.NewCertPool(), cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	der, err := x509.CreateCertificate(rand.Reader, ca.cert, ca.cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if ca.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	ca.pool.AddCert(ca.cert)
	return ca
}

// config is a node's, which trusts those whose certificates are of this CA.
func (ca *testCA) config(t *testing.T, node string) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: node},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, ca.cert, key.Public(), ca.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    ca.pool, RootCAs: ca.pool, MinVersion: tls.VersionTLS12,
	}
}

// Nodes know each other by their certificates; who has none, or one of somebody
// else's, is no node.
func TestNodesProveWhoTheyAre(t *testing.T) {
	ca := newTestCA(t)
	c := &testCluster{t: t, o: Options{Durability: EachSecond}, dir: t.TempDir(), addrs: freeAddresses(t, 4)}
	c.init()
	c.tls = func(i int) *tls.Config { return ca.config(t, nodeName(i)) }
	c.start(0, 1, 2)
	defer c.close()
	p := appendOne(t, c.node(0), message("t", 1))
	if _, err := c.node(2).Get(t.Context(), p); err != nil {
		t.Error(err)
	}
	for what, config := range map[string]*tls.Config{
		"no TLS":                      nil,
		"a certificate of another CA": newTestCA(t).config(t, nodeName(3)),
	} {
		o := c.options(3)
		o.Dir = filepath.Join(t.TempDir(), "x")
		o.Cluster.TLS = config
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		s, err := OpenJetStream(ctx, o)
		cancel()
		if err == nil {
			t.Errorf("with %s, there is another node", what)
			_ = s.Close()
		}
	}
	if v := c.node(0).Peers().View(); len(v.Nodes) != 3 {
		t.Errorf("%+v", v)
	}
	for what, change := range map[string]func(*tls.Config){
		"no certificate":              func(c *tls.Config) { c.Certificates = nil },
		"others are not verified":     func(c *tls.Config) { c.ClientAuth = tls.RequestClientCert },
		"whom it joins is not either": func(c *tls.Config) { c.InsecureSkipVerify = true },
	} {
		o := c.options(3)
		change(o.Cluster.TLS)
		if _, err := OpenJetStream(t.Context(), o); err == nil {
			t.Errorf("%s: it opens", what)
		}
	}
}
