package rig

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// KeyType is the kind of key that a certificate is for.
type KeyType string

const (
	ECDSA KeyType = "ecdsa" // P-256; the default
	RSA   KeyType = "rsa"   // 2048 bits
)

// Request says what a certificate is to be. The zero value is an ECDSA
// certificate valid from an hour ago for 30 days, for nobody in particular.
type Request struct {
	Name      string   // Common Name
	Hosts     []string // DNS names and IP addresses that it is for, of servers
	Client    bool     // for a client rather than a server
	Key       KeyType
	NotBefore time.Time
	NotAfter  time.Time
	// Alter, if set, has the last word on the certificate before it is signed.
	Alter func(*x509.Certificate)
}

// Certificate is a certificate with its key and its issuers up to, and
// without, the root.
type Certificate struct {
	Leaf  *x509.Certificate
	Key   crypto.Signer
	chain [][]byte // DER, the leaf first
}

// CA is a throwaway certificate authority, a root or one below it.
type CA struct{ Certificate }

// NewCA makes a root.
func NewCA(name string) (*CA, error) {
	c, err := issue(Request{Name: name, Alter: isCA}, nil)
	if err != nil {
		return nil, err
	}
	c.chain = nil // a root travels apart from what it signs
	return &CA{*c}, nil
}

// Intermediate makes an authority below this one.
func (ca *CA) Intermediate(name string) (*CA, error) {
	c, err := issue(Request{Name: name, Alter: isCA}, ca)
	if err != nil {
		return nil, err
	}
	return &CA{*c}, nil
}

// Issue signs a certificate.
func (ca *CA) Issue(r Request) (*Certificate, error) { return issue(r, ca) }

// isCA makes an authority of a certificate.
func isCA(t *x509.Certificate) {
	t.IsCA, t.BasicConstraintsValid = true, true
	t.KeyUsage, t.ExtKeyUsage = x509.KeyUsageCertSign|x509.KeyUsageCRLSign, nil
}

// issue signs what r asks for, by its own key where there is no issuer.
func issue(r Request, issuer *CA) (*Certificate, error) {
	key, err := newKey(r.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate %q: %w", r.Name, err)
	}
	template := r.template()
	signer, parent := key, template
	if issuer != nil {
		signer, parent = issuer.Key, issuer.Leaf
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("certificate %q: %w", r.Name, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("certificate %q: %w", r.Name, err)
	}
	c := &Certificate{Leaf: leaf, Key: key, chain: [][]byte{der}}
	if issuer != nil {
		c.chain = append(c.chain, issuer.chain...)
	}
	return c, nil
}

func (r Request) template() *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)) // rand.Reader does not fail
	t := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: r.Name, Organization: []string{"mqttlb throwaway"}},
		NotBefore:    r.NotBefore,
		NotAfter:     r.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if t.NotBefore.IsZero() {
		t.NotBefore = time.Now().Add(-time.Hour)
	}
	if t.NotAfter.IsZero() {
		t.NotAfter = time.Now().AddDate(0, 0, 30)
	}
	if r.Client {
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	for _, h := range r.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	if r.Alter != nil {
		r.Alter(t)
	}
	return t
}

func newKey(t KeyType) (crypto.Signer, error) {
	switch t {
	case ECDSA, "":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case RSA:
		return rsa.GenerateKey(rand.Reader, 2048)
	default:
		return nil, fmt.Errorf("unknown key type %q", t)
	}
}

// TLS is the certificate as crypto/tls wants it.
func (c *Certificate) TLS() tls.Certificate {
	return tls.Certificate{Certificate: slices.Clone(c.chain), PrivateKey: c.Key, Leaf: c.Leaf}
}

// Write writes NAME.pem, the chain, and NAME-key.pem, readable by the owner
// only, and gives their paths.
func (c *Certificate) Write(dir, name string) (cert, key string, err error) {
	der, err := x509.MarshalPKCS8PrivateKey(c.Key)
	if err != nil {
		return "", "", err
	}
	cert, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+"-key.pem")
	if err := os.WriteFile(key, encode("PRIVATE KEY", der), 0o600); err != nil {
		return "", "", err
	}
	return cert, key, os.WriteFile(cert, encode("CERTIFICATE", c.chain...), 0o644)
}

// Pool holds this authority alone, for the side that verifies.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.Leaf)
	return pool
}

// WriteCert writes NAME.pem, the authority's certificate, and gives its path.
// Its key stays in memory.
func (ca *CA) WriteCert(dir, name string) (string, error) {
	path := filepath.Join(dir, name+".pem")
	return path, os.WriteFile(path, encode("CERTIFICATE", ca.Leaf.Raw), 0o644)
}

func encode(block string, ders ...[]byte) []byte {
	var b []byte
	for _, der := range ders {
		b = append(b, pem.EncodeToMemory(&pem.Block{Type: block, Bytes: der})...)
	}
	return b
}
