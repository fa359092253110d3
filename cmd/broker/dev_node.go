package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mqttlb/mqttlb/cmd/internal/command"
)

// devNode is a node that broker dev runs.
type devNode struct {
	name   string
	dir    string // of its data
	config string // file
	// Addresses on this machine.
	clients, admin, health, nodes string

	cmd  *exec.Cmd
	over chan struct{} // closed when it has ended
}

// devGrace is how long a node may take to end: longer than its own
// shutdown_timeout and what its store waits for.
const devGrace = 30 * time.Second

func (o devOptions) all() []*devNode {
	var all []*devNode
	for i := range o.nodes {
		at := func(above int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(o.port+above+i)) }
		name := fmt.Sprintf("broker-%d", i+1)
		n := &devNode{
			name: name, dir: filepath.Join(o.data, name), config: filepath.Join(o.data, name+".yaml"),
			clients: at(0), admin: at(adminAbove), health: at(healthAbove),
		}
		if o.nodes > 1 {
			n.nodes = at(nodesAbove)
		}
		all = append(all, n)
	}
	return all
}

// sockets are all that a node listens on, and what for.
func (n *devNode) sockets() []struct{ address, use string } {
	all := []struct{ address, use string }{{n.clients, "clients"}, {n.admin, "admin"}, {n.health, "health check"}}
	if n.nodes != "" {
		all = append(all, struct{ address, use string }{n.nodes, "other nodes"})
	}
	return all
}

// free says which ports are taken, and by whom.
func free(all []*devNode) error {
	var taken []error
	for _, n := range all {
		for _, s := range n.sockets() {
			l, err := net.Listen("tcp", s.address)
			if err == nil {
				l.Close()
				continue
			}
			why := err.Error()
			if errors.Is(err, syscall.EADDRINUSE) {
				_, port, _ := net.SplitHostPort(s.address)
				number, _ := strconv.Atoi(port)
				if why = "in use"; command.Holder(number) != "" {
					why = "held by " + command.Holder(number)
				}
			}
			taken = append(taken, fmt.Errorf("%s (%s, %s) can't be used: %s", s.address, n.name, s.use, why))
		}
	}
	if len(taken) == 0 {
		return nil
	}
	return errors.Join(append(taken, errors.New("nothing was started; free the ports, or choose others with --base-port"))...)
}

// prepare writes the node's configuration, anew at each start.
func (n *devNode) prepare(all []*devNode) error {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(n.config, []byte(n.yaml(all)), 0o600)
}

func (n *devNode) yaml(all []*devNode) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Written by `broker dev` at each start: copy it to change it.")
	line("node:\n  name: %s\n  announce: true # clients read in CONNACK where they are", n.name)
	line("data: %s # below the folder of this file", filepath.Base(n.dir))
	line("durability: 1s # for trying: all nodes share a disk, and do not wait for it")
	if n.nodes != "" {
		var join []string
		for _, other := range all {
			join = append(join, strconv.Quote(other.nodes))
		}
		line("cluster:\n  name: dev\n  size: %d\n  listen: %q\n  join: [%s]", len(all), n.nodes, strings.Join(join, ", "))
	}
	line("listeners:\n  - name: mqtt\n    address: %q", n.clients)
	line("health_endpoint:\n  tcp: %q # open while clients should be sent here", n.health)
	line("admin:\n  address: %q # /metrics, /readyz, broker cluster status", n.admin)
	return b.String()
}

// start starts the node; its log goes to logs, line by line behind its name.
func (n *devNode) start(binary string, logs *lines) error {
	out := logs.of(n.name)
	n.cmd = exec.Command(binary, n.args()...)
	n.cmd.Env = withoutOurs(os.Environ())
	n.cmd.Stdout, n.cmd.Stderr = out, out
	n.cmd.SysProcAttr = apart()
	if err := n.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", n.name, err)
	}
	n.over = make(chan struct{})
	go func() {
		defer close(n.over)
		_ = n.cmd.Wait() // how it went is in its ProcessState
		out.end()
	}()
	return nil
}

func (n *devNode) args() []string { return []string{"run", "-c", n.config} }

// again is what starts it again, as it can be typed.
func (n *devNode) again() string { return "broker " + strings.Join(n.args(), " ") }

// withoutOurs leaves out the variables that would set one key on all nodes.
func withoutOurs(environ []string) []string {
	var kept []string
	for _, v := range environ {
		if !strings.HasPrefix(v, "MQTTLB_BROKER_") {
			kept = append(kept, v)
		}
	}
	return kept
}

// how it ended, once it has.
func (n *devNode) how() string { return n.cmd.ProcessState.String() }

// stop ends the nodes, the last one first: each hands over what it leads to those
// that are still there.
func stop(all []*devNode) error {
	var errs []error
	for i := len(all) - 1; i >= 0; i-- {
		errs = append(errs, all[i].stop())
	}
	return errors.Join(errs...)
}

func (n *devNode) stop() error {
	if n.over == nil { // never started
		return nil
	}
	select {
	case <-n.over: // reported when it happened
		return nil
	default:
	}
	_ = n.cmd.Process.Signal(syscall.SIGTERM) // it may end at this moment
	grace := time.NewTimer(devGrace)
	defer grace.Stop()
	select {
	case <-n.over:
		if !n.cmd.ProcessState.Success() {
			return fmt.Errorf("%s did not end well: %s", n.name, n.how())
		}
		return nil
	case <-grace.C:
		_ = n.cmd.Process.Kill()
		<-n.over
		return fmt.Errorf("%s was still there %s after it was asked to end, and was killed", n.name, devGrace)
	}
}

// allReady waits until each node says that it is; the error tells who does not.
func allReady(ctx context.Context, all []*devNode) error {
	var missing []error
	for _, n := range all {
		if err := n.ready(ctx); err != nil {
			missing = append(missing, fmt.Errorf("%s %w", n.name, err))
		}
	}
	return errors.Join(missing...)
}

// readyEvery is how often a node is asked.
const readyEvery = 100 * time.Millisecond

func (n *devNode) ready(ctx context.Context) error {
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for {
		why := n.askReady(ctx)
		if why == "" {
			return nil
		}
		select {
		case <-tick.C:
		case <-n.over:
			return errors.New("has ended")
		case <-ctx.Done():
			return errors.New(why)
		}
	}
}

// askReady gives why it is not, or does not show it; empty: it is.
func (n *devNode) askReady(ctx context.Context) string {
	var report struct {
		Ready   bool
		Reasons []string
	}
	if err := ask(ctx, http.MethodGet, n.admin, "/readyz", nil, &report); err != nil {
		return "does not answer"
	}
	if !report.Ready {
		return strings.Join(report.Reasons, ", ")
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", n.health)
	if err != nil {
		return "does not open its health check's port"
	}
	c.Close()
	return ""
}
