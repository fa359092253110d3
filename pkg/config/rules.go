package config

import (
	"fmt"
	"slices"
	"strings"
)

func (cfg *Config) complete(c *checker) {
	for i := range cfg.Pools {
		p := &cfg.Pools[i]
		var sees, blind bool
		for l := range cfg.listenersOf(p.Name) {
			sees = sees || l.SeesConnect()
			blind = blind || !l.SeesConnect()
		}
		sees = sees || !blind // a pool without listeners
		if p.Balance == BalanceRing && len(p.HashKey) == 0 {
			if sees {
				p.HashKey = append(p.HashKey, HashClientID)
			}
			if blind {
				p.HashKey = append(p.HashKey, HashSourceIP)
			}
		}
		if p.Health.Type == "" && sees {
			p.Health.Type = HealthMQTT
		} else if p.Health.Type == "" {
			p.Health.Type = HealthTCP
		}
		if !c.given(fmt.Sprintf("pools[%d].health.fast_interval", i)) {
			p.Health.FastInterval = min(p.Health.FastInterval, p.Health.Interval)
		}
	}
}

// listenersOf gives the listeners that can send connections to the pool.
func (cfg *Config) listenersOf(pool string) func(yield func(*Listener) bool) {
	return func(yield func(*Listener) bool) {
		for i := range cfg.Listeners {
			l := &cfg.Listeners[i]
			uses := l.Pool == pool || slices.ContainsFunc(l.Routes, func(r Route) bool { return r.Pool == pool })
			if uses && !yield(l) {
				return
			}
		}
	}
}

func (cfg *Config) rules(c *checker) {
	unique(c, "listeners", cfg.Listeners, func(l Listener) string { return l.Name }, "give each listener a name of its own")
	unique(c, "pools", cfg.Pools, func(p Pool) string { return p.Name }, "give each pool a name of its own")
	pools := make([]string, len(cfg.Pools))
	for i, p := range cfg.Pools {
		pools[i] = p.Name
		unique(c, fmt.Sprintf("pools[%d].backends", i), p.Backends, func(b Backend) string { return b.Name },
			"give each backend of a pool a name of its own: it is the backend's place on the ring")
	}
	var sockets []socket
	for i := range cfg.Listeners {
		key := fmt.Sprintf("listeners[%d]", i)
		c.listener(&cfg.Listeners[i], key, pools)
		sockets = append(sockets, socket{key + ".address", cfg.Listeners[i].Address})
	}
	for i := range cfg.Pools {
		c.pool(cfg, &cfg.Pools[i], fmt.Sprintf("pools[%d]", i))
	}
	c.sockets(append(sockets, ownSockets(cfg.Admin.Address, cfg.HealthEndpoint)...))
}

func (c *checker) listener(l *Listener, key string, pools []string) {
	c.poolName(l.Pool, key+".pool", pools)
	if l.Pool == "" && len(l.Routes) == 0 {
		c.report(key+".pool", &fault{"is missing", "name the pool that takes the connections, or list routes"})
	}
	c.listenerTLS(l.TLS, key+".tls")
	c.routes(l, key+".routes", pools)
}

func (c *checker) poolName(name, key string, pools []string) {
	if name == "" || slices.Contains(pools, name) || slices.Contains(pools, "") || c.bad["pools"] || c.lost["pools"] {
		return
	}
	mend := "the pools are " + strings.Join(pools, ", ")
	if near := nearest(name, pools); near != "" {
		mend = fmt.Sprintf("did you mean %q?", near)
	}
	c.report(key, &fault{"there is no pool " + quote(name), mend})
}

func (c *checker) routes(l *Listener, key string, pools []string) {
	if len(l.Routes) > 0 && l.TLS.Mode == TLSOff {
		c.report(key, &fault{"have no effect without TLS: there is no server name to go by", "write tls: {mode: terminate} or {mode: passthrough}, or use pool"})
	}
	first := map[string]int{}
	for i, r := range l.Routes {
		at := fmt.Sprintf("%s[%d]", key, i)
		c.poolName(r.Pool, at+".pool", pools)
		if len(r.SNI) == 0 && len(r.ALPN) == 0 {
			c.report(at+".sni", &fault{"is missing, and so is alpn", "say what this route takes; the listener's pool takes the rest"})
			continue
		}
		if l.TLS.Mode == TLSTerminate && len(r.ALPN) > 0 && !slices.ContainsFunc(r.ALPN, func(p string) bool { return slices.Contains(l.TLS.ALPN, p) }) {
			c.report(at+".alpn", &fault{"is never negotiated: tls.alpn of the listener does not have it", "add it to tls.alpn"})
		}
		for _, match := range matches(r) {
			if before, twice := first[match]; twice {
				c.report(at, &fault{fmt.Sprintf("never gets %s: routes[%d] takes it already", match, before), "remove one of the two"})
				break
			}
		}
		for _, match := range matches(r) {
			if _, twice := first[match]; !twice {
				first[match] = i
			}
		}
	}
}

// matches lists what a route takes, one text for each pair of names.
func matches(r Route) []string {
	var all []string
	for _, sni := range orAny(r.SNI) {
		for _, alpn := range orAny(r.ALPN) {
			all = append(all, fmt.Sprintf("sni %s with alpn %s", sni, alpn))
		}
	}
	return all
}

