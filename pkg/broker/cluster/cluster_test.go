package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// testCluster is a cluster whose nodes are in this process.
type testCluster struct {
	t     testing.TB
	o     Options // of each, besides what a node has for itself
	dir   string
	addrs []string
	tls   func(i int) *tls.Config // nil: none

	mu    sync.Mutex
	nodes map[string]*JetStream
	all   map[string]*JetStream // closed ones, too
}

func nodeName(i int) string { return fmt.Sprint("node-", i) }

// newTestCluster starts a cluster of three.
func newTestCluster(t testing.TB, o Options) *testCluster {
	t.Helper()
	c := &testCluster{t: t, o: o, dir: t.TempDir(), addrs: freeAddresses(t, 4)}
	c.init()
	c.start(0, 1, 2)
	t.Cleanup(c.close)
	return c
}

func (c *testCluster) init() {
	c.nodes, c.all = make(map[string]*JetStream), make(map[string]*JetStream)
	if c.o.Log == nil {
		c.o.Log = slog.New(slog.DiscardHandler)
	}
}

// freeAddresses are loopback addresses that nobody listens on.
func freeAddresses(t testing.TB, n int) (addrs []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

func (c *testCluster) options(i int) Options {
	o := c.o
	o.Node, o.Dir = nodeName(i), filepath.Join(c.dir, nodeName(i))
	join := c.addrs[:3]
	if i >= 3 {
		join = c.addrs
	}
	o.Cluster = &ClusterOptions{Name: "test", Size: 3, Listen: c.addrs[i], Join: join}
	if c.tls != nil {
		o.Cluster.TLS = c.tls(i)
	}
	return o
}

// start starts nodes, all at once, and waits until they are there.
func (c *testCluster) start(nodes ...int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	var opening sync.WaitGroup
	for _, i := range nodes {
		opening.Go(func() {
			s, err := OpenJetStream(ctx, c.options(i))
			if err != nil {
				c.t.Errorf("%s: %v", nodeName(i), err)
				return
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.nodes[nodeName(i)], c.all[nodeName(i)] = s, s
		})
	}
	opening.Wait()
	if c.t.Failed() {
		c.close()
		c.t.FailNow()
	}
}

func (c *testCluster) node(i int) *JetStream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[nodeName(i)]
}

// nodeAnyway is node, though it may be closed.
func (c *testCluster) nodeAnyway(i int) *JetStream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[nodeName(i)]
}

// stop closes a node.
func (c *testCluster) stop(i int) {
	c.t.Helper()
	c.mu.Lock()
	s := c.nodes[nodeName(i)]
	delete(c.nodes, nodeName(i))
	c.mu.Unlock()
	if s != nil {
		if err := s.Close(); err != nil {
			c.t.Error(err)
		}
	}
}

// drop ends a node's engine without a word to anybody.
func (c *testCluster) drop(i int) {
	c.node(i).engine.server.Shutdown()
}

func (c *testCluster) close() {
	c.mu.Lock()
	all := c.nodes
	c.nodes = make(map[string]*JetStream)
	c.mu.Unlock()
	var closing sync.WaitGroup
	for _, s := range all {
		closing.Go(func() {
			if err := s.Close(); err != nil {
				c.t.Error(err)
			}
		})
	}
	closing.Wait()
}

// await waits until something is so.
func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(2 * patience)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, 2*patience)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestClusterWrites(t *testing.T) {
	c := newTestCluster(t, Options{Durability: EachSecond, Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))})
	for i := range 3 {
		p := appendOne(t, c.node(i), message("t", i))
		for j := range 3 {
			if m, err := c.node(j).Get(t.Context(), p); err != nil || string(m.Payload) != fmt.Sprint(i) {
				t.Errorf("%s, written by %s: %v, %v", nodeName(j), nodeName(i), m, err)
			}
		}
		rev := mustPut(t, c.node(i).Records(Sessions), "k", fmt.Sprint(i), Any)
		for j := range 3 {
			if r, err := c.node(j).Records(Sessions).Get(t.Context(), "k"); err != nil || r.Revision != rev {
				t.Errorf("%s, written by %s: %v, %v", nodeName(j), nodeName(i), r, err)
			}
		}
	}
	for i := range 3 {
		if got := drain(t, c.node(i), 0, 0); len(got) != 3 {
			t.Errorf("%s has %d messages", nodeName(i), len(got))
		}
	}
}
