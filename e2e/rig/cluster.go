package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// ClusterOptions says how a cluster of companion brokers is set up. With Binary
// and Dir alone it is three nodes on 127.0.0.1, 127.0.0.2 and 127.0.0.3: all
// listen on the same ports, so that one health.port of mqttlb does for all.
type ClusterOptions struct {
	Binary string // needed
	Dir    string // takes configurations, logs and data; needed
	Size   int    // default 3
	Extra  string // further keys of each node's broker.yaml

	// Of nodes in network namespaces of their own:
	Namespaces []string // default: this one
	Hosts      []string // the address of each node; default 127.0.0.1 and up
	TLS        []ClusterTLS
}

// ClusterTLS is what a node shows to the others, as files.
type ClusterTLS struct{ Cert, Key, CA string }

// Cluster is a set of nodes that hold everything together.
type Cluster struct{ Nodes []*Broker }

// StartCluster starts the nodes, all at once, and returns when all are ready.
func StartCluster(ctx context.Context, o ClusterOptions) (*Cluster, error) {
	if o.Size == 0 {
		o.Size = 3
	}
	ports, err := FreePorts(4) // for clients, admin, health, other nodes
	if err != nil {
		return nil, err
	}
	for i := len(o.Hosts); i < o.Size; i++ {
		o.Hosts = append(o.Hosts, fmt.Sprintf("127.0.0.%d", i+1))
	}
	var join []string
	for _, host := range o.Hosts {
		join = append(join, fmt.Sprintf("%q", fmt.Sprintf("%s:%d", host, ports[3])))
	}
	c := &Cluster{}
	for i, host := range o.Hosts {
		n := BrokerOptions{
			Binary: o.Binary, Dir: o.Dir, Name: fmt.Sprintf("broker-%d", i+1), Host: host,
			Listeners: []BrokerListener{{Port: ports[0]}}, Admin: ports[1], Health: ports[2],
		}
		if len(o.Namespaces) > 0 {
			n.Namespace = o.Namespaces[i]
		}
		var b strings.Builder
		fmt.Fprintf(&b, "cluster:\n  name: e2e\n  size: %d\n  listen: %s\n  join: [%s]\n", o.Size, join[i], strings.Join(join, ", "))
		if len(o.TLS) > 0 {
			fmt.Fprintf(&b, "  tls: {certificate: %q, key: %q, ca: %q}\n", o.TLS[i].Cert, o.TLS[i].Key, o.TLS[i].CA)
		}
		n.Extra = b.String() + o.Extra
		broker, err := newBroker(n)
		if err != nil {
			return nil, err
		}
		c.Nodes = append(c.Nodes, broker)
	}
	if err := c.Start(ctx); err != nil {
		c.Kill()
		return nil, err
	}
	return c, nil
}

// Start starts the nodes that do not run, all at once, and returns when all of
// the cluster are ready.
func (c *Cluster) Start(ctx context.Context) error {
	for _, n := range c.Nodes {
		if n.Process == nil || !n.Running() {
			if err := n.Launch(); err != nil {
				return err
			}
		}
	}
	for _, n := range c.Nodes {
		if err := n.Ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Kill ends all nodes by SIGKILL at the same moment.
func (c *Cluster) Kill() {
	for _, n := range c.Nodes {
		if n.Process != nil {
			_ = n.Signal(syscall.SIGKILL)
		}
	}
	for _, n := range c.Nodes {
		if n.Process != nil {
			<-n.Done()
		}
	}
}

// Stop ends the nodes in order, the last one first: each hands over what it
// leads to those that are still there.
func (c *Cluster) Stop() error {
	var errs []error
	for i := len(c.Nodes) - 1; i >= 0; i-- {
		errs = append(errs, c.Nodes[i].Stop())
	}
	return errors.Join(errs...)
}

// Replace starts a new node, with a name and an empty folder of its own, at the
// addresses of node i, which is lost. It is not ready before the lost one is
// removed.
func (c *Cluster) Replace(i int, name string) error {
	o := c.Nodes[i].Options
	o.Name, o.Data = name, ""
	n, err := newBroker(o)
	if err == nil {
		err = n.Launch()
	}
	if err == nil {
		c.Nodes[i] = n
	}
	return err
}

// ClusterStatus is the answer of /api/v1/cluster, as far as tests look at it.
type ClusterStatus struct {
	Node     string
	Health   string // "healthy", "degraded" or "no quorum"
	Problems []string
	Ready    bool
	Reasons  []string
	Leader   string
	Nodes    []struct {
		Name  string
		Heard bool
		Leads int
	}
	Streams []struct {
		Name, Leader string
		Quorum       bool
		Replicas     []struct {
			Node             string
			Current, Offline bool
			Lag              uint64
		}
	}
}

// Status asks a node how the cluster is.
func (b *Broker) Status(ctx context.Context) (s ClusterStatus, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.Admin()+"/api/v1/cluster", nil)
	if err != nil {
		return s, err
	}
	client := &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return s, fmt.Errorf("%s: status: %w", b.Options.Name, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	if err == nil {
		err = json.Unmarshal(body, &s)
	}
	if err != nil {
		err = fmt.Errorf("%s: status: %w", b.Options.Name, err)
	}
	return s, err
}

// Healthy waits until each node that runs says that the cluster is healthy: all
// nodes are there and hold all that they should.
func (c *Cluster) Healthy(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for _, n := range c.Nodes {
		for {
			s, err := n.Status(ctx)
			if err == nil && s.Health == "healthy" && s.Ready {
				break
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("%s is not healthy: %s, ready %t %v, %v, %w", n.Options.Name, s.Health, s.Ready, s.Reasons, s.Problems, errors.Join(err, context.Cause(ctx)))
			}
		}
	}
	return nil
}
