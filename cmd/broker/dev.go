package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/mqttlb/mqttlb/cmd/internal/command"
)

// devPatience is how long nodes may take to get ready before it is told which
// ones are not.
const devPatience = 30 * time.Second

func devCommand() *cobra.Command {
	o := devOptions{}
	c := &cobra.Command{
		Use:   "dev",
		Short: "Try a cluster on this machine: several nodes in one command",
		Long: `Start a cluster on this machine, to be tried: each node is a process of its own
with a configuration file, ports and a folder of data of its own. Everything
listens on 127.0.0.1. Ctrl-C ends the nodes one after another; the data stays,
and the next broker dev with the same --data goes on with it.

A node that ends by itself is reported and not started again.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			d := &dev{devOptions: o, out: c.OutOrStdout(), logs: &lines{w: c.ErrOrStderr()}}
			return command.Fail(d.run(c.Context()))
		},
	}
	c.Flags().IntVar(&o.nodes, "nodes", 3, "how many: 1, 3 or 5")
	c.Flags().StringVar(&o.data, "data", "broker-dev", "`folder` of all that is written: configuration files and the nodes' data")
	c.Flags().IntVar(&o.port, "base-port", 18831, "`port` of the first node's clients; the other nodes' follow, and other ports are 10, 20 and 30 above")
	return c
}

type devOptions struct {
	nodes int
	data  string
	port  int
}

// The ports of a node are this far above its clients' one.
const (
	adminAbove  = 10
	healthAbove = 20
	nodesAbove  = 30
)

func (o devOptions) check() error {
	if !slices.Contains([]int{1, 3, 5}, o.nodes) {
		return fmt.Errorf("--nodes %d: it is 1, 3 or 5: a cluster needs a majority, and an even number bears no more losses than one less", o.nodes)
	}
	if last := 65535 - nodesAbove - o.nodes; o.port < 1 || o.port > last {
		return fmt.Errorf("--base-port %d: write a number from 1 to %d", o.port, last)
	}
	return nil
}

// dev runs the nodes of a cluster as children.
type dev struct {
	devOptions
	out  io.Writer
	logs *lines
}

// run returns nil when it was ended by ctx and all nodes ended well.
func (d *dev) run(ctx context.Context) error {
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program's own file: %w", err)
	}
	return d.runAll(ctx, binary, d.all())
}

func (d *dev) runAll(ctx context.Context, binary string, all []*devNode) error {
	if err := free(all); err != nil {
		return err
	}
	for _, n := range all {
		if err := n.prepare(all); err != nil {
			return err
		}
	}
	ended := make(chan *devNode, len(all))
	var watching sync.WaitGroup
	defer watching.Wait()
	for _, n := range all { // soon after one another: a node waits for the others
		if err := n.start(binary, d.logs); err != nil {
			return errors.Join(err, stop(all))
		}
		watching.Go(func() {
			<-n.over
			ended <- n
		})
	}
	fmt.Fprintf(d.out, "started %s, data in %s\n", command.Count(len(all), "node"), d.data)
	return errors.Join(d.attend(ctx, all, ended), stop(all))
}

// attend waits for the nodes to get ready, tells what is where, and reports who
// ends before ctx does.
func (d *dev) attend(ctx context.Context, all []*devNode, ended <-chan *devNode) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	patience, enough := context.WithTimeout(ctx, devPatience)
	defer enough()
	ready := make(chan error, 1)
	asking.Go(func() { ready <- allReady(patience, all) })
	for running := len(all); running > 0; {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ready: // once
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				fmt.Fprintf(d.out, "\nnot all are ready: %v\n", err)
			}
			fmt.Fprint(d.out, d.table(all))
		case n := <-ended:
			running--
			fmt.Fprintf(d.out, "\n%s has ended by itself (%s). It is not started again; to do that:\n\n    %s\n\n", n.name, n.how(), n.again())
		}
	}
	return errors.New("no node runs any more")
}
