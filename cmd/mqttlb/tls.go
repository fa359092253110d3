package main

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/mqttlb/mqttlb/cmd/internal/command"
	"github.com/mqttlb/mqttlb/pkg/backend"
	"github.com/mqttlb/mqttlb/pkg/certs"
	"github.com/mqttlb/mqttlb/pkg/config"
)

// tlsParts is what the certificate, key and CA files of a configuration turn
// into.
type tlsParts struct {
	command.TLSFiles
	pools map[string]*backendTLS // by name; those that re-encrypt
}

// backendTLS is the settings of re-encryption to a pool's backends. The nil
// *backendTLS is none.
type backendTLS struct {
	base   *tls.Config // without a name that a certificate must bear, unless the pool gives one
	byHost map[string]*tls.Config
}

// read is a config.Loader's Also: it takes the files and tells what is wrong
// with them.
func (t *tlsParts) read(cfg *config.Config) []config.Problem {
	*t = tlsParts{TLSFiles: command.TLSFiles{Config: cfg}, pools: make(map[string]*backendTLS)}
	for i, l := range cfg.Listeners {
		t.Listener(l.Name, l.TLS, fmt.Sprintf("listeners[%d].tls", i))
	}
	for i := range cfg.Pools {
		if p := &cfg.Pools[i]; p.TLS != nil {
			t.readPool(p, fmt.Sprintf("pools[%d].tls", i))
		}
	}
	return t.Problems
}

func (t *tlsParts) readPool(p *config.Pool, key string) {
	o := certs.ClientOptions{ServerName: p.TLS.ServerName}
	if p.TLS.CA != "" {
		ca, err := certs.LoadPool(p.TLS.CA)
		t.Problem(key+".ca", err)
		o.RootCAs = ca
	}
	if p.TLS.Cert != "" {
		if loaded, ok := t.Pair(p.TLS.Cert, p.TLS.Key, key+".cert"); ok {
			o.Certificate = &loaded
			t.Warnings = append(t.Warnings, certs.CheckClient(certs.Pair{CertFile: p.TLS.Cert, KeyFile: p.TLS.Key}, loaded, time.Now())...)
		}
	}
	base, err := certs.ClientConfig(o)
	if err != nil {
		t.Problem(key, err)
		return
	}
	t.pools[p.Name] = newBackendTLS(base, p.Backends)
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
