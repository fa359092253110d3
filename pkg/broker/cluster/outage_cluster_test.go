package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// What was confirmed is there when all nodes stop and start at once.
func TestAllNodesRestartAtOnce(t *testing.T) {
	c := newTestCluster(t, Options{Durability: EachSecond, Shards: 2, Deadline: patience})
	var ms []*Message
	for i := range 200 {
		ms = append(ms, message("kept", i))
	}
	ps := appendMany(t, c.node(0), ms...)
	named := &Message{Topic: "kept", QoS: 2, Payload: []byte("named"), DedupID: "d"}
	at := appendOne(t, c.node(1), named)
	rev := mustPut(t, c.node(2).Records(Sessions), "k", "v", None)
	setRetained(t, c.node(0), &Message{Topic: "r", Retain: true, Payload: []byte("x")})
	starts := c.node(0).Peers().View()
	c.close()

	c.start(0, 1, 2)
	for i := range 3 {
		all := drain(t, c.node(i), ps[0].Shard, 0)
		if len(all) != len(ps)+1 {
			t.Fatalf("%s has %d messages of %d", nodeName(i), len(all), len(ps)+1)
		}
		for j, p := range ps {
			if all[j].pos != p || string(all[j].m.Payload) != fmt.Sprint(j) {
				t.Fatalf("%s, message %d: %s at %v, was at %v", nodeName(i), j, all[j].m.Payload, all[j].pos, p)
			}
		}
		if r, err := c.node(i).Records(Sessions).Get(t.Context(), "k"); err != nil || r.Revision != rev {
			t.Errorf("%s: %+v, %v", nodeName(i), r, err)
		}
		if again := appendOne(t, c.node(i), named); again != at {
			t.Errorf("%s: a DedupID of before: %v, was %v", nodeName(i), again, at)
		}
		if got := retained0(t, c.node(i)); got["r"] == nil {
			t.Errorf("%s: retained: %v", nodeName(i), got)
		}
		if v := c.node(i).Peers().View(); v.Start(nodeName(0)) <= starts.Start(nodeName(0)) {
			t.Errorf("%s: started at %d, before at %d", nodeName(i), v.Start(nodeName(0)), starts.Start(nodeName(0)))
		}
	}
}

// Nodes stop and start while all write: a writer whose node is there sees no
// failure, since leaders are handed over.
func TestNodesStopInOrderWhileWriting(t *testing.T) {
	c := newTestCluster(t, Options{Durability: EachSecond, Deadline: patience})
	var written [3]atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	var writing sync.WaitGroup
	write := func(ctx context.Context, i int) {
		s := c.node(i)
		from := written[i].Load()
		writing.Go(func() {
			for n := from; ctx.Err() == nil; n++ {
				done := make(chan error, 1)
				s.Append(message(nodeName(i), int(n)), func(_ Pos, err error) { done <- err })
				if err := <-done; err != nil {
					t.Errorf("%s, message %d: %v", nodeName(i), n, err)
					return
				}
				written[i].Add(1)
			}
		})
	}
	more := func(of ...int) {
		t.Helper()
		for _, i := range of {
			was := written[i].Load()
			await(t, nodeName(i)+" goes on", func() bool { return written[i].Load() > was+50 })
		}
	}
	for i := range 2 {
		write(ctx, i)
	}
	// Readers move along: how long the longest pause is, is told.
	var last, pause atomic.Int64
	run(t, func(ctx context.Context) error {
		return c.node(0).Tail(ctx, 0, 0, func(Pos, *Message) {
			now := time.Now().UnixNano()
			if was := last.Swap(now); was > 0 {
				pause.Store(max(pause.Load(), now-was))
			}
		}, nil)
	})
	// One that nobody writes to stops and starts; then others take turns.
	more(0, 1)
	begun := time.Now()
	if err := c.node(0).StepDown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.node(1).StepDown(t.Context()); err != nil {
		t.Error(err)
	}
	c.stop(2)
	more(0, 1)
	t.Logf("a node stopped and others went on within %v", time.Since(begun).Round(time.Millisecond))
	c.start(2)
	more(0, 1)
	cancel()
	writing.Wait()
	t.Logf("a reader's longest pause: %v", time.Duration(pause.Load()).Round(time.Millisecond))
	next := map[string]int{}
	for _, got := range drain(t, c.node(2), 0, 0) {
		if string(got.m.Payload) != fmt.Sprint(next[got.m.Topic]) {
			t.Fatalf("%s: message %s where %d was due", got.m.Topic, got.m.Payload, next[got.m.Topic])
		}
		next[got.m.Topic]++
	}
	for i := range 2 {
		if next[nodeName(i)] != int(written[i].Load()) {
			t.Errorf("%s: %d messages, %d acknowledged", nodeName(i), next[nodeName(i)], written[i].Load())
		}
	}
}

