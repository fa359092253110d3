package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
)

// C009: one port for devices that can use RSA certificates only and others
// that can use ECDSA ones only.
func TestChooserServesBothKeyTypes(t *testing.T) {
	ca := testCA()
	rsaPair := ca.issue("rsa.example", rsaKey(), nil)
	ecPair := ca.issue("ec.example", ecdsaKey(), nil)
	both := []tls.Certificate{rsaPair, ecPair}

	rsaOnly := []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}
	ecOnly := []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}
	for _, tt := range []struct {
		name   string
		certs  []tls.Certificate
		suites []uint16 // nil: TLS 1.3
		sni    string
		want   tls.Certificate
	}{
		{"RSA only, no SNI", both, rsaOnly, "", rsaPair},
		{"RSA only, SNI of the RSA pair", both, rsaOnly, "rsa.example", rsaPair},
		{"RSA only, SNI of the ECDSA pair", both, rsaOnly, "ec.example", rsaPair},
		{"RSA only, SNI of nobody", both, rsaOnly, "other.example", rsaPair},
		{"ECDSA only, no SNI", both, ecOnly, "", ecPair},
		{"ECDSA only, SNI of the RSA pair", both, ecOnly, "rsa.example", ecPair},
		{"ECDSA only, SNI of the ECDSA pair", both, ecOnly, "ec.example", ecPair},
		{"ECDSA only, SNI of nobody", both, ecOnly, "other.example", ecPair},
		{"TLS 1.3, SNI decides", both, nil, "ec.example", ecPair},
		{"TLS 1.3, no SNI, first of the list", both, nil, "", rsaPair},
		{"TLS 1.3, no SNI, list the other way", []tls.Certificate{ecPair, rsaPair}, nil, "", ecPair},
		{"SNI in capitals", both, nil, "EC.Example", ecPair},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := &tls.Config{ServerName: tt.sni, InsecureSkipVerify: true}
			if tt.suites != nil {
				client.CipherSuites, client.MaxVersion = tt.suites, tls.VersionTLS12
			}
			o := connect(t, serverConfig(t, ServerOptions{Certificates: tt.certs}), client)
			if o.clientErr != nil || o.serverErr != nil {
				t.Fatalf("client: %v; server: %v", o.clientErr, o.serverErr)
			}
			if got := o.client.PeerCertificates[0]; !got.Equal(tt.want.Leaf) {
				t.Fatalf("served %s, want %s", got.Subject, tt.want.Leaf.Subject)
			}
		})
	}
}

// C009: the log must say that it is the key type, which "no shared cipher" hides.
func TestHandshakeErrorNamesTheKeyType(t *testing.T) {
	server := serverConfig(t, ServerOptions{Certificates: []tls.Certificate{testCA().issue("ec.example", ecdsaKey(), nil)}})
	o := connect(t, server, &tls.Config{
		ServerName: "ec.example", InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12,
		CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256},
	})
	if o.clientErr == nil {
		t.Fatal("handshake succeeded")
	}
	if !errors.Is(o.serverErr, ErrNoCertificate) {
		t.Fatalf("server: %v, want ErrNoCertificate", o.serverErr)
	}
	for _, want := range []string{"it takes keys of type RSA, ", "here have ECDSA P-256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "add a certificate"} {
		if !strings.Contains(o.serverErr.Error(), want) {
			t.Errorf("%q\ndoes not name %q", o.serverErr, want)
		}
	}
}

