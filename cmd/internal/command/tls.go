package command

import (
	"crypto/tls"
	"fmt"
	"time"

	"github.com/mqttlb/mqttlb/pkg/admin"
	"github.com/mqttlb/mqttlb/pkg/certs"
	"github.com/mqttlb/mqttlb/pkg/config"
)

// TLSFiles is what the certificate, key and CA files of a configuration turn
// into. Reading them is part of checking the configuration, so that one run
// tells all that is wrong. Settings that are wrong themselves are another's to
// report.
type TLSFiles struct {
	Config Located

	Listeners map[string]*tls.Config // by name; those that terminate
	Cluster   *tls.Config            // between nodes, both ways; nil without
	Shown     []admin.Certificate
	Warnings  []string // what works now and will not for long, or not for all
	Problems  []config.Problem
}

// Listener reads what a listener's tls names; key is where that stands.
func (t *TLSFiles) Listener(name string, l config.TLS, key string) {
	if l.Mode != config.TLSTerminate {
		return
	}
	o := certs.ServerOptions{MinVersion: tlsVersions[l.MinVersion], ALPN: l.ALPN, Verify: certs.Verify(l.Verify)}
	for i, c := range l.Certificates {
		loaded, ok := t.Pair(c.Cert, c.Key, fmt.Sprintf("%s.certificates[%d].cert", key, i))
		if !ok {
			continue
		}
		o.Certificates = append(o.Certificates, loaded)
		t.Warnings = append(t.Warnings, certs.CheckServer(certs.Pair{CertFile: c.Cert, KeyFile: c.Key}, loaded, time.Now())...)
		t.Shown = append(t.Shown, admin.Certificate{Listener: name, Subject: loaded.Leaf.Subject.String(), NotAfter: loaded.Leaf.NotAfter})
	}
	if l.ClientCA != "" {
		if bundle, err := certs.ReadCA(l.ClientCA); err == nil {
			t.Warnings = append(t.Warnings, certs.CheckCA(l.ClientCA, bundle, time.Now())...)
		}
		ca, err := certs.LoadPool(l.ClientCA)
		t.Problem(key+".client_ca", err)
		o.ClientCAs = ca
	}
	if len(t.Problems) > 0 || len(o.Certificates) == 0 || l.Verify != config.VerifyNone && o.ClientCAs == nil {
		return // it is told, by these problems or by the configuration's check, better than by the lack that it leaves
	}
	cfg, err := certs.ServerConfig(o)
	t.Problem(key, err)
	if t.Listeners == nil {
		t.Listeners = make(map[string]*tls.Config)
	}
	t.Listeners[name] = cfg
}

var tlsVersions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// Pair reads a certificate and its key; where is the key of the configuration
// that is told if it can't.
func (t *TLSFiles) Pair(cert, key, where string) (tls.Certificate, bool) {
	loaded, err := certs.Load([]certs.Pair{{CertFile: cert, KeyFile: key}})
	if err != nil {
		t.Problem(where, err)
		return tls.Certificate{}, false
	}
	return loaded[0], true
}

// Problem notes an error, if it is one, at a key of the configuration.
func (t *TLSFiles) Problem(key string, err error) {
	if err != nil {
		t.Problems = append(t.Problems, t.Config.Problem(key, err.Error(), ""))
	}
}
