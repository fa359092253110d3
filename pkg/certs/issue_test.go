package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Keys take long to make, RSA above all: each type is made once a run.
var (
	rsaKey     = sync.OnceValue(func() crypto.Signer { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	rsaOther   = sync.OnceValue(func() crypto.Signer { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	rsaShort   = sync.OnceValue(func() crypto.Signer { return must(rsa.GenerateKey(rand.Reader, 1024)) })
	ecdsaKey   = sync.OnceValue(func() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) })
	p224Key    = sync.OnceValue(func() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P224(), rand.Reader)) })
	ed25519Key = sync.OnceValue(func() crypto.Signer {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return must(key, err)
	})
	// testCA signs whatever a test does not want signed by another.
	testCA = sync.OnceValue(func() *authority { return newAuthority("Test CA") })
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func newAuthority(name string) *authority {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(10 * 365 * 24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	return &authority{must(x509.ParseCertificate(der)), key}
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// issue gives a certificate for a year, for server and client, with name as
// Common Name and alternative name; change, when not nil, alters that.
func (a *authority) issue(name string, key crypto.Signer, change func(*x509.Certificate)) tls.Certificate {
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: name},
		DNSNames:     []string{name},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(365 * 24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if change != nil {
		change(template)
	}
	der := must(x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: must(x509.ParseCertificate(der))}
}

func certPEM(ders ...[]byte) []byte {
	var out []byte
	for _, der := range ders {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return out
}

func keyPEM(key crypto.Signer) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))})
}

// write puts data into a file of its own and gives the path.
func write(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
