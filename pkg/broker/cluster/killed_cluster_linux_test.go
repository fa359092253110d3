package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// runNode is the helper as one of three nodes: "<number> <address> …". It writes
// until its stdin ends.
func runNode(o Options, args string) (code int) {
	f := strings.Fields(args)
	i, _ := strconv.Atoi(f[0])
	addrs := f[1:]
	o.Node, o.Durability = nodeName(i), EachSecond
	o.Cluster = &ClusterOptions{Name: "test", Size: 3, Listen: addrs[i], Join: addrs}
	s, err := OpenJetStream(context.Background(), o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ending, end := context.WithCancel(context.Background())
	var writing sync.WaitGroup
	for w := range 2 {
		writing.Go(func() { writeLog(ending, s, fmt.Sprint(os.Getpid(), "/", i, "/", w)) })
	}
	writing.Go(func() { writeCounter(ending, s) })
	_, _ = io.Copy(io.Discard, os.Stdin)
	end()
	writing.Wait()
	if err := s.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// writeLog appends, one goroutine to one topic, and says what is done: "log
// <topic> <number>", or "lost" for what may have happened or not.
func writeLog(ctx context.Context, s *JetStream, topic string) {
	room := make(chan struct{}, 20)
	for i := 0; ctx.Err() == nil; i++ {
		room <- struct{}{}
		m := message(topic, i)
		if i%10 == 0 {
			m.DedupID = fmt.Sprint(topic, " ", i)
		}
		s.Append(m, func(_ Pos, err error) {
			what := "log"
			if err != nil {
				what = "lost"
			}
			fmt.Println(what, topic, i)
			<-room
		})
	}
	for range cap(room) {
		room <- struct{}{}
	}
}

// writeCounter counts one record up, as the other nodes do.
func writeCounter(ctx context.Context, s *JetStream) {
	r := s.Records(Sessions)
	for ctx.Err() == nil {
		n, expected := 0, None
		rec, err := r.Get(ctx, "n")
		switch {
		case err == nil:
			n, _ = strconv.Atoi(string(rec.Value))
			expected = rec.Revision
		case !errors.Is(err, ErrNotFound):
			continue
		}
		done := make(chan error, 1)
		r.Put("n", fmt.Append(nil, n+1), expected, func(_ Revision, err error) { done <- err })
		switch err := <-done; {
		case err == nil:
			fmt.Println("log counter", n+1)
		case !errors.Is(err, ErrConflict):
			fmt.Println("lost counter", n+1)
		}
	}
}

// nodeProcess is a node in a process of its own.
type nodeProcess struct {
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{} // closed when all it has said is read

	lost atomic.Int64 // writes that failed

	mu   sync.Mutex
	done map[string][]int // numbers by topic, as they were acknowledged
	n    int
}

func startNode(t *testing.T, dir string, i int, addrs []string) *nodeProcess {
	t.Helper()
	p := &nodeProcess{
		cmd:   helperCommand(t, dir, fmt.Sprint("node ", i, " ", strings.Join(addrs[:3], " "))),
		ended: make(chan struct{}), done: make(map[string][]int),
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	go func() {
		defer close(p.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			f := strings.Fields(lines.Text())
			if len(f) == 3 && f[0] == "lost" {
				p.lost.Add(1)
			}
			if len(f) != 3 || f[0] != "log" {
				continue
			}
			i, err := strconv.Atoi(f[2])
			if err != nil {
				continue
			}
			p.mu.Lock()
			p.done[f[1]] = append(p.done[f[1]], i)
			p.n++
			p.mu.Unlock()
		}
	}()
	return p
}

func (p *nodeProcess) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

func (p *nodeProcess) end(t *testing.T, kill bool) {
	t.Helper()
	if kill {
		_ = p.cmd.Process.Kill()
	} else {
		_ = p.stdin.Close()
	}
	<-p.ended
	if err := p.cmd.Wait(); err != nil && !kill {
		t.Errorf("a node ended with %v", err)
	}
}

// Each node in turn is killed while all three write: nothing that was
// acknowledged is lost or there twice, each writer's order is kept, and the others
// go on.
func TestNodesKilledWhileWriting(t *testing.T) {
	c := &testCluster{t: t, o: Options{Durability: EachSecond}, dir: t.TempDir(), addrs: freeAddresses(t, 3)}
	c.init()
	start := func(i int) *nodeProcess { return startNode(t, c.options(i).Dir, i, c.addrs) }
	var nodes [3]*nodeProcess
	for i := range nodes {
		nodes[i] = start(i)
	}
	ended := []*nodeProcess{nodes[0], nodes[1], nodes[2]}
	more := func(what string, n int) {
		t.Helper()
		begun := time.Now()
		var was [3]int
		for i := range nodes {
			was[i] = nodes[i].count()
		}
		await(t, what, func() bool {
			for i := range nodes {
				if nodes[i].count() < was[i]+n {
					return false
				}
			}
			return true
		})
		t.Logf("%s: %d more by each node within %v", what, n, time.Since(begun).Round(time.Millisecond))
	}
	more("at the start", 300)
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	for i := range rounds {
		nodes[i].end(t, true)
		killed := nodes[i]
		nodes[i] = nodes[(i+1)%3] // the others alone
		more("with "+nodeName(i)+" killed", 300)
		nodes[i] = killed
		nodes[i] = start(i)
		ended = append(ended, nodes[i])
		more("with it back", 300)
	}
	var ending sync.WaitGroup
	for i := range nodes {
		ending.Go(func() { nodes[i].end(t, false) })
	}
	ending.Wait()

	c.start(0, 1, 2)
	defer c.close()
	for i := range 3 {
		checkNodes(t, c.node(i), ended)
	}
}

func checkNodes(t *testing.T, s *JetStream, nodes []*nodeProcess) {
	t.Helper()
	last, seen := map[string]int{}, map[string]map[int]bool{}
	for _, got := range drain(t, s, 0, 0) {
		i, _ := strconv.Atoi(string(got.m.Payload))
		topic := got.m.Topic
		if was, ok := last[topic]; ok && i <= was {
			t.Fatalf("%s: message %d behind %d", topic, i, was)
		}
		last[topic] = i
		if seen[topic] == nil {
			seen[topic] = map[int]bool{}
		}
		seen[topic][i] = true
	}
	counted := map[int]bool{}
	n, lost := 0, int64(0)
	for _, p := range nodes {
		lost += p.lost.Load()
		for topic, all := range p.done {
			for _, i := range all {
				n++
				switch {
				case topic == "counter" && counted[i]:
					t.Errorf("two nodes have counted to %d", i)
				case topic == "counter":
					counted[i] = true
				case !seen[topic][i]:
					t.Fatalf("%s: message %d was acknowledged and is not there", topic, i)
				}
			}
		}
	}
	rec, err := s.Records(Sessions).Get(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := strconv.Atoi(string(rec.Value)); got < len(counted) {
		t.Errorf("the counter is at %d, and was counted up %d times", got, len(counted))
	}
	t.Logf("%d writes were acknowledged, %d of which counted; %d were not", n, len(counted), lost)
}

// A node that stands still for longer than the others wait for it, and then goes
// on as if nothing had been, does no harm: what it led has another leader.
func TestANodeThatStoodStill(t *testing.T) {
	c := &testCluster{t: t, o: Options{Durability: EachSecond}, dir: t.TempDir(), addrs: freeAddresses(t, 3)}
	c.init()
	var nodes []*nodeProcess
	for i := range 3 {
		nodes = append(nodes, startNode(t, c.options(i).Dir, i, c.addrs))
	}
	more := func(what string, n int, which ...int) {
		t.Helper()
		begun := time.Now()
		for _, i := range which {
			was := nodes[i].count()
			await(t, what, func() bool { return nodes[i].count() >= was+n })
		}
		t.Logf("%s: %d more by each node within %v", what, n, time.Since(begun).Round(time.Millisecond))
	}
	more("at the start", 200, 0, 1, 2)
	signal := func(i int, s syscall.Signal) {
		if err := nodes[i].cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	// Each in turn: one of them leads the log.
	for i := range nodes {
		signal(i, syscall.SIGSTOP)
		begun := time.Now()
		more(nodeName(i)+" stands still", 200, (i+1)%3, (i+2)%3)
		time.Sleep(time.Until(begun.Add(PresumedLost + time.Second))) // it is to stand still so long
		signal(i, syscall.SIGCONT)
		more("it goes on", 200, 0, 1, 2)
	}
	var ending sync.WaitGroup
	for _, p := range nodes {
		ending.Go(func() { p.end(t, false) })
	}
	ending.Wait()
	c.start(0, 1, 2)
	defer c.close()
	checkNodes(t, c.node(0), nodes)
}
