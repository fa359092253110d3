package main

import (
	"slices"
	"strings"

	"github.com/mqttlb/mqttlb/pkg/admin/brokeradmin"
	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/config"
)

// seen is a cluster as the API shows it.
func seen(cfg *config.Cluster, st cluster.Status) brokeradmin.Seen {
	out := brokeradmin.Seen{Cluster: cfg.Name, Size: cfg.Size, Copies: min(cfg.Size, 3), Quorum: st.Quorum, Leader: st.Leader}
	for _, n := range st.Nodes {
		out.Nodes = append(out.Nodes, brokeradmin.Node{Name: n.Name, Heard: n.Heard, Start: n.Start})
	}
	find := func(name string) *brokeradmin.Node {
		i := slices.IndexFunc(out.Nodes, func(n brokeradmin.Node) bool { return n.Name == name })
		if i < 0 { // lost for long: only who led it knows of it
			out.Nodes = append(out.Nodes, brokeradmin.Node{Name: name})
			i = len(out.Nodes) - 1
		}
		return &out.Nodes[i]
	}
	for _, from := range st.Streams {
		to := brokeradmin.Stream{Name: streamName(from.Name), Leader: from.Leader, Replicas: []brokeradmin.Replica{}}
		there := 0
		if from.Leader != "" {
			find(from.Leader).Leads++
			there++
		}
		for _, r := range from.Replicas {
			find(r.Node)
			if !r.Offline {
				there++
			}
			to.Replicas = append(to.Replicas, brokeradmin.Replica{Node: r.Node, Current: r.Current, Offline: r.Offline, Lag: r.Lag, Silent: r.Silent})
		}
		to.Quorum = from.Leader != "" && 2*there > len(from.Replicas)+1
		out.Streams = append(out.Streams, to)
	}
	slices.SortFunc(out.Nodes, func(a, b brokeradmin.Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// streamName is what people call what the engine knows by a name of its own.
func streamName(name string) string {
	if shard, ok := strings.CutPrefix(name, "MQ_MSG_"); ok {
		return "log " + shard
	}
	known := map[string]string{
		"MQ_RET": "retained", "KV_MQ_SESS": "sessions", "KV_MQ_Q2": "QoS 2", "KV_MQ_SHARE": "shares",
	}
	if known[name] != "" {
		return known[name]
	}
	return name
}
