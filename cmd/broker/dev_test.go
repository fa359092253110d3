package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/cmd/internal/command"
	"github.com/mqttlb/mqttlb/pkg/config"
)

// screen keeps what is written and lets a test wait for a text.
type screen struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{}
}

func newScreen() *screen { return &screen{more: make(chan struct{})} }

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.more)
	s.more = make(chan struct{})
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *screen) wait(t *testing.T, text string) {
	t.Helper()
	late := time.After(patience)
	for {
		s.mu.Lock()
		more, all := s.more, s.text.String()
		s.mu.Unlock()
		if strings.Contains(all, text) {
			return
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("%q is not in\n%s", text, all)
		}
	}
}

// startedDev is a `broker dev` of this process, whose nodes are children.
type startedDev struct {
	*dev
	out, logs *screen
	nodes     []*devNode
	stop      context.CancelFunc
	over      chan error
}

func startDev(t *testing.T, nodes int) *startedDev {
	t.Helper()
	t.Setenv(asBroker, "1")
	t.Setenv("MQTTLB_BROKER_NODE_NAME", "of-the-parent")
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := devOptions{nodes: nodes, data: t.TempDir(), port: freeRow(t, nodes)}
	s := &startedDev{out: newScreen(), logs: newScreen(), over: make(chan error, 1)}
	s.dev = &dev{devOptions: o, out: s.out, logs: &lines{w: s.logs}}
	s.nodes = o.all()
	ctx, cancel := context.WithCancel(t.Context())
	s.stop = cancel
	go func() { s.over <- s.runAll(ctx, binary, s.nodes) }()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the nodes' logs:\n%s", s.logs)
		}
	})
	return s
}

func (s *startedDev) end(t *testing.T) error {
	t.Helper()
	s.stop()
	select {
	case err := <-s.over:
		return err
	case <-time.After(time.Duration(len(s.nodes)) * devGrace):
		t.Fatalf("broker dev does not end:\n%s", s.logs)
		return nil
	}
}

// freeRow is a base port all of whose ports are free, below those that the kernel
// gives to outgoing connections.
func freeRow(t *testing.T, nodes int) int {
	t.Helper()
	for range 1000 {
		o := devOptions{nodes: nodes, port: 20000 + rand.IntN(9000)}
		if free(o.all()) == nil {
			return o.port
		}
	}
	t.Fatal("no row of free ports")
	return 0
}

func TestDevRunsANodeAndEndsIt(t *testing.T) {
	d := startDev(t, 1)
	d.out.wait(t, "Ctrl-C ends all of it")
	cfg, err := config.BrokerLoader{}.Load(d.nodes[0].config)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Node.Name != "broker-1" || cfg.Cluster != nil || cfg.Data != d.nodes[0].dir {
		t.Errorf("the node's file says %+v", cfg)
	}
	for _, s := range d.nodes[0].sockets() {
		c, err := net.DialTimeout("tcp", s.address, patience)
		if err != nil {
			t.Errorf("%s: %v", s.use, err)
			continue
		}
		c.Close()
		if !strings.Contains(d.out.String(), s.address) {
			t.Errorf("the table does not tell %s for %s:\n%s", s.address, s.use, d.out)
		}
	}
	if err := d.end(t); err != nil {
		t.Errorf("%v\n%s", err, d.out)
	}
	for line := range strings.Lines(d.logs.String()) {
		if !strings.HasPrefix(line, "broker-1 | time=") {
			t.Errorf("a line without the node's name: %q", line)
		}
	}
	if !strings.Contains(d.logs.String(), "msg=stopped") {
		t.Errorf("the node was not ended in order:\n%s", d.logs)
	}
	if err := free(d.nodes); err != nil {
		t.Error(err)
	}
}

func TestDevReportsANodeThatDies(t *testing.T) {
	d := startDev(t, 1)
	d.out.wait(t, "Ctrl-C ends all of it")
	if err := d.nodes[0].cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-d.over:
		if err == nil || !strings.Contains(err.Error(), "no node runs any more") {
			t.Errorf("got %v", err)
		}
	case <-time.After(patience):
		t.Fatal("broker dev runs on without nodes")
	}
	want := "broker-1 has ended by itself (signal: killed). It is not started again; to do that:\n\n    broker run -c " + d.nodes[0].config
	if !strings.Contains(d.out.String(), want) {
		t.Errorf("%q is not in\n%s", want, d.out)
	}
}

func TestDevNamesWhoHoldsAPort(t *testing.T) {
	o := devOptions{nodes: 3, data: filepath.Join(t.TempDir(), "data"), port: freeRow(t, 3)}
	taken := o.all()[1]
	l, err := net.Listen("tcp", taken.admin)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = (&dev{devOptions: o, out: io.Discard, logs: &lines{w: io.Discard}}).run(t.Context())
	for _, want := range []string{taken.admin + " (broker-2, admin) can't be used", "nothing was started", "--base-port"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if _, err := os.Stat(o.data); !os.IsNotExist(err) {
		t.Errorf("something was written: %v", err)
	}
}

func TestDevRefusesWhatMakesNoCluster(t *testing.T) {
	for _, args := range [][]string{{"--nodes", "2"}, {"--nodes", "0"}, {"--base-port", "65530"}, {"--base-port", "0"}, {"extra"}} {
		if code := command.Run(rootCommand(), append([]string{"dev"}, args...)); code != command.ExitUsage {
			t.Errorf("%q: exit code %d, want %d", args, code, command.ExitUsage)
		}
	}
}

func TestEachNodeOfDevIsAConfigurationThatLoads(t *testing.T) {
	o := devOptions{nodes: 5, data: t.TempDir(), port: 18831}
	all := o.all()
	used := map[string]string{}
	for _, n := range all {
		if err := n.prepare(all); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.BrokerLoader{}.Load(n.config)
		if err != nil {
			t.Fatal(err)
		}
		if c := cfg.Cluster; c == nil || c.Size != 5 || c.Name != "dev" || len(c.Join) != 5 || cfg.Node.Name != n.name {
			t.Errorf("%s: %+v", n.name, cfg.Cluster)
		}
		for _, s := range n.sockets() {
			if other := used[s.address]; other != "" {
				t.Errorf("%s is for %s and for %s %s", s.address, other, n.name, s.use)
			}
			used[s.address] = n.name + " " + s.use
		}
	}
}

func TestLinesOfNodesAreNotTorn(t *testing.T) {
	out := newScreen()
	all := &lines{w: out}
	a, b := all.of("a"), all.of("b")
	for _, piece := range []string{"one\ntw", "o\n", "\nthree"} {
		fmt.Fprint(a, piece)
		fmt.Fprint(b, "x\n")
	}
	a.end()
	a.end() // nothing is left
	if got, want := out.String(), "a | one\nb | x\na | two\nb | x\na | \nb | x\na | three\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
