package config

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// socket is an address to listen on, and the key that names it.
type socket struct{ key, address string }

// ownSockets are those beside the clients'.
func ownSockets(admin string, h HealthEndpoint) []socket {
	return []socket{{"admin.address", admin}, {"health_endpoint.tcp", h.TCP}, {"health_endpoint.http", h.HTTP}}
}

// sockets reports two that can't both be opened.
func (c *checker) sockets(all []socket) {
	for i, s := range all {
		for _, before := range all[:i] {
			if overlap(before.address, s.address) {
				c.report(s.key, &fault{fmt.Sprintf("%s is taken by %s (%s) already", quote(s.address), before.key, before.address), "choose another port"})
				break
			}
		}
	}
}

// overlap says whether one address, or all addresses on the same port, are
// asked for twice. Port 0 never is: the system chooses.
func overlap(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || strings.Trim(portA, "0") == "" {
		return false
	}
	return covers(hostA, hostB) || covers(hostB, hostA)
}

// covers says whether listening on host a takes what b asks for.
func covers(a, b string) bool {
	ipA, err := netip.ParseAddr(a)
	ipB, errB := netip.ParseAddr(b)
	switch {
	case a == "" || err == nil && ipA == netip.IPv6Unspecified(): // both families
		return true
	case err == nil && ipA == netip.IPv4Unspecified():
		return errB == nil && ipB.Unmap().Is4()
	case err == nil && errB == nil:
		return ipA == ipB
	default:
		return strings.EqualFold(a, b)
	}
}
