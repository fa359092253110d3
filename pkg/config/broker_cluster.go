package config

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// Cluster is what makes a broker one of several nodes.
type Cluster struct {
	// Name is the same on all nodes. A node of another name is not let in.
	Name string `key:"name" default:"brokers" is:"name"`
	// Size is how many nodes there are in the end, whether they run or not: more
	// than half of them must, or nothing is acknowledged.
	Size   int    `key:"size" default:"3" min:"3" max:"5"`
	Listen string `key:"listen" default:":6222" is:"listen"` // for the other nodes
	// Join holds where nodes listen, this one's own address among them or not.
	// Never empty.
	Join []string `key:"join" is:"dial"`
	// TLS is nil only where Listen and all of Join are loopback addresses.
	TLS *ClusterTLS `key:"tls"`
}

// ClusterTLS is how nodes know each other: both sides of a connection show a
// certificate, and ask for one of the same authorities.
type ClusterTLS struct {
	Certificate string `key:"certificate" required:"true" is:"file"` // leaf first, then intermediates
	Key         string `key:"key" required:"true" is:"file"`
	CA          string `key:"ca" required:"true" is:"file"`
}

// Join is what a command line says in place of cluster.join.
func Join(addresses []string) Override {
	return Override{From: "flag --join", Path: []string{"cluster", "join"}, Values: addresses}
}

func (c *checker) cluster(b *Broker) {
	const key = "cluster"
	if !c.given("node.name") {
		c.report("node.name", &fault{"is missing, but a node of a cluster needs a name that no other has", `write e.g. "broker-1", and keep it as long as the data`})
	}
	n := b.Cluster
	c.plainName(b.Node.Name, "node.name")
	c.plainName(n.Name, key+".name")
	if n.Size == 4 {
		c.report(key+".size", &fault{"4 nodes bear the loss of one, as 3 do", "write 3, or 5 to bear the loss of two"})
	}
	switch {
	case n.Listen == "":
		c.report(key+".listen", &fault{"is empty, but the other nodes connect here", "write " + strings.ReplaceAll(listenExample, "1883", "6222")})
	case portOf(n.Listen) == "0":
		c.report(key+".listen", &fault{"port 0 is another one at each start, and the other nodes could not know it", `write e.g. ":6222"`})
	}
	c.join(n, key+".join")
	if n.TLS != nil {
		return
	}
	for i, address := range append([]string{n.Listen}, n.Join...) {
		if isLoopback(address) || address == "" {
			continue
		}
		where := "listen"
		if i > 0 {
			where = fmt.Sprintf("join[%d]", i-1)
		}
		c.report(key+".tls", &fault{
			fmt.Sprintf("is missing, but %s (%s) can be reached by other machines, and whoever gets in as a node reads and writes everything", where, address),
			"add tls with certificate, key and ca, or use addresses of 127.0.0.0/8 alone",
		})
		break
	}
}

// join: with nobody to ask, a node would wait for the others for ever.
func (c *checker) join(n *Cluster, key string) {
	others := 0
	for _, address := range n.Join {
		if address != n.Listen {
			others++
		}
	}
	switch {
	case len(n.Join) == 0:
		c.report(key, &fault{"is missing, and so this node finds no other", "list where all nodes listen, the same list on each, or use --join"})
	case !c.bad["cluster.size"] && others < n.Size-1:
		c.report(key, &fault{fmt.Sprintf("names %d of the %d other nodes", others, n.Size-1), "list where all nodes listen, the same list on each"})
	}
}

// plainName: names of nodes and clusters are parts of what the store calls its
// own.
func (c *checker) plainName(name, key string) {
	const most = 64
	switch i := strings.IndexAny(name, ":@"); {
	case len(name) > most:
		c.report(key, &fault{fmt.Sprintf("is %d letters long, too long for a cluster", len(name)), fmt.Sprintf("use at most %d", most)})
	case i >= 0:
		c.report(key, &fault{fmt.Sprintf("holds %q, which a name in a cluster can't have", name[i]), "use letters, digits and . _ -"})
	}
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// isLoopback says that nobody on another machine can reach the address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || strings.EqualFold(strings.TrimSuffix(host, "."), "localhost")
}