func orAny(names []string) []string {
	if len(names) == 0 {
		return []string{"any"}
	}
	return names
}

func (c *checker) pool(cfg *Config, p *Pool, key string) {
	c.hashKey(cfg, p, key)
	if p.LoadFactor != 0 && p.LoadFactor < minLoadFactor {
		c.report(key+".load_factor", &fault{fmt.Sprintf("%v leaves no room above the mean", p.LoadFactor), fmt.Sprintf("write 0 for off, or at least %v", minLoadFactor)})
	}
	if p.Balance != BalanceRing && p.Balance != "" {
		c.noEffect(key+".load_factor", "with balance: "+string(p.Balance))
	}
	if p.SendProxy == SendProxyOff || p.SendProxy == SendProxyV1 {
		c.noEffect(key+".proxy_tlvs", fmt.Sprintf("with send_proxy: %s; only v2 carries them", p.SendProxy))
	}
	if p.SendProxy == SendProxyOff {
		c.noEffect(key+".health.proxy", "with send_proxy: off")
	}
	if t := p.TLS; t != nil {
		c.pair(t.Cert, t.Key, key+".tls.key", key+".tls.cert")
		for l := range cfg.listenersOf(p.Name) {
			if l.TLS.Mode == TLSPassthrough {
				c.report(key+".tls", &fault{fmt.Sprintf("would put TLS around the clients' own TLS, which listener %q passes through", l.Name), "give that listener a pool without tls"})
			}
		}
	}
	c.health(cfg, p, key+".health")
}

// minLoadFactor leaves a backend at least a twentieth above the mean: nearer
// to 1, nearly every client spills.
const minLoadFactor = 1.05

func (c *checker) pair(cert, key, keyKey, certKey string) {
	switch {
	case cert != "" && key == "":
		c.report(keyKey, &fault{"is missing, but cert is there", "name the key of the certificate"})
	case cert == "" && key != "":
		c.report(certKey, &fault{"is missing, but key is there", "name the certificate of the key"})
	}
}

func (c *checker) hashKey(cfg *Config, p *Pool, key string) {
	key += ".hash_key"
	if p.Balance != BalanceRing && p.Balance != "" {
		c.noEffect(key, "with balance: "+string(p.Balance))
		return
	}
	if len(p.HashKey) == 0 {
		return
	}
	for l := range cfg.listenersOf(p.Name) {
		if l.Protocol == "" || l.TLS.Mode == "" || slices.ContainsFunc(p.HashKey, l.knows) {
			continue
		}
		what := fmt.Sprintf("listener %q can't know %s", l.Name, p.HashKey[0])
		if len(p.HashKey) > 1 {
			what = fmt.Sprintf("listener %q can know none of %v", l.Name, p.HashKey)
		}
		switch {
		case l.TLS.Mode == TLSPassthrough:
			what += ": it passes TLS through"
		case l.Protocol == ProtocolTCP && l.TLS.Mode == TLSOff:
			what += ": it reads nothing of the connection"
		case l.Protocol == ProtocolTCP:
			what += ": it does not read MQTT"
		default:
			what += ": it has no TLS"
		}
		c.report(key, &fault{what, fmt.Sprintf("add a key to fall back on, e.g. hash_key: [%s, source_ip]", p.HashKey[0])})
	}
}

// knows says whether the listener can learn the key of its connections.
func (l *Listener) knows(k HashKey) bool {
	switch k {
	case HashClientID:
		return l.SeesConnect()
	case HashSNI:
		return l.TLS.Mode != TLSOff
	default:
		return true
	}
}

func (c *checker) health(cfg *Config, p *Pool, key string) {
	h := &p.Health
	if h.Type != HealthMQTT && h.Type != "" {
		for _, k := range []string{"topic", "username", "password", "proxy"} {
			c.noEffect(join(key, k), "with type: "+string(h.Type))
		}
	}
	if h.Type == HealthNone {
		for _, k := range []string{"port", "interval", "fast_interval", "timeout", "rise", "fall"} {
			c.noEffect(join(key, k), "with type: none")
		}
	}
	if h.Password != "" && h.Username == "" { // [MQTT-3.1.2-22]
		c.report(key+".username", &fault{"is missing, but password is there", "MQTT 3.1.1 has no password without a user name; write one"})
	}
	if h.Type == HealthNone {
		for i := range p.Backends {
			c.noEffect(fmt.Sprintf("%s.backends[%d].health_port", parent(key), i), "with health of type: none")
		}
	}
	if h.FastInterval > h.Interval && h.Interval != 0 {
		c.report(key+".fast_interval", &fault{fmt.Sprintf("%s is longer than the interval of %s", h.FastInterval, h.Interval), "write at most the interval"})
	}
	ownPorts := !slices.ContainsFunc(p.Backends, func(b Backend) bool { return b.HealthPort == 0 })
	if h.Type == HealthMQTT && c.given(key+".type") && h.Port == 0 && !ownPorts {
		for l := range cfg.listenersOf(p.Name) {
			if l.TLS.Mode == TLSPassthrough {
				c.report(key+".type", &fault{fmt.Sprintf("the check would speak MQTT in the clear to a port that takes TLS: listener %q passes TLS through", l.Name), "write type: tcp, or name a plain MQTT port of the backends in health.port"})
			}
		}
	}
}