// A node without a quorum confirms nothing and says so in time, and goes on when
// it has one again.
func TestAMinorityIsUnavailable(t *testing.T) {
	c := newTestCluster(t, Options{Durability: EachSecond})
	s := c.node(0)
	appendOne(t, s, message("t", 0))
	mustPut(t, s.Records(Sessions), "k", "v", None)
	setRetained(t, s, &Message{Topic: "r", Retain: true, Payload: []byte("x")})
	c.drop(2)
	c.drop(1)
	dropped := time.Now()
	await(t, "the quorum is lost", func() bool { return !s.Peers().View().Quorum })
	t.Logf("no quorum %v after the end of the last other node", time.Since(dropped).Round(time.Millisecond))
	c.stop(2)
	c.stop(1)

	begun := time.Now()
	done := make(chan error, 4)
	s.Append(message("t", 1), func(_ Pos, err error) { done <- err })
	s.SetRetained(&Message{Topic: "r", Payload: []byte("y")}, func(_ Revision, err error) { done <- err })
	s.Records(Sessions).Put("k", []byte("w"), Any, func(_ Revision, err error) { done <- err })
	s.Records(Shares).Put("k", []byte("w"), None, func(_ Revision, err error) { done <- err })
	for range cap(done) {
		if err := wait(t, done, "done"); !errors.Is(err, ErrUnavailable) {
			t.Errorf("a write without a quorum: %v", err)
		}
	}
	t.Logf("writes failed within %v", time.Since(begun).Round(time.Millisecond))
	begun = time.Now()
	if r, err := s.Records(Sessions).Get(t.Context(), "k"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("a record without a quorum: %+v, %v", r, err)
	}
	t.Logf("a read failed within %v", time.Since(begun).Round(time.Millisecond))
	if err := s.SyncRetained(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("a sync without a quorum: %v", err)
	}
	if err := s.Remove(t.Context(), nodeName(2)); err == nil {
		t.Error("without a quorum, a node is removed")
	}
	if st, err := s.Status(t.Context()); err != nil || st.Quorum || st.Ready(s.o.Node) {
		t.Errorf("%+v, %v", st, err)
	}

	c.start(1)
	await(t, "writes go on", func() bool {
		s.Append(message("t", 2), func(_ Pos, err error) { done <- err })
		return wait(t, done, "done") == nil
	})
	if r, err := s.Records(Sessions).Get(t.Context(), "k"); err != nil || len(r.Value) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	got := map[string]int{}
	for _, m := range drain(t, c.node(1), 0, 0) {
		got[string(m.m.Payload)]++
	}
	if got["0"] != 1 || got["1"] > 1 || got["2"] < 1 {
		t.Errorf("there are %v", got)
	}
}

