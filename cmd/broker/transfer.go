package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/mqttlb/mqttlb/cmd/internal/command"
	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/transfer"
)

func exportCommand() *cobra.Command {
	var path string
	var join []string
	c := &cobra.Command{
		Use:   "export FILE",
		Short: "Write all that a stopped broker keeps into one file",
		Long: `Write all that a stopped broker keeps into one file: messages, retained messages,
sessions with what waits for them, QoS 2 publications under way. The broker of the
configuration must be stopped; of a cluster the other nodes must run, and their
clients be gone (broker drain). The file must not be there yet.

broker import brings it into a new store, of one node or of several.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return transferCommand(c, path, join, func(ctx context.Context, h *house, s *cluster.JetStream) error {
				if err := current(ctx, h, s); err != nil {
					return err
				}
				n, err := exportTo(ctx, h, s, args[0])
				if err == nil {
					fmt.Fprintf(c.OutOrStdout(), "%s: %s\n", args[0], told(n))
				}
				return err
			})
		},
	}
	configFlag(c, &path)
	joinFlag(c, &join)
	return c
}

func importCommand() *cobra.Command {
	var path string
	var join []string
	c := &cobra.Command{
		Use:   "import FILE",
		Short: "Bring what broker export has written into a new store",
		Long: `Bring what broker export has written into a new store. The broker of the
configuration must be stopped, and its folder of data empty. For a cluster, the
other nodes must run, all of them new, too, and no client may connect before the
import is over.

After a failure remove the folder of data, of a cluster that of each node, and
begin anew.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return command.Fail(err)
			}
			defer f.Close()
			return transferCommand(c, path, join, func(ctx context.Context, h *house, s *cluster.JetStream) error {
				head, n, err := transfer.Import(ctx, f, transfer.Target{Store: s, Node: h.cfg.Node.Name, Clustered: h.cfg.Cluster != nil})
				if err == nil {
					fmt.Fprintf(c.OutOrStdout(), "from node %s, exported %s: %s\n", head.Node, head.Made.Format(time.RFC3339), told(n))
				}
				return err
			})
		},
	}
	configFlag(c, &path)
	joinFlag(c, &join)
	return c
}

// transferCommand does something with the store of a configuration, whose broker
// is stopped.
func transferCommand(c *cobra.Command, path string, join []string, do func(context.Context, *house, *cluster.JetStream) error) error {
	h, err := assemble(path, join, command.ToStderr)
	if err != nil {
		return err
	}
	s, err := cluster.OpenJetStream(c.Context(), h.storeOptions())
	if err != nil {
		return command.Fail(fmt.Errorf("%w (a broker that uses the folder has to be stopped first)", err))
	}
	return command.Fail(errors.Join(do(c.Context(), h, s), s.Close()))
}

// currentEvery is how often it is asked whether a node has caught up.
const currentEvery = 200 * time.Millisecond

// current waits until this node of a cluster has all that the others have: it
// reads what it has itself.
func current(ctx context.Context, h *house, s *cluster.JetStream) error {
	if h.cfg.Cluster == nil {
		return nil
	}
	tick := time.NewTicker(currentEvery)
	defer tick.Stop()
	for told := false; ; {
		st, err := s.Status(ctx)
		if err != nil || st.Ready(h.cfg.Node.Name) {
			return err
		}
		if !told {
			h.log.Info("waiting until this node has all that the others have")
			told = true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// exportTo writes the file under another name, which it loses when it is whole.
func exportTo(ctx context.Context, h *house, s cluster.Store, path string) (transfer.Counts, error) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return transfer.Counts{}, fmt.Errorf("%s is there already; name another file, or remove it", path)
	}
	part := path + ".part"
	f, err := os.OpenFile(part, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return transfer.Counts{}, err
	}
	head := transfer.Head{Made: time.Now().UTC().Truncate(time.Second), Version: version, Node: h.cfg.Node.Name}
	if h.cfg.Cluster != nil {
		head.Cluster = h.cfg.Cluster.Name
	}
	n, err := transfer.Export(ctx, s, head, f)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		os.Remove(part)
	}
	return n, err
}

// told says what was moved.
func told(n transfer.Counts) string {
	s := fmt.Sprintf("%s, %s, %s, %s under way", command.Count(n.Sessions, "session"), command.Count(n.Messages, "message"),
		command.Count(n.Retained, "retained message"), command.Count(n.Inbound2, "QoS 2 publication"))
	if n.Expired > 0 {
		s += fmt.Sprintf("; %s had expired", command.Count(n.Expired, "message"))
	}
	if n.Gone > 0 {
		s += fmt.Sprintf("; %s in flight no longer there", command.Count(n.Gone, "message"))
	}
	return s
}
