package main

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/mqttlb/mqttlb/pkg/admin"
	"github.com/mqttlb/mqttlb/pkg/backend"
	"github.com/mqttlb/mqttlb/pkg/certs"
	"github.com/mqttlb/mqttlb/pkg/config"
)

// tlsParts is what the certificate, key and CA files of a configuration turn
// into. Reading them is part of checking the configuration, so that one run
// tells all that is wrong.
type tlsParts struct {
	listeners map[string]*tls.Config // by name; those that terminate
	pools     map[string]*backendTLS // by name; those that re-encrypt
	shown     []admin.Certificate
	warnings  []string // what works now and will not for long, or not for all

	problems []config.Problem
	cfg      *config.Config
}

// backendTLS is the settings of re-encryption to a pool's backends. The nil
// *backendTLS is none.
type backendTLS struct {
	base   *tls.Config // without a name that a certificate must bear, unless the pool gives one
	byHost map[string]*tls.Config
}

// read is a config.Loader's Also: it takes the files and tells what is wrong
// with them. Settings that are wrong themselves are another's to report.
func (t *tlsParts) read(cfg *config.Config) []config.Problem {
	*t = tlsParts{listeners: make(map[string]*tls.Config), pools: make(map[string]*backendTLS), cfg: cfg}
	for i := range cfg.Listeners {
		if l := &cfg.Listeners[i]; l.TLS.Mode == config.TLSTerminate {
			t.readListener(l, fmt.Sprintf("listeners[%d].tls", i))
		}
	}
	for i := range cfg.Pools {
		if p := &cfg.Pools[i]; p.TLS != nil {
			t.readPool(p, fmt.Sprintf("pools[%d].tls", i))
		}
	}
	return t.problems
}

func (t *tlsParts) readListener(l *config.Listener, key string) {
	o := certs.ServerOptions{MinVersion: tlsVersions[l.TLS.MinVersion], ALPN: l.TLS.ALPN, Verify: certs.Verify(l.TLS.Verify)}
	for i, c := range l.TLS.Certificates {
		loaded, ok := t.pair(c.Cert, c.Key, fmt.Sprintf("%s.certificates[%d].cert", key, i))
		if !ok {
			continue
		}
		o.Certificates = append(o.Certificates, loaded)
		t.warnings = append(t.warnings, certs.CheckServer(certs.Pair{CertFile: c.Cert, KeyFile: c.Key}, loaded, time.Now())...)
		t.shown = append(t.shown, admin.Certificate{Listener: l.Name, Subject: loaded.Leaf.Subject.String(), NotAfter: loaded.Leaf.NotAfter})
	}
	if l.TLS.ClientCA != "" {
		if bundle, err := certs.ReadCA(l.TLS.ClientCA); err == nil {
			t.warnings = append(t.warnings, certs.CheckCA(l.TLS.ClientCA, bundle, time.Now())...)
		}
		ca, err := certs.LoadPool(l.TLS.ClientCA)
		t.problem(key+".client_ca", err)
		o.ClientCAs = ca
	}
	if len(t.problems) > 0 {
		return // they say it better than the lack that they leave
	}
	cfg, err := certs.ServerConfig(o)
	t.problem(key, err)
	t.listeners[l.Name] = cfg
}

var tlsVersions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

func (t *tlsParts) readPool(p *config.Pool, key string) {
	o := certs.ClientOptions{ServerName: p.TLS.ServerName}
	if p.TLS.CA != "" {
		ca, err := certs.LoadPool(p.TLS.CA)
		t.problem(key+".ca", err)
		o.RootCAs = ca
	}
	if p.TLS.Cert != "" {
		if loaded, ok := t.pair(p.TLS.Cert, p.TLS.Key, key+".cert"); ok {
			o.Certificate = &loaded
			t.warnings = append(t.warnings, certs.CheckClient(certs.Pair{CertFile: p.TLS.Cert, KeyFile: p.TLS.Key}, loaded, time.Now())...)
		}
	}
	base, err := certs.ClientConfig(o)
	if err != nil {
		t.problem(key, err)
		return
	}
	t.pools[p.Name] = newBackendTLS(base, p.Backends)
}

func (t *tlsParts) pair(cert, key, where string) (tls.Certificate, bool) {
	loaded, err := certs.Load([]certs.Pair{{CertFile: cert, KeyFile: key}})
	if err != nil {
		t.problem(where, err)
		return tls.Certificate{}, false
	}
	return loaded[0], true
}

func (t *tlsParts) problem(key string, err error) {
	if err != nil {
		t.problems = append(t.problems, t.cfg.Problem(key, err.Error(), ""))
	}
}

// newBackendTLS makes the name that a backend's certificate must bear the host
// of its address, unless the pool names one for all. The configurations are
// made once: cloning one for each dial costs more than the dial.
func newBackendTLS(base *tls.Config, backends []config.Backend) *backendTLS {
	t := &backendTLS{base: base, byHost: make(map[string]*tls.Config, len(backends))}
	for _, b := range backends {
		host := hostOf(b.Address)
		named := base.Clone()
		named.ServerName = cmp.Or(base.ServerName, host)
		t.byHost[host] = named
	}
	return t
}

func (t *backendTLS) forBackend(b *backend.Backend) *tls.Config { return t.byHost[hostOf(b.Address)] }

func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address) // config has checked it
	return host
}
