package listen

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mqttlb/mqttlb/pkg/pp"
)

// ErrUntrusted is a peer outside the networks that may send a PROXY header.
var ErrUntrusted = errors.New("peer is not in accept_proxy.from")

// ProxyPolicy says who must begin with a PROXY header. On a listener that has
// one every connection begins with a header from a trusted peer or ends there:
// a receiver must not guess (PROXY protocol §2).
type ProxyPolicy struct {
	// From are the networks whose headers are believed.
	From []netip.Prefix
	// TrustIdentity lets the sender's TLS and identity TLVs pass on; see
	// proxy's relay of TLVs.
	TrustIdentity bool
}

// Trusts says whether a header from this address is believed. The zone of a
// link-local address does not count: a prefix has none.
func (p *ProxyPolicy) Trusts(peer netip.Addr) bool {
	peer = peer.Unmap().WithZone("")
	return slices.ContainsFunc(p.From, func(n netip.Prefix) bool { return n.Contains(peer) })
}

// ReadHeader reads the PROXY header that the policy demands, under the
// deadline that is set on the connection. LOCAL, UNKNOWN and address families
// other than TCP leave the socket's own addresses in place.
func (c *Conn) ReadHeader(p *ProxyPolicy) error {
	if !p.Trusts(c.Peer.Addr()) {
		return ErrUntrusted
	}
	err := c.ReadWhole(pp.MaxHeader, pp.ErrShort, func(b []byte) (int, error) {
		h, n, err := pp.Parse(b, pp.MaxHeader)
		if err == nil {
			c.Header = &h
			c.Consume(n)
		}
		return n, err
	})
	if err != nil {
		return fmt.Errorf("read PROXY header: %w", err)
	}
	// The header is its sender's word. Whether the client says one of its own
	// begins behind it: another balancer's health check ends here.
	c.seen.Store(len(c.Pending()) > 0)
	if c.Header.Command == pp.Proxy && c.Header.Source.IsValid() {
		c.Source, c.Destination = c.Header.Source, c.Header.Destination
	}
	return nil
}
