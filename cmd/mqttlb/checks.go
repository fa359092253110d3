package main

import (
	"crypto/tls"
	"net"

	"github.com/mqttlb/mqttlb/pkg/config"
	"github.com/mqttlb/mqttlb/pkg/health"
	"github.com/mqttlb/mqttlb/pkg/listen"
	"github.com/mqttlb/mqttlb/pkg/pp"
	"github.com/mqttlb/mqttlb/pkg/proxy"
)

// buildMonitor makes the health checks of a pool and lets their news reach the
// metrics, the readiness and the connections.
func (h *house) buildMonitor(p *pool, re *backendTLS) *health.Monitor {
	c := p.cfg.Health
	m := health.NewMonitor(prober(p.cfg, re), health.Options{
		Interval:     c.Interval,
		FastInterval: c.FastInterval,
		Timeout:      c.Timeout,
		Rise:         c.Rise,
		Fall:         c.Fall,
		Port:         c.Port,
		Ports:        ownPorts(p.cfg.Backends),
		Log:          h.log,
		OnCheck: func(r health.Result) {
			if r.Err != nil {
				h.metrics.CheckFailed(r.Backend.ID(), string(r.Reason))
			}
		},
		OnChange: func(e health.Event) { h.verdictChanged(p, e) },
	})
	m.SetBackends(p.backends)
	return m
}

// ownPorts are the ports that backends are checked at, where those are their own.
func ownPorts(backends []config.Backend) map[string]int {
	ports := make(map[string]int)
	for _, b := range backends {
		if b.HealthPort != 0 {
			ports[b.Name] = b.HealthPort
		}
	}
	return ports
}

// prober is what one check does.
func prober(c config.Pool, re *backendTLS) health.Prober {
	var base *tls.Config
	if re != nil {
		base = re.base
	}
	switch {
	case c.Health.Type == config.HealthTCP:
		return health.TCP{}
	case c.Health.Topic != "":
		return health.Paho{
			TLS: base, Header: checkHeader(c), Topic: c.Health.Topic,
			Username: c.Health.Username, Password: string(c.Health.Password),
		}
	default:
		return health.MQTT{
			TLS: base, Header: checkHeader(c),
			Username: c.Health.Username, Password: string(c.Health.Password),
		}
	}
}

func (h *house) verdictChanged(p *pool, e health.Event) {
	h.updateGate()
	if e.Up || e.First || p.cfg.OnMarkedDown != config.MarkedDownClose {
		return
	}
	for _, l := range h.listeners {
		if n := l.server.CloseBackend(e.Backend.ID(), proxy.MarkedDown); n > 0 {
			h.log.Info("closing connections of a backend that is down", "backend", e.Backend.ID().String(), "listener", l.cfg.Name, "connections", n)
		}
	}
}

func (h *house) updateGate() {
	if h.gate != nil {
		h.gate.Set(h.ready.Ready())
	}
}

// checkHeader is the PROXY header in front of a check, where the pool's
// backends expect one: LOCAL says that it is about no client; some brokers do
// not bear that and are told of a connection from here.
func checkHeader(c config.Pool) func(net.Conn) ([]byte, error) {
	version := headerVersions[c.SendProxy]
	if version == proxy.NoHeader {
		return nil
	}
	return func(conn net.Conn) ([]byte, error) {
		h := pp.Header{Version: 2, Command: pp.Local}
		if c.Health.Proxy == config.HealthProxyProxy {
			h.Command = pp.Proxy
			h.Source, h.Destination = listen.AddrPort(conn.LocalAddr()), listen.AddrPort(conn.RemoteAddr())
		}
		if version == proxy.HeaderV1 {
			return pp.AppendV1(nil, h.Source, h.Destination), nil
		}
		return pp.AppendV2(nil, h, false)
	}
}
