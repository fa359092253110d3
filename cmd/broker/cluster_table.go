package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/mqttlb/mqttlb/cmd/internal/command"
	"github.com/mqttlb/mqttlb/pkg/admin/brokeradmin"
)

// statusTable is a cluster at a glance: the verdict, what is to be done, the
// nodes, and who holds what.
func statusTable(s brokeradmin.Status) string {
	var b strings.Builder
	what := "single node " + s.Node
	if s.Cluster != "" {
		what = fmt.Sprintf("cluster %s of %s, asked %s", s.Cluster, command.Count(s.Size, "node"), s.Node)
	}
	fmt.Fprintf(&b, "%s: %s\n", what, strings.ToUpper(string(s.Health)))
	for _, p := range s.Problems {
		fmt.Fprintf(&b, "  - %s\n", p)
	}
	b.WriteString("\n")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tSTATE\tLEADS\tCLIENTS")
	for _, n := range s.Nodes {
		state, clients, leads := "up", "", fmt.Sprint(n.Leads)
		if !n.Heard {
			state, leads = "LOST", "-"
		}
		if n.Name == s.Node { // of others it does not know
			if clients = "takes them"; !s.Ready {
				clients = "refuses: " + strings.Join(s.Reasons, ", ")
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", n.Name, state, leads, clients)
	}
	_ = t.Flush()
	if len(s.Streams) == 0 {
		return trimLines(b.String())
	}
	fmt.Fprintln(t, "\nSTREAM\tLEADER\tREPLICAS")
	for _, st := range s.Streams {
		leader := st.Leader
		if leader == "" {
			leader = "NONE"
		}
		var replicas []string
		for _, r := range st.Replicas {
			replicas = append(replicas, r.Node+" "+replicaState(r, s.Hears(r.Node)))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", st.Name, leader, strings.Join(replicas, ", "))
	}
	_ = t.Flush()
	return trimLines(b.String())
}

// replicaState is a replica's in a word. What the leader last knew of a node that
// is lost is not what counts.
func replicaState(r brokeradmin.Replica, heard bool) string {
	switch {
	case !heard:
		return "LOST"
	case r.Offline:
		return "OFFLINE"
	case r.Current && r.Lag == 0:
		return "ok"
	case r.Current:
		return fmt.Sprintf("ok (%d behind)", r.Lag)
	default:
		return fmt.Sprintf("BEHIND by %d", r.Lag)
	}
}

// trimLines takes off the spaces that tabwriter leaves behind empty cells.
func trimLines(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}
