package cluster

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// ClusterOptions make a node one of several.
type ClusterOptions struct {
	// Name is of the cluster; all nodes have the same.
	Name string
	// Size is how many nodes the cluster has: 3 or 5. What is stored is on three of
	// them.
	Size int
	// Listen is host:port where other nodes connect. The port may not be 0: others
	// have to know it.
	Listen string
	// Join are host:port of all other nodes; this one's own may be among them.
	Join []string
	// TLS is for both directions: it has this node's certificate and verifies the
	// other side's. nil, which is neither encrypted nor authenticated, is for
	// loopback addresses only.
	TLS *tls.Config
}

// maxReplicas is how many nodes hold what is stored.
const maxReplicas = 3

// maxName bounds the names of clusters and nodes.
const maxName = 64

// checkName refuses what could not be a part of a subject of the engine, or is
// of no use in its logs.
func checkName(what, name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("%s %q: it takes 1 to %d letters", what, name, maxName)
	}
	for _, r := range name {
		if r != '-' && r != '_' && r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return fmt.Errorf("%s %q: it takes letters, digits, %q, %q and %q", what, name, '-', '_', '.')
		}
	}
	return nil
}

func (c *ClusterOptions) check(node string) error {
	err := errors.Join(checkName("cluster name", c.Name), checkName("node name", node))
	if c.Size != 3 && c.Size != 5 {
		err = errors.Join(err, fmt.Errorf("a cluster of %d nodes: it takes 3 or 5", c.Size))
	}
	if _, port, e := splitAddress(c.Listen); e != nil {
		err = errors.Join(err, fmt.Errorf("cluster address: %w", e))
	} else if port == 0 {
		err = errors.Join(err, fmt.Errorf("cluster address %q: other nodes have to know the port", c.Listen))
	}
	for _, a := range c.Join {
		if _, _, e := splitAddress(a); e != nil {
			err = errors.Join(err, fmt.Errorf("address of a node to join: %w", e))
		}
	}
	if n := len(c.others()); n < c.Size-1 {
		err = errors.Join(err, fmt.Errorf("a cluster of %d nodes needs the addresses of all others to join, and has %d", c.Size, n))
	}
	return errors.Join(err, c.checkTLS())
}

func (c *ClusterOptions) checkTLS() error {
	t := c.TLS
	switch {
	case t == nil:
		for _, a := range append([]string{c.Listen}, c.Join...) {
			if host, _, err := net.SplitHostPort(a); err == nil && !isLoopback(host) {
				return fmt.Errorf("between nodes at %s there must be TLS", a)
			}
		}
	case len(t.Certificates) == 0 && t.GetCertificate == nil && t.GetConfigForClient == nil:
		return errors.New("TLS between nodes: there is no certificate")
	case t.ClientAuth != tls.RequireAndVerifyClientCert && t.GetConfigForClient == nil:
		return errors.New("TLS between nodes: the certificates of other nodes are not verified")
	case t.InsecureSkipVerify && t.VerifyConnection == nil:
		return errors.New("TLS between nodes: the certificates of other nodes are not verified")
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func splitAddress(a string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(a)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not host:port: %w", a, err)
	}
	port, err = strconv.Atoi(p)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("%q has no port", a)
	}
	return host, port, nil
}

// others are the addresses of other nodes.
func (c *ClusterOptions) others() (all []*url.URL) {
	seen := map[string]bool{c.Listen: true}
	for _, a := range c.Join {
		if !seen[a] {
			seen[a] = true
			all = append(all, &url.URL{Scheme: "nats-route", Host: a})
		}
	}
	return all
}

// A route on which nothing is heard is closed after three times this, and what
// waits on it goes another way, or fails.
const routePings = 2 * time.Second

// routeReports is which failure to reach another node is told after the first
// one. They come by the second.
const routeReports = 300

// configure sets the engine's options.
func (c *ClusterOptions) configure(so *server.Options) error {
	host, port, err := splitAddress(c.Listen)
	if err != nil {
		return err
	}
	so.DontListen = false
	so.Host, so.Port = "127.0.0.1", server.RANDOM_PORT
	so.Routes = c.others()
	so.ConnectErrorReports, so.ReconnectErrorReports = routeReports, routeReports
	so.Cluster = server.ClusterOpts{
		Name: c.Name, Host: host, Port: port,
		TLSConfig: c.TLS, TLSTimeout: 5,
		PoolSize: 3, PinnedAccounts: []string{peerAccount},
		Compression:  server.CompressionOpts{Mode: server.CompressionOff},
		NoAdvertise:  true,
		PingInterval: routePings, MaxPingsOut: 2,
	}
	return nil
}
