package command

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/mqttlb/mqttlb/pkg/admin"
	"github.com/mqttlb/mqttlb/pkg/certs"
	"github.com/mqttlb/mqttlb/pkg/config"
)

// nodes stands for a listener's name where the certificate is for the cluster.
const nodes = "cluster"

// Nodes reads what the tls of a cluster names, and gives the TLS of both
// directions between nodes: each side shows the certificate and takes only one
// of the same authorities. It is nil when something is wrong.
func (t *TLSFiles) Nodes(c *config.ClusterTLS, key string) *tls.Config {
	before := len(t.Problems)
	pair, ok := t.Pair(c.Certificate, c.Key, key+".certificate")
	authorities, err := certs.ReadCA(c.CA)
	t.Problem(key+".ca", err)
	if !ok || err != nil {
		return nil
	}
	pool := x509.NewCertPool()
	for _, ca := range authorities {
		pool.AddCert(ca)
	}
	t.Problem(key+".certificate", fitsBothWays(c, pair, pool))
	if len(t.Problems) > before {
		return nil
	}
	t.Warnings = append(t.Warnings, certs.CheckServer(certs.Pair{CertFile: c.Certificate, KeyFile: c.Key}, pair, time.Now())...)
	t.Warnings = append(t.Warnings, certs.CheckCA(c.CA, authorities, time.Now())...)
	t.Shown = append(t.Shown, admin.Certificate{Listener: nodes, Subject: pair.Leaf.Subject.String(), NotAfter: pair.Leaf.NotAfter})
	return &tls.Config{
		Certificates: []tls.Certificate{pair},
		RootCAs:      pool,
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		MinVersion:   tls.VersionTLS13, // both sides are ours
	}
}

// fitsBothWays says why the other nodes would not take a certificate. Its time
// is another matter, and told as a warning.
func fitsBothWays(c *config.ClusterTLS, pair tls.Certificate, authorities *x509.CertPool) error {
	between := x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		if x, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(x)
		}
	}
	for _, use := range []struct {
		usage x509.ExtKeyUsage
		name  string
	}{{x509.ExtKeyUsageServerAuth, "serverAuth"}, {x509.ExtKeyUsageClientAuth, "clientAuth"}} {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{
			Roots: authorities, Intermediates: between, CurrentTime: pair.Leaf.NotBefore, KeyUsages: []x509.ExtKeyUsage{use.usage},
		})
		switch invalid := (x509.CertificateInvalidError{}); {
		case err == nil:
		case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
			return fmt.Errorf("%s is not issued for %s, and a node shows its certificate both as server and as client; issue it with the extended key usages serverAuth and clientAuth", c.Certificate, use.name)
		default:
			return fmt.Errorf("the other nodes would not take %s, which none of the authorities in %s has issued: %w; name the authority of the nodes' certificates in ca", c.Certificate, c.CA, err)
		}
	}
	return nil
}
