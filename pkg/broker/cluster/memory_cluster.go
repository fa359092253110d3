package cluster

import (
	"context"
	"slices"
	"strings"
	"sync"
)

// MemoryCluster is a cluster for tests: nodes that share one [Memory], each with
// a view of its own that the test sets.
type MemoryCluster struct {
	*Memory

	mu    sync.Mutex
	nodes []*MemoryPeers // by name
	start uint64
	cut   map[[2]string]bool // pairs that don't hear each other
}

// NewMemoryCluster makes one without nodes.
func NewMemoryCluster(o MemoryOptions) *MemoryCluster {
	return &MemoryCluster{Memory: NewMemory(o), cut: make(map[[2]string]bool)}
}

// MemoryPeers is a node of a [MemoryCluster]: a [Peers].
type MemoryPeers struct {
	c     *MemoryCluster
	name  string
	start uint64
	size  int

	answers  map[string]func(string, []byte) []byte
	hearers  map[string]func(string, []byte)
	watchers map[*func(View)]struct{}
	casts    dispatcher
	changes  dispatcher
	working  sync.WaitGroup
}

// Join adds a node to a cluster that has size of them in the end. All nodes see
// it at once.
func (c *MemoryCluster) Join(name string, size int) *MemoryPeers {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start++
	p := &MemoryPeers{
		c: c, name: name, start: c.start, size: size,
		answers:  make(map[string]func(string, []byte) []byte),
		hearers:  make(map[string]func(string, []byte)),
		watchers: make(map[*func(View)]struct{}),
	}
	p.casts.start()
	p.changes.start()
	i, _ := slices.BinarySearchFunc(c.nodes, name, func(n *MemoryPeers, name string) int { return strings.Compare(n.name, name) })
	c.nodes = slices.Insert(c.nodes, i, p)
	c.changed()
	return p
}

// Leave takes a node out, as if it had been silent for long.
func (c *MemoryCluster) Leave(p *MemoryPeers) {
	c.mu.Lock()
	c.nodes = slices.DeleteFunc(c.nodes, func(n *MemoryPeers) bool { return n == p })
	c.changed()
	c.mu.Unlock()
	p.casts.stop()
	p.changes.stop()
	p.working.Wait()
}

// Cut lets two nodes not hear each other, or hear each other again. The store is
// the same for both nevertheless.
func (c *MemoryCluster) Cut(a, b string, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut[pair(a, b)] = cut
	c.changed()
}

func pair(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

// changed tells all who watch; c.mu is held.
func (c *MemoryCluster) changed() {
	for _, n := range c.nodes {
		v := n.view()
		for f := range n.watchers {
			n.changes.add(func() { (*f)(v) })
		}
	}
}

// reaches says whether p hears another node; c.mu is held.
func (p *MemoryPeers) reaches(n *MemoryPeers) bool { return !p.c.cut[pair(p.name, n.name)] }

// view is View; c.mu is held.
func (p *MemoryPeers) view() View {
	v := View{Size: p.size}
	for _, n := range p.c.nodes {
		if n == p || p.reaches(n) {
			v.Nodes = append(v.Nodes, Node{Name: n.name, Start: n.start, Heard: true})
		}
	}
	v.Quorum = len(v.Nodes) > p.size/2
	return v
}

func (p *MemoryPeers) Node() string { return p.name }

func (p *MemoryPeers) View() View {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.view()
}

func (p *MemoryPeers) Quorum() bool { return p.View().Quorum }

func (p *MemoryPeers) Watch(ctx context.Context, f func(View)) {
	p.c.mu.Lock()
	p.watchers[&f] = struct{}{}
	v := p.view()
	p.changes.add(func() { f(v) })
	p.c.mu.Unlock()
	<-ctx.Done()
	p.c.mu.Lock()
	delete(p.watchers, &f)
	p.c.mu.Unlock()
}

func (p *MemoryPeers) Ask(ctx context.Context, node, kind string, body []byte) ([]byte, error) {
	p.c.mu.Lock()
	var f func(string, []byte) []byte
	var to *MemoryPeers
	silent := false
	for _, n := range p.c.nodes {
		if n.name == node {
			to, f, silent = n, n.answers[kind], !p.reaches(n)
		}
	}
	if !slices.Contains(p.c.nodes, p) { // it has left
		f, silent = nil, false
	}
	if f == nil && !silent {
		p.c.mu.Unlock()
		return nil, ErrNoNode
	}
	answer := make(chan []byte, 1)
	if !silent {
		to.working.Go(func() { answer <- f(p.name, slices.Clone(body)) })
	}
	p.c.mu.Unlock()
	select {
	case b := <-answer:
		return b, nil
	case <-ctx.Done():
		return nil, unavailable(ctx, ctx.Err())
	}
}

func (p *MemoryPeers) Answer(kind string, f func(string, []byte) []byte) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.answers[kind] = f
}

func (p *MemoryPeers) Cast(kind string, body []byte) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	for _, n := range p.c.nodes {
		if f := n.hearers[kind]; f != nil && n != p && p.reaches(n) {
			body := slices.Clone(body)
			n.casts.add(func() { f(p.name, body) })
		}
	}
}

func (p *MemoryPeers) Hear(kind string, f func(string, []byte)) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.hearers[kind] = f
}

var _ Peers = (*MemoryPeers)(nil)
