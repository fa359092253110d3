package main

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/mqttlb/mqttlb/pkg/admin"
	"github.com/mqttlb/mqttlb/pkg/affinity"
	"github.com/mqttlb/mqttlb/pkg/backend"
	"github.com/mqttlb/mqttlb/pkg/config"
	"github.com/mqttlb/mqttlb/pkg/health"
	"github.com/mqttlb/mqttlb/pkg/listen"
	"github.com/mqttlb/mqttlb/pkg/proxy"
)

// house is a configuration turned into parts that know each other. Building it
// binds nothing.
type house struct {
	cfg       *config.Config
	log       *slog.Logger
	pools     []*pool
	listeners []*listener
	ready     *admin.Readiness
	metrics   *admin.Metrics
	gate      *listen.Gate // nil without health_endpoint.tcp
}

type pool struct {
	cfg      config.Pool
	pool     *proxy.Pool
	backends []*backend.Backend
	monitor  *health.Monitor // nil with health.type none
}

type listener struct {
	cfg    config.Listener
	server *proxy.Server
}

// build makes the parts of a checked configuration.
func build(cfg *config.Config, files *tlsParts, log *slog.Logger) (*house, error) {
	h := &house{cfg: cfg, log: log, metrics: admin.NewMetrics()}
	var pools []*proxy.Pool
	for _, c := range cfg.Pools {
		p, err := h.buildPool(c, files.pools[c.Name])
		if err != nil {
			return nil, err
		}
		h.pools = append(h.pools, p)
		pools = append(pools, p.pool)
	}
	var servers []*proxy.Server
	for _, c := range cfg.Listeners {
		l := &listener{c, proxy.New(h.listenerOptions(c, files))}
		h.listeners = append(h.listeners, l)
		servers = append(servers, l.server)
	}
	h.ready = admin.NewReadiness(pools)
	h.metrics.Watch(servers, pools, files.Shown)
	if cfg.HealthEndpoint.TCP != "" {
		h.gate = &listen.Gate{Address: cfg.HealthEndpoint.TCP, Log: log}
	}
	return h, nil
}

func (h *house) buildPool(c config.Pool, re *backendTLS) (*pool, error) {
	p := &pool{cfg: c}
	for _, b := range c.Backends {
		be := backend.New(backend.Spec{Pool: c.Name, Name: b.Name, Address: b.Address, Weight: b.Weight, MaxConnections: b.MaxConnections})
		be.SetAdmin(adminStates[b.State])
		p.backends = append(p.backends, be)
	}
	table, err := affinity.Build(p.backends, affinity.Options{Balance: affinity.Balance(c.Balance), LoadFactor: c.LoadFactor})
	if err != nil {
		return nil, err
	}
	o := proxy.PoolOptions{
		Table:          table,
		Dial:           h.dial,
		DialTimeout:    c.Dial.Timeout,
		Attempts:       c.Dial.Attempts,
		Header:         headerVersions[c.SendProxy],
		TLVs:           tlvs(c.ProxyTLVs),
		ConnackTimeout: c.Dial.ConnackTimeout,
	}
	if re != nil {
		o.TLS = re.forBackend
	}
	for _, k := range c.HashKey {
		o.HashKeys = append(o.HashKeys, proxy.HashKey(k))
	}
	if c.Health.Type == config.HealthNone {
		for _, b := range p.backends {
			b.SetHealth(true, "not checked")
		}
	} else {
		p.monitor = h.buildMonitor(p, re)
		o.Reports = proxy.Reports{DialFailed: p.monitor.DialFailed, ClosedEarly: p.monitor.ClosedEarly, Answered: p.monitor.Answered}
	}
	p.pool = proxy.NewPool(c.Name, o)
	return p, nil
}

var adminStates = map[config.BackendState]backend.Admin{
	config.BackendActive: backend.Active,
	config.BackendDrain:  backend.Drain,
	config.BackendMaint:  backend.Maint,
}

var headerVersions = map[config.SendProxy]proxy.HeaderVersion{
	config.SendProxyOff: proxy.NoHeader,
	config.SendProxyV1:  proxy.HeaderV1,
	config.SendProxyV2:  proxy.HeaderV2,
}

func tlvs(names []config.TLV) (t proxy.TLVs) {
	for _, name := range names {
		switch name {
		case config.TLVSSL:
			t.SSL = true
		case config.TLVALPN:
			t.ALPN = true
		case config.TLVAuthority:
			t.Authority = true
		case config.TLVUniqueID:
			t.UniqueID = true
		case config.TLVCRC32C:
			t.CRC32C = true
		}
	}
	return t
}

// dial opens the TCP connection to a backend and notes how long that took.
func (h *house) dial(ctx context.Context, b *backend.Backend) (net.Conn, error) {
	d := net.Dialer{Control: listen.ControlDial, KeepAlive: -1} // ControlDial sets keep-alive
	begun := time.Now()
	c, err := d.DialContext(ctx, "tcp", b.Address)
	if err == nil {
		h.metrics.Dialed(b.ID(), time.Since(begun))
	}
	return c, err
}

func (h *house) listenerOptions(c config.Listener, files *tlsParts) proxy.Options {
	o := proxy.Options{
		Name:           c.Name,
		Mode:           proxy.Mode(c.TLS.Mode),
		Protocol:       proxy.Protocol(c.Protocol),
		TLS:            files.Listeners[c.Name],
		Pool:           h.find(c.Pool),
		ConnectTimeout: c.Limits.ConnectTimeout,
		MaxConnectSize: c.Limits.MaxConnectSize,
		MaxConnections: c.Limits.Connections,
		PerAddress:     listen.Limit(c.Limits.PerIP),
		IdleTimeout:    c.IdleTimeout,
		Observer:       h.metrics,
		Log:            h.log,
	}
	if a := c.AcceptProxy; a != nil {
		o.Accept = &listen.ProxyPolicy{From: a.From, TrustIdentity: a.TrustIdentity}
	}
	for _, r := range c.Routes {
		o.Routes = append(o.Routes, proxy.Route{SNI: r.SNI, ALPN: r.ALPN, Pool: h.find(r.Pool)})
	}
	return o
}

// find gives the pool of a name that the configuration's check has seen; nil
// for none.
func (h *house) find(name string) *proxy.Pool {
	for _, p := range h.pools {
		if p.cfg.Name == name {
			return p.pool
		}
	}
	return nil
}
