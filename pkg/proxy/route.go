package proxy

import (
	"slices"
	"strings"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// route finds the pool, and the key that places the connection in it.
func (s *session) route() *failure {
	s.pool = s.server.opts.poolFor(s.start.SNI, s.offered())
	if s.pool == nil {
		return s.sayNo(StageRoute, NoRoute, mqtt.ServerUnavailable, "no route for this server name")
	}
	s.start.Pool = s.pool.Name
	s.options = s.pool.Options()
	s.key = s.hashKey()
	return nil
}

// offered is the protocol that was negotiated, or those that were asked for
// where TLS passes through.
func (s *session) offered() []string {
	switch {
	case s.client.ClientHello != nil:
		return s.client.ClientHello.ALPN
	case s.client.TLS != nil && s.client.TLS.NegotiatedProtocol != "":
		return []string{s.client.TLS.NegotiatedProtocol}
	default:
		return nil
	}
}

func (o *Options) poolFor(name string, protocols []string) *Pool {
	for _, r := range o.Routes {
		if r.matches(name, protocols) {
			return r.Pool
		}
	}
	return o.Pool
}

func (r *Route) matches(name string, protocols []string) bool {
	bySNI := len(r.SNI) == 0 || slices.ContainsFunc(r.SNI, func(pattern string) bool { return matchName(pattern, name) })
	byALPN := len(r.ALPN) == 0 || slices.ContainsFunc(r.ALPN, func(p string) bool { return slices.Contains(protocols, p) })
	return bySNI && byALPN
}

// matchName compares without case (RFC 6066 §3). A leading "*." stands for one
// label (RFC 6125 §6.4.3).
func matchName(pattern, name string) bool {
	if rest, wild := strings.CutPrefix(pattern, "*"); wild {
		dot := strings.IndexByte(name, '.')
		return dot > 0 && strings.EqualFold(name[dot:], rest)
	}
	return strings.EqualFold(pattern, name)
}

// hashKey is the first of the pool's hash keys that this listener can know. An
// empty one, such as the Client Identifier of a client that leaves it to the
// broker, is no key: the table spreads those.
func (s *session) hashKey() []byte {
	for _, key := range s.options.HashKeys {
		switch {
		case key == HashClientID && s.connect != nil:
			return s.connect.ClientID
		case key == HashSourceIP && s.client.Source.IsValid():
			return s.client.Source.Addr().Unmap().AsSlice()
		case key == HashSNI && s.start.SNI != "":
			return []byte(strings.ToLower(s.start.SNI))
		}
	}
	return nil
}
