package certs

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"time"
)

func TestCheckWarns(t *testing.T) {
	ca, stranger := testCA(), newAuthority("Stranger CA")
	const day = 24 * time.Hour
	lives := func(days int) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.NotAfter = c.NotBefore.Add(time.Duration(days) * day) }
	}
	uses := func(u ...x509.ExtKeyUsage) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.ExtKeyUsage = u }
	}
	leaf := func(change func(*x509.Certificate)) tls.Certificate {
		return ca.issue("dev.example", ecdsaKey(), change)
	}
	followedBy := func(a *authority) tls.Certificate {
		c := leaf(nil)
		c.Certificate = append(c.Certificate, a.cert.Raw)
		return c
	}
	pair := Pair{CertFile: "tls/dev.pem", KeyFile: "tls/dev.key"}
	server := func(c tls.Certificate, now time.Time) []string { return CheckServer(pair, c, now) }
	client := func(c tls.Certificate, now time.Time) []string { return CheckClient(pair, c, now) }
	bundle := func(c tls.Certificate, now time.Time) []string {
		return CheckCA("tls/dev.pem", []*x509.Certificate{c.Leaf}, now)
	}

	for _, tt := range []struct {
		name  string
		check func(tls.Certificate, time.Time) []string
		cert  tls.Certificate
		after time.Duration // from the start of the certificate's life
		want  string        // empty: no warning
	}{
		{"good", server, leaf(nil), day, ""},
		{"good with its issuer", server, followedBy(ca), day, ""},
		{"not valid yet", server, leaf(nil), -day, "is valid from"},
		{"expired", server, leaf(nil), 400 * day, "expired at"},
		{"year, 15 days left", server, leaf(lives(365)), 350 * day, ""},
		{"year, 13 days left", server, leaf(lives(365)), 352 * day, "expires at"},
		{"six days, three left", server, leaf(lives(6)), 3 * day, ""},
		{"six days, one left", server, leaf(lives(6)), 5 * day, "in 24h0m0s; renew it"},
		{"wrong issuer behind it", server, followedBy(stranger), day, "has not issued"},
		{"no alternative name", server, leaf(func(c *x509.Certificate) { c.DNSNames = nil }), day, "no subject alternative name"},
		{"client certificate on a listener", server, leaf(uses(x509.ExtKeyUsageClientAuth)), day, "serverAuth"},
		{"any use", server, leaf(uses(x509.ExtKeyUsageAny)), day, ""},
		{"no use named", server, leaf(uses()), day, ""},
		{"short RSA key", server, ca.issue("dev.example", rsaShort(), nil), day, "RSA key of 1024 bits"},
		{"client certificate towards a backend", client, leaf(uses(x509.ExtKeyUsageClientAuth)), day, ""},
		{"client certificate without name", client, leaf(func(c *x509.Certificate) { c.DNSNames = nil }), day, ""},
		{"server certificate towards a backend", client, leaf(uses(x509.ExtKeyUsageServerAuth)), day, "clientAuth"},
		{"expired towards a backend", client, leaf(nil), 400 * day, "expired at"},
		{"CA", bundle, tls.Certificate{Leaf: ca.cert}, day, ""},
		{"expired CA", bundle, tls.Certificate{Leaf: ca.cert}, 20 * 365 * day, "expired at"},
		{"leaf among the CAs", bundle, leaf(func(c *x509.Certificate) { c.BasicConstraintsValid = true }), day, "not a CA"},
		{"chain that is no certificate", server, tls.Certificate{Certificate: [][]byte{{1}}, Leaf: ca.cert}, day, "certificate 1 of the chain"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.check(tt.cert, tt.cert.Leaf.NotBefore.Add(tt.after))
			if tt.want == "" {
				if len(got) > 0 {
					t.Fatalf("warned: %q", got)
				}
				return
			}
			if len(got) != 1 || !strings.Contains(got[0], tt.want) || !strings.Contains(got[0], "tls/dev.pem") {
				t.Fatalf("got %q, want one that names the file and %q", got, tt.want)
			}
		})
	}
}