func TestChooser(t *testing.T) {
	ca := testCA()
	named := func(names ...string) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.DNSNames = names }
	}
	a := ca.issue("a.example", ecdsaKey(), nil)
	b := ca.issue("b.example", ecdsaKey(), nil)
	wild := ca.issue("wild", ecdsaKey(), named("*.fleet.example"))
	old := ca.issue("old.example", ecdsaKey(), named()) // Common Name only
	rsaPair := ca.issue("r.example", rsaKey(), nil)
	edPair := ca.issue("ed.example", ed25519Key(), nil)
	unparsed := b
	unparsed.Leaf = nil

	tls13 := func(sni string, schemes ...tls.SignatureScheme) *tls.ClientHelloInfo {
		return &tls.ClientHelloInfo{ServerName: sni, SupportedVersions: []uint16{tls.VersionTLS13}, SignatureSchemes: schemes}
	}
	tls12 := func(curves []tls.CurveID, suites ...uint16) *tls.ClientHelloInfo {
		return &tls.ClientHelloInfo{
			SupportedVersions: []uint16{tls.VersionTLS12}, CipherSuites: suites, SupportedCurves: curves, SupportedPoints: []uint8{0},
			SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256, tls.PKCS1WithSHA256},
		}
	}
	const grease = 0x8A8A
	many := make([]uint16, 20000)
	for i := range many {
		many[i] = uint16(i) | 0x4000
	}

	for _, tt := range []struct {
		name  string
		certs []tls.Certificate
		hello *tls.ClientHelloInfo
		want  string   // Common Name of the choice; empty: an error
		error []string // what the error must name
	}{
		{"exact name", []tls.Certificate{a, b, wild}, tls13("b.example", tls.ECDSAWithP256AndSHA256), "b.example", nil},
		{"wildcard", []tls.Certificate{a, b, wild}, tls13("n1.fleet.example", tls.ECDSAWithP256AndSHA256), "wild", nil},
		{"wildcard is for one label", []tls.Certificate{a, wild}, tls13("x.n1.fleet.example", tls.ECDSAWithP256AndSHA256), "a.example", nil},
		{"Common Name of an old certificate", []tls.Certificate{a, old}, tls13("OLD.example", tls.ECDSAWithP256AndSHA256), "old.example", nil},
		{"Common Name beside other names is none", []tls.Certificate{a, wild}, tls13("wild", tls.ECDSAWithP256AndSHA256), "a.example", nil},
		{"leaf not parsed before", []tls.Certificate{a, unparsed}, tls13("b.example", tls.ECDSAWithP256AndSHA256), "b.example", nil},
		{"name that is no host name", []tls.Certificate{a}, tls13("\x00*", tls.ECDSAWithP256AndSHA256), "a.example", nil},
		{"Ed25519 for who takes it", []tls.Certificate{rsaPair, edPair}, tls13("", tls.Ed25519), "ed.example", nil},

		{"TLS 1.3, other signatures", []tls.Certificate{a, b}, tls13("a.example", tls.PSSWithSHA256), "",
			[]string{"takes keys of type RSA,", "here have ECDSA P-256 (", "TLS 1.3", "PSSWithSHA256"}},
		{"two key types, neither fits", []tls.Certificate{a, rsaPair}, tls13("", tls.Ed25519), "",
			[]string{"takes keys of type Ed25519,", "here have ECDSA P-256, RSA"}},
		{"curve of the key not offered", []tls.Certificate{a}, tls12([]tls.CurveID{tls.CurveP384}, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256), "",
			[]string{"takes keys of type ECDSA P-384,", "here have ECDSA P-256", "curve"}},
		{"no forward secrecy", []tls.Certificate{rsaPair}, tls12(nil, tls.TLS_RSA_WITH_AES_128_CBC_SHA), "",
			[]string{"no certificate with a key of any type", "TLS_RSA_WITH_AES_128_CBC_SHA"}},
		{"CCM suite of a small device", []tls.Certificate{a}, tls12([]tls.CurveID{tls.CurveP256}, 0xC0AE), "",
			[]string{"no certificate with a key of any type", "0xC0AE"}},
		{"no certificates", nil, tls13("", tls.Ed25519), "", []string{"has none"}},
		{"hostile hello stays short", []tls.Certificate{a}, tls12(nil, append([]uint16{grease}, many...)...), "", []string{"suites [0x4000 ", " …]"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Chooser(tt.certs)(tt.hello)
			if tt.want != "" {
				if err != nil {
					t.Fatal(err)
				}
				if name := got.Leaf.Subject.CommonName; name != tt.want {
					t.Fatalf("chose %s, want %s", name, tt.want)
				}
				return
			}
			if !errors.Is(err, ErrNoCertificate) || got != nil {
				t.Fatalf("chose %v, error %v", got, err)
			}
			for _, want := range tt.error {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q\ndoes not name %q", err, want)
				}
			}
			if len(err.Error()) > 1000 {
				t.Errorf("error of %d bytes", len(err.Error()))
			}
		})
	}
}

func TestChooserKeepsItsOwnList(t *testing.T) {
	list := []tls.Certificate{testCA().issue("a.example", ecdsaKey(), nil)}
	choose := Chooser(list)
	list[0] = tls.Certificate{}
	got, err := choose(&tls.ClientHelloInfo{SupportedVersions: []uint16{tls.VersionTLS13}, SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256}})
	if err != nil || got.Leaf.Subject.CommonName != "a.example" {
		t.Fatalf("chose %v, error %v", got, err)
	}
}
