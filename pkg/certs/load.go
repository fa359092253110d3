package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// Pair names the two PEM files of a certificate: its chain, leaf first, and its
// private key. Both may be one file.
type Pair struct{ CertFile, KeyFile string }

// Load reads all pairs; the result has their order, and each Leaf is parsed.
// The error joins the problems of all files and names file, reason and the way
// to mend each. An expired certificate is none: see [CheckServer].
func Load(pairs []Pair) ([]tls.Certificate, error) {
	loaded := make([]tls.Certificate, len(pairs))
	var problems []error
	for i, p := range pairs {
		c, err := p.load()
		if err != nil {
			problems = append(problems, err)
			continue
		}
		loaded[i] = c
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return loaded, nil
}

func (p Pair) load() (tls.Certificate, error) {
	chain, certErr := certificates("certificate", p.CertFile)
	key, keyErr := readKey(p.KeyFile)
	if err := errors.Join(certErr, keyErr); err != nil {
		return tls.Certificate{}, err
	}
	if err := p.match(chain, key); err != nil {
		return tls.Certificate{}, err
	}
	c := tls.Certificate{PrivateKey: key, Leaf: chain[0]}
	for _, x := range chain {
		c.Certificate = append(c.Certificate, x.Raw)
	}
	return c, nil
}

// match says whether key is the one of the chain's first certificate, and
// usable in TLS.
func (p Pair) match(chain []*x509.Certificate, key crypto.Signer) error {
	for i, c := range chain {
		if !samePublic(key, c) {
			continue
		}
		if i > 0 {
			return fileError("certificate", p.CertFile, "the key in %q belongs to certificate %d of the chain (%s); put that one first and its issuers behind it", p.KeyFile, i+1, c.Subject)
		}
		if kind, ok := tlsKind(c.PublicKey); !ok {
			return fileError("certificate", p.CertFile, "TLS knows no certificates with a key of type %s; issue it with an RSA, ECDSA P-256, P-384, P-521 or Ed25519 key", kind)
		}
		return nil
	}
	leafKind, _ := tlsKind(chain[0].PublicKey)
	keyKind, _ := tlsKind(key.Public())
	return fileError("key", p.KeyFile, "this %s key does not belong to the certificate in %q (%s, %s key); name the two files that were issued together", keyKind, p.CertFile, chain[0].Subject, leafKind)
}

func samePublic(key crypto.Signer, c *x509.Certificate) bool {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(c.PublicKey)
}

func readKey(file string) (crypto.Signer, error) {
	blocks, err := readPEM("key", file)
	if err != nil {
		return nil, err
	}
	for _, b := range blocks {
		if !isKey(b) {
			continue
		}
		key, err := parseKey(b.Block)
		if err != nil {
			return nil, fileError("key", file, "line %d: %w", b.line, err)
		}
		return key, nil
	}
	hint := `it needs a block "-----BEGIN PRIVATE KEY-----"`
	for _, b := range blocks {
		if b.Type == "CERTIFICATE" {
			hint = "have the certificate and the key file been swapped?"
		}
	}
	return nil, fileError("key", file, "holds %s and no private key; %s", types(blocks), hint)
}

// parseKey reads a private key by the form that its PEM type names.
func parseKey(b *pem.Block) (crypto.Signer, error) {
	// The header marks the older form: RFC 1421 §4.6.1.1.
	if b.Type == "ENCRYPTED PRIVATE KEY" || b.Headers["DEK-Info"] != "" {
		return nil, errors.New("the key is encrypted and nobody is there to type its passphrase; decrypt it: openssl pkey -in FILE -out FILE.plain, and protect it by file permissions")
	}
	var key any
	var err error
	switch b.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(b.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(b.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(b.Bytes)
	case "OPENSSH PRIVATE KEY":
		return nil, errors.New("this is an OpenSSH key; rewrite it as PEM: ssh-keygen -p -m PKCS8 -f FILE")
	default:
		return nil, fmt.Errorf("keys of type %q are not supported; issue the certificate with an RSA, ECDSA or Ed25519 key", b.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("the key can't be read: %w", err)
	}
	switch key := key.(type) {
	case *rsa.PrivateKey:
		return key, nil
	case *ecdsa.PrivateKey:
		return key, nil
	case ed25519.PrivateKey:
		return key, nil
	default: // X25519 for instance
		return nil, fmt.Errorf("a %T can't sign; issue the certificate with an RSA, ECDSA or Ed25519 key", key)
	}
}

// tlsKind names the type of a public key as far as TLS tells types apart, and
// says whether TLS can use it at all.
func tlsKind(public any) (kind string, usable bool) {
	switch key := public.(type) {
	case *rsa.PublicKey:
		return "RSA", true
	case *ecdsa.PublicKey:
		return "ECDSA " + key.Curve.Params().Name, key.Curve != elliptic.P224()
	case ed25519.PublicKey:
		return "Ed25519", true
	default:
		return fmt.Sprintf("%T", public), false
	}
}
