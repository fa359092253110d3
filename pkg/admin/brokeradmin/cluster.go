package brokeradmin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Health is a cluster's in one word.
type Health string

const (
	// Healthy: all nodes are there and hold all that they should.
	Healthy Health = "healthy"
	// Degraded: it works, and bears fewer losses than it should.
	Degraded Health = "degraded"
	// NoQuorum: nothing is acknowledged where this was asked.
	NoQuorum Health = "no quorum"
)

// Seen is a cluster as one of its nodes sees it.
type Seen struct {
	Cluster string   `json:"cluster,omitempty"`
	Size    int      `json:"size"`   // nodes that it has when all are there
	Copies  int      `json:"copies"` // nodes that each stream is to be on
	Quorum  bool     `json:"quorum"`
	Leader  string   `json:"leader,omitempty"` // of the cluster itself
	Nodes   []Node   `json:"nodes"`            // those that are known, by name
	Streams []Stream `json:"streams"`          // what they hold
}

// Node is one node.
type Node struct {
	Name string `json:"name"`
	// Heard says that it was heard from just now.
	Heard bool `json:"heard"`
	// Start tells one start of the node from another; 0 when it is not there.
	Start uint64 `json:"start,omitempty"`
	// Leads is how many streams it leads.
	Leads int `json:"leads"`
}

// Stream is a part of what the cluster holds, and who holds it.
type Stream struct {
	Name     string    `json:"name"`
	Leader   string    `json:"leader"` // empty: none is elected
	Quorum   bool      `json:"quorum"`
	Replicas []Replica `json:"replicas"` // the leader's own left out
}

// Replica is a stream on a node that does not lead it.
type Replica struct {
	Node    string        `json:"node"`
	Current bool          `json:"current"`
	Offline bool          `json:"offline,omitempty"`
	Lag     uint64        `json:"lag"`                 // entries behind the leader
	Silent  time.Duration `json:"silent_ns,omitempty"` // since the leader heard of it
}

// Status is the answer of /api/v1/cluster.
type Status struct {
	Node     string   `json:"node"` // which was asked
	Health   Health   `json:"health"`
	Problems []string `json:"problems"` // why it is not healthy
	Ready    bool     `json:"ready"`    // that node, for clients
	Reasons  []string `json:"reasons"`  // why not
	Seen
}

func (a *API) cluster(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), apiTimeout)
	defer cancel()
	ready := a.Ready.Report()
	s := Status{Node: ready.Node, Ready: ready.Ready, Reasons: ready.Reasons}
	if a.Cluster == nil {
		s.Seen = Seen{Size: 1, Copies: 1, Quorum: true, Nodes: []Node{{Name: ready.Node, Heard: true}}}
	} else {
		seen, err := a.Cluster.Status(ctx)
		if err != nil {
			refuse(w, http.StatusServiceUnavailable, fmt.Errorf("ask the cluster: %w", err))
			return
		}
		s.Seen = seen
	}
	s.judge()
	answer(w, s)
}

// judge finds what an operator has to know, the worst first, and leaves no list
// nil: each is an array in JSON.
func (s *Status) judge() {
	s.Health = Healthy
	problem := func(format string, args ...any) {
		s.Problems = append(s.Problems, fmt.Sprintf(format, args...))
		if s.Health == Healthy {
			s.Health = Degraded
		}
	}
	heard := 0
	for i := range s.Nodes {
		if s.Nodes[i].Heard {
			heard++
		}
	}
	if !s.Quorum {
		s.Health = NoQuorum
		problem("%d of %d nodes are heard here, which is no majority: nothing is acknowledged on this side", heard, s.Size)
	}
	for _, n := range s.Nodes {
		if !n.Heard {
			problem("%s is not heard from: start it again, or remove it if it is lost for good", n.Name)
		}
	}
	if missing := s.Size - len(s.Nodes); missing > 0 {
		problem("%d of %d nodes are missing: start them", missing, s.Size)
	}
	if s.Quorum && s.Cluster != "" && s.Leader == "" {
		problem("the cluster has no leader: an election is under way")
	}
	for _, st := range s.Streams {
		s.judgeStream(st, problem)
	}
	if !s.Ready && s.Quorum { // without one, that is why
		for _, why := range s.Reasons {
			problem("%s takes no clients: %s", s.Node, why)
		}
	}
	if s.Problems == nil {
		s.Problems = []string{}
	}
	if s.Reasons == nil {
		s.Reasons = []string{}
	}
	if s.Streams == nil {
		s.Streams = []Stream{}
	}
}

// Hears says whether a node is heard from.
func (s *Seen) Hears(node string) bool {
	return slices.ContainsFunc(s.Nodes, func(n Node) bool { return n.Name == node && n.Heard })
}

func (s *Status) judgeStream(st Stream, problem func(string, ...any)) {
	switch {
	case st.Leader == "":
		problem("%s has no leader: an election is under way, or there is no majority", st.Name)
	case !st.Quorum:
		problem("%s has no majority of its replicas", st.Name)
	case len(st.Replicas)+1 < s.Copies:
		problem("%s is on %d nodes, and should be on %d", st.Name, len(st.Replicas)+1, s.Copies)
	}
	for _, r := range st.Replicas {
		switch {
		case !s.Hears(r.Node): // told once, for the node
		case r.Offline:
			problem("%s on %s is offline", st.Name, r.Node)
		case !r.Current:
			problem("%s on %s is %d behind and catches up", st.Name, r.Node, r.Lag)
		}
	}
}
