package certs

import (
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"slices"
	"time"
)

// soonAtMost is the longest time before the end of a certificate's life that
// counts as soon; see ending.
const soonAtMost = 14 * 24 * time.Hour

// CheckServer names what lets a certificate of a listener work badly or not
// much longer: one warning each, with file, reason and the way to mend it.
func CheckServer(p Pair, c tls.Certificate, now time.Time) []string {
	w := warnings{role: "certificate", file: p.CertFile, now: now}
	chain := w.chain(c)
	if len(chain) == 0 {
		return w.found
	}
	leaf := chain[0]
	w.use(leaf, x509.ExtKeyUsageServerAuth, "serverAuth")
	if !hasNames(leaf) {
		w.add("%s has no subject alternative name, and most clients look at no other; issue it with the names that clients connect to", leaf.Subject)
	}
	return w.found
}

// CheckClient is [CheckServer] for the certificate that mqttlb shows to
// backends.
func CheckClient(p Pair, c tls.Certificate, now time.Time) []string {
	w := warnings{role: "certificate", file: p.CertFile, now: now}
	if chain := w.chain(c); len(chain) > 0 {
		w.use(chain[0], x509.ExtKeyUsageClientAuth, "clientAuth")
	}
	return w.found
}

// CheckCA does the same for a bundle that [ReadCA] has read.
func CheckCA(file string, bundle []*x509.Certificate, now time.Time) []string {
	w := warnings{role: "CA", file: file, now: now}
	for _, c := range bundle {
		w.ending(c)
		if c.BasicConstraintsValid && !c.IsCA {
			w.add("%s is not a CA: what it has signed is not accepted; name the certificate of its issuer", c.Subject)
		}
	}
	return w.found
}

// warnings collects what is found in one file.
type warnings struct {
	role, file string
	now        time.Time
	found      []string
}

func (w *warnings) add(format string, args ...any) {
	w.found = append(w.found, fileError(w.role, w.file, format, args...).Error())
}

// chain parses the certificates of c and judges each and their order.
func (w *warnings) chain(c tls.Certificate) []*x509.Certificate {
	var chain []*x509.Certificate
	for _, der := range c.Certificate {
		x, err := x509.ParseCertificate(der)
		if err != nil {
			w.add("certificate %d of the chain: %w", len(chain)+1, err)
			return nil
		}
		chain = append(chain, x)
	}
	for i, x := range chain {
		w.ending(x)
		if i > 0 && chain[i-1].CheckSignatureFrom(x) != nil {
			w.add("certificate %d (%s) has not issued the one before it (%s), so clients may not find the chain; put each issuer right behind what it issued", i+1, x.Subject, chain[i-1].Subject)
		}
		if key, ok := x.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() < 2048 {
			w.add("%s has an RSA key of %d bits, and most clients take no less than 2048; issue it anew", x.Subject, key.N.BitLen())
		}
	}
	return chain
}

// ending warns of certificates outside their validity, and of those in the last
// fifth of their life, at most 14 days before its end: whatever renews them by
// itself should have done so by then.
func (w *warnings) ending(c *x509.Certificate) {
	soon := min(c.NotAfter.Sub(c.NotBefore)/5, soonAtMost)
	switch {
	case w.now.Before(c.NotBefore):
		w.add("%s is valid from %s only; check the clock, or wait", c.Subject, stamp(c.NotBefore))
	case w.now.After(c.NotAfter):
		w.add("%s expired at %s, and peers that check it refuse it; renew it", c.Subject, stamp(c.NotAfter))
	case w.now.After(c.NotAfter.Add(-soon)):
		w.add("%s expires at %s, in %s; renew it", c.Subject, stamp(c.NotAfter), c.NotAfter.Sub(w.now).Round(time.Hour))
	}
}

func (w *warnings) use(c *x509.Certificate, usage x509.ExtKeyUsage, name string) {
	if len(c.ExtKeyUsage)+len(c.UnknownExtKeyUsage) == 0 ||
		slices.Contains(c.ExtKeyUsage, usage) || slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny) {
		return
	}
	w.add("%s is not issued for %s, and peers that check it refuse it; issue it with the extended key usage %s", c.Subject, name, name)
}

// hasNames says whether a certificate names its holder the way that RFC 6125
// wants it.
func hasNames(c *x509.Certificate) bool {
	return len(c.DNSNames)+len(c.IPAddresses)+len(c.EmailAddresses)+len(c.URIs) > 0
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
