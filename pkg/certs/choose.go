package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"
)

// ErrNoCertificate is a client that can use no certificate of its listener.
var ErrNoCertificate = errors.New("no certificate fits the client")

// Chooser gives a [tls.Config.GetCertificate] that serves each client the first
// certificate which bears the server name it asks for and has a key of a type
// it can use. When there is none, the first with a usable key: devices that ask
// for a name nobody knows, for none, or for the name on the certificate of the
// other key type, still connect. The order of certs is the preference among
// those that fit; devices that pin an RSA certificate want it first.
//
// When no key fits, the error is an [ErrNoCertificate] whose text sets the
// types of the keys against what the client offers. crypto/tls returns it from
// the handshake, and sends the client the alert internal_error: it has no other
// one for errors of GetCertificate.
func Chooser(certs []tls.Certificate) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	certs = slices.Clone(certs)
	for i := range certs {
		if c := &certs[i]; c.Leaf == nil && len(c.Certificate) > 0 {
			c.Leaf, _ = x509.ParseCertificate(c.Certificate[0]) // one that can't be parsed bears no name
		}
	}
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		offer := *hello
		offer.ServerName = "" // leaves SupportsCertificate to judge the key alone
		var spare *tls.Certificate
		for i := range certs {
			c := &certs[i]
			if offer.SupportsCertificate(c) != nil {
				continue
			}
			if hello.ServerName == "" || bears(c.Leaf, hello.ServerName) {
				return c, nil
			}
			if spare == nil {
				spare = c
			}
		}
		if spare == nil {
			return nil, misfit(&offer, certs)
		}
		return spare, nil
	}
}

// bears says whether a certificate is for a name. A certificate without any
// alternative name goes by its Common Name: crypto/x509 no longer looks at it,
// but many devices do.
func bears(c *x509.Certificate, name string) bool {
	if c == nil {
		return false
	}
	return c.VerifyHostname(name) == nil || !hasNames(c) && strings.EqualFold(c.Subject.CommonName, name)
}

// misfit explains why none of certs serves offer.
func misfit(offer *tls.ClientHelloInfo, certs []tls.Certificate) error {
	if len(certs) == 0 {
		return fmt.Errorf("%w: the listener has none; add one to tls.certificates", ErrNoCertificate)
	}
	var have []string
	for i := range certs {
		if kind := certKind(&certs[i]); !slices.Contains(have, kind) {
			have = append(have, kind)
		}
	}
	var takes []string
	for _, public := range keyTypes {
		if offer.SupportsCertificate(&tls.Certificate{PrivateKey: keyOf{public}}) == nil {
			kind, _ := tlsKind(public)
			takes = append(takes, kind)
		}
	}
	reason := offer.SupportsCertificate(&certs[0])
	if len(takes) == 0 {
		return fmt.Errorf("%w: no certificate with a key of any type would (%w); the client offers %s", ErrNoCertificate, reason, describe(offer))
	}
	return fmt.Errorf("%w: it takes keys of type %s, the certificates here have %s (%w); add a certificate with a key that it takes; the client offers %s",
		ErrNoCertificate, strings.Join(takes, ", "), strings.Join(have, ", "), reason, describe(offer))
}

func certKind(c *tls.Certificate) string {
	if key, ok := c.PrivateKey.(crypto.Signer); ok {
		kind, _ := tlsKind(key.Public())
		return kind
	}
	return fmt.Sprintf("%T", c.PrivateKey)
}

// keyTypes stand for all types of keys that a certificate may have in TLS.
var keyTypes = []crypto.PublicKey{
	&rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 2047), E: 65537},
	&ecdsa.PublicKey{Curve: elliptic.P256()},
	&ecdsa.PublicKey{Curve: elliptic.P384()},
	&ecdsa.PublicKey{Curve: elliptic.P521()},
	ed25519.PublicKey{},
}

// keyOf is a private key as far as SupportsCertificate looks at it.
type keyOf struct{ public crypto.PublicKey }

func (k keyOf) Public() crypto.PublicKey { return k.public }
func (k keyOf) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) {
	return nil, errors.ErrUnsupported
}

// describe lists what a client offers, for people; a hostile hello can't make
// it long.
func describe(offer *tls.ClientHelloInfo) string {
	return fmt.Sprintf("versions [%s], cipher suites [%s], signature algorithms [%s]",
		list(offer.SupportedVersions, tls.VersionName),
		list(offer.CipherSuites, tls.CipherSuiteName),
		list(offer.SignatureSchemes, tls.SignatureScheme.String))
}

func list[T ~uint16](values []T, name func(T) string) string {
	const most = 8
	var names []string
	for _, v := range values {
		if v&0x0F0F == 0x0A0A && v>>8 == v&0xFF { // GREASE, RFC 8701: means nothing
			continue
		}
		if len(names) == most {
			names = append(names, "…")
			break
		}
		names = append(names, name(v))
	}
	return strings.Join(names, " ")
}
