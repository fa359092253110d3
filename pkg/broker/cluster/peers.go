package cluster

import (
	"context"
	"errors"
	"slices"
	"time"
)

const (
	// PresumedLost is how long a node may be silent before others take over what
	// it holds.
	PresumedLost = 5 * time.Second
	// QuorumPatience is how long a node counts another one as there that it does
	// not hear from.
	QuorumPatience = 2 * time.Second
)

// ErrNoNode is a question to a node that nobody can reach.
var ErrNoNode = errors.New("there is no such node")

// Peers are the nodes of a cluster as one of them sees the others, and the way
// to talk to them. What matters must not rest on it: two nodes may see different
// things, and a node that seems lost may be at work. Who owns what is decided by
// compare-and-swap in the [Store].
//
// It is safe for concurrent use. Functions that are handed in are called from
// goroutines of its own, and all have returned when Close has.
type Peers interface {
	// Node is this node's name.
	Node() string
	// View is how things are now, and Quorum a part of it.
	View() View
	Quorum() bool
	// Watch calls f with the view, now and whenever it changes, until ctx ends.
	Watch(ctx context.Context, f func(View))

	// Ask puts a question to another node and waits for the answer, until ctx
	// ends: [ErrUnavailable]. [ErrNoNode], at once, says that nobody is there.
	Ask(ctx context.Context, node, kind string, body []byte) ([]byte, error)
	// Answer sets the function that answers questions of a kind; each call has a
	// goroutine of its own. Before it is set there is nobody.
	Answer(kind string, f func(from string, body []byte) []byte)

	// Cast sends to all other nodes. What one node casts arrives in order; it
	// may not arrive.
	Cast(kind string, body []byte)
	// Hear sets the function that takes what others cast, one at a time.
	Hear(kind string, f func(from string, body []byte))
}

// View is what a node sees of its cluster.
type View struct {
	// Nodes are those that were heard from within [PresumedLost], this one among
	// them, by name.
	Nodes []Node
	// Size is how many nodes the cluster has, whether they can be reached or not.
	Size int
	// Quorum says that more than half of Size, this one among them, were heard
	// from within [QuorumPatience].
	Quorum bool
}

// Node is one start of a node: it has another Start each time.
type Node struct {
	Name  string
	Start uint64
	// Heard says that it was heard from within [QuorumPatience].
	Heard bool
}

// Has says whether a node is in the view.
func (v View) Has(name string) bool { return v.find(name) >= 0 }

// Hears says whether a node was heard from within [QuorumPatience].
func (v View) Hears(name string) bool {
	i := v.find(name)
	return i >= 0 && v.Nodes[i].Heard
}

// Start gives which start of a node is in the view; 0 if none is.
func (v View) Start(name string) uint64 {
	if i := v.find(name); i >= 0 {
		return v.Nodes[i].Start
	}
	return 0
}

func (v View) find(name string) int {
	return slices.IndexFunc(v.Nodes, func(n Node) bool { return n.Name == name })
}