// After a sync on any node, what was confirmed on another one is told there.
func TestSyncRetainedReachesOtherNodes(t *testing.T) {
	c := newTestCluster(t, Options{Durability: EachSecond, Deadline: patience})
	var told [3]atomic.Int64
	for i := range told {
		run(t, func(ctx context.Context) error {
			return c.node(i).Retained(ctx, func(m *Message, _ Revision) {
				n := int64(0)
				_, _ = fmt.Sscan(string(m.Payload), &n)
				told[i].Store(n)
			}, func() {})
		})
	}
	for n := range 150 {
		setRetained(t, c.node(n%3), &Message{Topic: fmt.Sprint("t/", n%7), Retain: true, Payload: fmt.Append(nil, n)})
		i := (n + 1 + n%2) % 3
		if err := c.node(i).SyncRetained(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := told[i].Load(); got < int64(n) {
			t.Errorf("%s has had %d after a sync behind %d", nodeName(i), got, n)
		}
	}
}

// What a node has confirmed, the next one reads.
func TestAWriteIsReadOnTheNextNode(t *testing.T) {
	c := newTestCluster(t, Options{Durability: EachSecond, Deadline: patience})
	rev := None
	for n := range 300 {
		rev = mustPut(t, c.node(n%3).Records(Sessions), "c/1", fmt.Sprint(n), rev)
		next := c.node((n + 1) % 3)
		if r, err := next.Records(Sessions).Get(t.Context(), "c/1"); err != nil || r.Revision != rev {
			t.Fatalf("revision %d: %+v, %v", rev, r, err)
		}
		found := Record{}
		if err := next.Records(Sessions).List(t.Context(), "c", func(r Record) { found = r }); err != nil || found.Revision != rev {
			t.Fatalf("revision %d: listed %+v, %v", rev, found, err)
		}
		p := appendOne(t, c.node(n%3), message("t", n))
		if m, err := next.Get(t.Context(), p); err != nil || string(m.Payload) != fmt.Sprint(n) {
			t.Fatalf("message %d: %v, %v", n, m, err)
		}
	}
}

func TestOperatingACluster(t *testing.T) {
	c := newTestCluster(t, Options{Durability: EachSecond, Deadline: patience})
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	status := func(i int) Status {
		t.Helper()
		st, err := c.node(i).Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	ready := func(want ...string) func() bool {
		return func() bool {
			st := status(0)
			for _, s := range st.Streams {
				has := s.Leader
				for _, r := range s.Replicas {
					has += " " + r.Node
				}
				for _, n := range want {
					if !strings.Contains(has, n) {
						return false
					}
				}
			}
			for _, n := range want {
				if !st.Ready(n) {
					return false
				}
			}
			return st.Leader != "" && len(st.Streams) == 5
		}
	}
	await(t, "the cluster is ready", ready(nodeName(0), nodeName(1), nodeName(2)))
	leads := func(i int) (n int) {
		st := status(0)
		if st.Leader == nodeName(i) {
			n++
		}
		for _, s := range st.Streams {
			if s.Leader == nodeName(i) {
				n++
			}
		}
		return n
	}
	for i := range 3 {
		if err := c.node(i).StepDown(ctx); err != nil {
			t.Fatal(err)
		}
		if n := leads(i); n > 0 {
			t.Errorf("%s still leads %d after it has stepped down", nodeName(i), n)
		}
	}
	if err := c.node(0).Remove(ctx, nodeName(2)); err == nil || errors.Is(err, ErrUnavailable) {
		t.Errorf("a node that is there is removed: %v", err)
	}
	if err := c.node(0).Remove(ctx, "nobody"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a node that never was is removed: %v", err)
	}
	// A node is lost and replaced.
	p := appendOne(t, c.node(2), message("t", 1))
	c.stop(2)
	await(t, "it is missed", func() bool { return !c.node(0).Peers().View().Has(nodeName(2)) })
	if err := c.node(0).Remove(ctx, nodeName(2)); err != nil {
		t.Fatal(err)
	}
	appendOne(t, c.node(1), message("t", 2))
	c.start(3)
	await(t, "the new one has everything", ready(nodeName(0), nodeName(1), nodeName(3)))
	c.stop(1)
	if m, err := c.node(3).Get(ctx, p); err != nil || string(m.Payload) != "1" {
		t.Errorf("%v, %v", m, err)
	}
	appendOne(t, c.node(3), message("t", 3))
	if got := drain(t, c.node(3), 0, 0); len(got) != 3 {
		t.Errorf("%d messages", len(got))
	}
}

func TestAFolderIsOfOneNodeOfOneCluster(t *testing.T) {
	dir := t.TempDir()
	s := openJetStream(t, Options{Dir: filepath.Join(dir, "single")})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(dir, "old") // of before there were markers
	s = openJetStream(t, Options{Dir: old})
	if err := errors.Join(s.Close(), os.Remove(filepath.Join(old, markerFile))); err != nil {
		t.Fatal(err)
	}
	node := filepath.Join(dir, "node")
	o := Options{Node: "a", Dir: node, Cluster: &ClusterOptions{
		Name: "one", Size: 3, Listen: "127.0.0.1:1", Join: []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"},
	}}
	if err := errors.Join(os.Mkdir(node, 0o700), mark(&o)); err != nil {
		t.Fatal(err)
	}
	with := func(change func(*Options)) Options {
		o, c := o, *o.Cluster
		o.Cluster = &c
		change(&o)
		return o
	}
	for want, o := range map[string]Options{
		"the store of a single node":            with(func(o *Options) { o.Dir = filepath.Join(dir, "single") }),
		"a single node, and can't be opened in": with(func(o *Options) { o.Dir = old }),
		"can't be opened without it":            {Dir: node},
		`in the cluster "two"`:                  with(func(o *Options) { o.Cluster.Name = "two" }),
		`can't be opened as node "b"`:           with(func(o *Options) { o.Node = "b" }),
	} {
		_, err := OpenJetStream(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "`broker export`") || !strings.Contains(err.Error(), "`broker import`") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for want, change := range map[string]func(*Options){
		"2 nodes":                     func(o *Options) { o.Cluster.Size = 2 },
		"cluster name":                func(o *Options) { o.Cluster.Name = "" },
		"node name":                   func(o *Options) { o.Node = "a b" },
		"has no port":                 func(o *Options) { o.Cluster.Listen = "127.0.0.1:x" },
		"have to know the port":       func(o *Options) { o.Cluster.Listen = "127.0.0.1:0" },
		"not host:port":               func(o *Options) { o.Cluster.Join = []string{"a", "b"} },
		"of all others to join":       func(o *Options) { o.Cluster.Join = o.Cluster.Join[:2] },
		"there must be TLS":           func(o *Options) { o.Cluster.Join = append(o.Cluster.Join[:2:2], "10.0.0.7:1") },
		"needs the addresses of all ": func(o *Options) { o.Cluster.Size = 5 },
	} {
		if _, err := OpenJetStream(t.Context(), with(change)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// A node that waits for others gives up with ctx.
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	alone := with(func(o *Options) { o.Cluster.Listen = freeAddresses(t, 1)[0] })
	if _, err := OpenJetStream(ctx, alone); !errors.Is(err, context.DeadlineExceeded) && (err == nil || !strings.Contains(err.Error(), "wait for other nodes")) {
		t.Errorf("a node alone: %v", err)
	}
}
