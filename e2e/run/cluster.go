package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/mqttlb/mqttlb/e2e/rig"
)

// Where `broker dev` has a node's other ports, above its clients' one.
const (
	adminAbove  = 10
	healthAbove = 20
	nodesAbove  = 30
)

const (
	clusterStart = 60 * time.Second // until all nodes are ready
	clusterGrace = 90 * time.Second // above what `broker dev` gives its nodes
)

// startCluster starts `broker dev`, and returns when its nodes are ready.
func startCluster(ctx context.Context, o options, started *children, out io.Writer) error {
	fmt.Fprintln(out, "building and starting three brokers, a cluster")
	binary, err := rig.BuildBroker()
	if err != nil {
		return err
	}
	p, err := rig.Start(rig.Command{
		Name: "brokers",
		Path: binary,
		Args: []string{"dev", "--nodes", strconv.Itoa(len(o.brokerNames())), "--data", o.brokerData(), "--base-port", strconv.Itoa(o.brokerPort)},
		// Its log is those of all nodes, and what it tells of them.
		LogFile: filepath.Join(o.dir, "brokers.log"),
		Grace:   clusterGrace,
	})
	if err != nil {
		return err
	}
	started.add(p)
	ctx, cancel := context.WithTimeout(ctx, clusterStart)
	defer cancel()
	const up, notUp = "Ctrl-C ends all of it", "not all are ready"
	line, at, err := p.Log().Wait(ctx, 0, func(s string) bool { return strings.Contains(s, up) || strings.HasPrefix(s, notUp) })
	if err == nil && strings.HasPrefix(line, notUp) {
		err = fmt.Errorf("%s", line)
	}
	if err != nil {
		return fmt.Errorf("the brokers do not get ready: %w; the last lines of their log:\n%s", err, p.Log().Tail(30))
	}
	started.follow(p, at, "has ended by itself")
	return nil
}

func (o options) brokerData() string { return filepath.Join(o.dir, "brokers") }

// follow shows the user each later line of a child that contains the text.
func (c *children) follow(p *rig.Process, from int, text string) {
	c.news = make(chan string, 10)
	c.watchers.Go(func() {
		for {
			line, at, err := p.Log().Wait(context.Background(), from, func(s string) bool { return strings.Contains(s, text) })
			if err != nil { // it has ended
				return
			}
			from = at + 1
			select {
			case c.news <- line:
			default: // nobody reads any more
			}
		}
	})
}
