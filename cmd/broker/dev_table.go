package main

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

// table is what the user sees when the nodes are up: what listens where, and
// what to type.
func (d *dev) table(all []*devNode) string {
	var b strings.Builder
	b.WriteString("\n")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tCLIENTS\tHEALTH CHECK\tADMIN\tOTHER NODES\tCONFIGURATION\tDATA")
	for _, n := range all {
		nodes := n.nodes
		if nodes == "" {
			nodes = "-"
		}
		fmt.Fprintln(t, strings.Join([]string{n.name, n.clients, n.health, "http://" + n.admin, nodes, n.config, filepath.Clean(n.dir)}, "\t"))
	}
	t.Flush()
	first, last := all[0], all[len(all)-1]
	fmt.Fprintf(&b, `
Try it. In one terminal:

    mosquitto_sub -h 127.0.0.1 -p %s -t 'demo/#' -v -q 1

and in another:

    mosquitto_pub -h 127.0.0.1 -p %s -t demo/hello -m 'hello' -q 1
`, port(first.clients), port(last.clients))
	if len(all) > 1 {
		fmt.Fprintf(&b, `
How are the nodes?    broker cluster status --admin %s
Lose one:             kill -9 %d    (%s; what was acknowledged stays)
and start it again:   %s
`, first.admin, last.cmd.Process.Pid, last.name, last.again())
	}
	b.WriteString("\nCtrl-C ends all of it.\n")
	return b.String()
}

func port(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}
