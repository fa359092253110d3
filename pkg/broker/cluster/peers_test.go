package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// peerCluster is a cluster as the test of Peers needs it.
type peerCluster struct {
	peers []Peers     // three, by name
	leave func(i int) // takes one out for good
	again func(i int) // and starts it anew; nil: it can't
	close func()
}

func TestMemoryPeers(t *testing.T) {
	testPeers(t, func(t *testing.T) *peerCluster {
		c := NewMemoryCluster(MemoryOptions{})
		pc := &peerCluster{}
		var nodes []*MemoryPeers
		for i := range 3 {
			p := c.Join(nodeName(i), 3)
			nodes = append(nodes, p)
			pc.peers = append(pc.peers, p)
		}
		left := map[int]bool{}
		pc.leave = func(i int) {
			left[i] = true
			c.Leave(nodes[i])
		}
		pc.again = func(i int) {
			left[i] = false
			nodes[i] = c.Join(nodeName(i), 3)
			pc.peers[i] = nodes[i]
		}
		pc.close = func() {
			for i, n := range nodes {
				if !left[i] {
					c.Leave(n)
				}
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		return pc
	})
}

func TestJetStreamPeers(t *testing.T) {
	testPeers(t, func(t *testing.T) *peerCluster {
		c := newTestCluster(t, Options{Durability: EachSecond})
		pc := &peerCluster{close: c.close}
		for i := range 3 {
			pc.peers = append(pc.peers, c.node(i).Peers())
		}
		pc.leave = c.stop
		pc.again = func(i int) {
			c.start(i)
			pc.peers[i] = c.node(i).Peers()
		}
		return pc
	})
}

func testPeers(t *testing.T, open func(*testing.T) *peerCluster) {
	c := open(t)
	defer c.close()
	var views [3]atomic.Pointer[View]
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watch := func(i int) {
		watching.Go(func() { c.peers[i].Watch(ctx, func(v View) { views[i].Store(&v) }) })
	}
	for i, p := range c.peers {
		if p.Node() != nodeName(i) {
			t.Errorf("node %d is %q", i, p.Node())
		}
		watch(i)
	}
	whole := func(v *View) bool {
		return v != nil && v.Size == 3 && v.Quorum && len(v.Nodes) == 3 && v.Nodes[0].Heard && v.Nodes[1].Heard && v.Nodes[2].Heard
	}
	for i := range 3 {
		await(t, "all nodes see all", func() bool { return whole(views[i].Load()) })
		v := c.peers[i].View()
		for j := range 3 {
			if v.Nodes[j].Name != nodeName(j) || v.Start(nodeName(j)) == 0 || v.Start(nodeName(j)) != c.peers[j].View().Start(nodeName(j)) {
				t.Errorf("%s sees %+v", nodeName(i), v)
			}
		}
		if v.Has("somebody") || v.Start("somebody") != 0 {
			t.Errorf("%s sees somebody", nodeName(i))
		}
	}
	t.Run("ask", func(t *testing.T) { testAsk(t, c.peers) })
	t.Run("cast", func(t *testing.T) { testCast(t, c.peers) })

	before := c.peers[0].View().Start(nodeName(2))
	c.leave(2)
	await(t, "a node is missed", func() bool {
		v := views[0].Load()
		return !v.Has(nodeName(2)) && v.Quorum
	})
	if _, err := c.peers[0].Ask(ctx, nodeName(2), "echo", nil); !errors.Is(err, ErrNoNode) {
		t.Errorf("a question to a node that is gone: %v", err)
	}
	c.again(2)
	watch(2)
	for i := range 3 {
		await(t, "it is there again", func() bool { return whole(views[i].Load()) })
	}
	if after := c.peers[0].View().Start(nodeName(2)); after == before || after == 0 {
		t.Errorf("start %d, was %d", after, before)
	}
	c.leave(1)
	c.leave(2)
	await(t, "there is no quorum", func() bool {
		v := views[0].Load()
		return !v.Quorum && len(v.Nodes) == 1
	})
	cancel()
	watching.Wait()
}

func testAsk(t *testing.T, peers []Peers) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := peers[0].Ask(ctx, nodeName(1), "echo", nil); !errors.Is(err, ErrNoNode) {
		t.Errorf("a question that nobody answers: %v", err)
	}
	if _, err := peers[0].Ask(ctx, "nobody.at=all", "echo", nil); !errors.Is(err, ErrNoNode) {
		t.Errorf("a question to nobody: %v", err)
	}
	hang := make(chan struct{})
	for i, p := range peers {
		p.Answer("echo", func(from string, body []byte) []byte {
			return fmt.Appendf(nil, "%s to %s: %s", from, nodeName(i), body)
		})
		p.Answer("hang", func(string, []byte) []byte { <-hang; return nil })
	}
	large := bytes.Repeat([]byte("x"), 100_000)
	var asking sync.WaitGroup
	for i := range peers {
		for j := range peers {
			asking.Go(func() {
				var got []byte
				var err error
				await(t, "an answer", func() bool { // the others learn of it in a moment
					got, err = peers[i].Ask(ctx, nodeName(j), "echo", large)
					return !errors.Is(err, ErrNoNode)
				})
				if want := fmt.Sprintf("%s to %s: %s", nodeName(i), nodeName(j), large); err != nil || string(got) != want {
					t.Errorf("%.60s, %v", got, err)
				}
			})
		}
	}
	asking.Wait()
	// One that hangs holds up no other.
	short, enough := context.WithCancel(ctx)
	hanging := make(chan error, 1)
	go func() { _, err := peers[0].Ask(short, nodeName(1), "hang", nil); hanging <- err }()
	if _, err := peers[0].Ask(ctx, nodeName(1), "echo", nil); err != nil {
		t.Error(err)
	}
	enough()
	if err := wait(t, hanging, "end of a question"); err == nil || errors.Is(err, ErrNoNode) {
		t.Errorf("a question that was given up: %v", err)
	}
	late, enough := context.WithTimeout(ctx, 50*time.Millisecond)
	defer enough()
	if _, err := peers[0].Ask(late, nodeName(1), "hang", nil); !errors.Is(err, ErrUnavailable) {
		t.Errorf("a question without an answer: %v", err)
	}
	close(hang)
}

func testCast(t *testing.T, peers []Peers) {
	const n = 500
	type heard struct {
		by   int
		from string
		body string
	}
	all := make(chan heard, 10*n)
	for i, p := range peers {
		p.Hear("news", func(from string, body []byte) { all <- heard{i, from, string(body)} })
		p.Hear("other", func(string, []byte) { t.Error("another kind is heard") })
	}
	// Until they know of each other, casts may be lost.
	ready := map[heard]bool{}
	await(t, "hearing", func() bool {
		for i, p := range peers {
			p.Cast("news", fmt.Append(nil, "first ", i))
		}
		for len(all) > 0 {
			ready[<-all] = true
		}
		return len(ready) == 6
	})
	var casting sync.WaitGroup
	for _, p := range peers {
		casting.Go(func() {
			for i := range n {
				p.Cast("news", fmt.Append(nil, i))
			}
		})
	}
	casting.Wait()
	next := map[[2]string]int{}
	for range 6 * n {
		h := wait(t, all, "news")
		for h.body[0] == 'f' {
			h = wait(t, all, "news")
		}
		key := [2]string{h.from, nodeName(h.by)}
		if h.body != fmt.Sprint(next[key]) || h.from == nodeName(h.by) {
			t.Fatalf("%v heard %q where %d was due", key, h.body, next[key])
		}
		next[key]++
	}
	if len(all) > 0 {
		t.Errorf("%d too many", len(all))
	}
}
