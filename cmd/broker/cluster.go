package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/mqttlb/mqttlb/cmd/internal/command"
	"github.com/mqttlb/mqttlb/pkg/admin/brokeradmin"
)

func clusterCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "cluster",
		Short: "Look after a cluster: status, remove",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return fmt.Errorf("broker cluster needs one of: status, remove; broker cluster --help tells more")
		},
	}
	c.AddCommand(clusterStatusCommand(), clusterRemoveCommand())
	return c
}

func clusterStatusCommand() *cobra.Command {
	var w where
	var form string
	c := &cobra.Command{
		Use:   "status",
		Short: "Tell how the nodes of a cluster are, as one of them sees it",
		Long: `Tell how the nodes of a cluster are, as the broker that is asked sees it.

Exit codes: 0 healthy, 1 degraded (it works, and bears fewer losses than it
should), 2 the command line or the file is wrong, 3 no quorum (nothing is
acknowledged where it was asked), 4 no broker answers.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if form != "table" && form != "json" {
				return fmt.Errorf("-o %s: it is table or json", form)
			}
			address, err := w.address()
			if err != nil {
				return err
			}
			var s brokeradmin.Status
			if err := ask(c.Context(), http.MethodGet, address, "/api/v1/cluster", nil, &s); err != nil {
				return failed(err)
			}
			if form == "json" {
				e := json.NewEncoder(c.OutOrStdout())
				e.SetIndent("", "  ")
				_ = e.Encode(s)
			} else {
				fmt.Fprint(c.OutOrStdout(), statusTable(s))
			}
			switch s.Health {
			case brokeradmin.Healthy:
				return nil
			case brokeradmin.NoQuorum:
				return command.Exit(exitNoQuorum, nil)
			default:
				return command.Exit(exitDegraded, nil)
			}
		},
	}
	w.flags(c)
	c.Flags().StringVarP(&form, "output", "o", "table", "table or json")
	return c
}

const (
	// removePatience is how long it may be tried to remove a node: one that has
	// just joined is being taken in.
	removePatience = time.Minute
	removePause    = time.Second
)

// remove asks until the cluster can do it.
func remove(ctx context.Context, address, node string, say io.Writer) (s brokeradmin.Status, err error) {
	tick := time.NewTicker(removePause)
	defer tick.Stop()
	for late, told := time.Now().Add(removePatience), false; ; {
		err = ask(ctx, http.MethodPost, address, "/api/v1/cluster/remove", map[string]string{"node": node}, &s)
		no, refused := errors.AsType[*refusal](err)
		if !refused || no.status != http.StatusServiceUnavailable || time.Now().After(late) {
			return s, err
		}
		if !told {
			fmt.Fprintf(say, "%s; trying again for %s\n", no.said, removePatience)
			told = true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return s, err
		}
	}
}

func clusterRemoveCommand() *cobra.Command {
	var w where
	c := &cobra.Command{
		Use:   "remove NODE",
		Short: "Take a node that is lost for good out of its cluster",
		Long: `Take a node that is lost for good out of its cluster. Start the one that comes in
its place first, with an empty folder of data and a name of its own: what the lost
one had goes there.

It is refused while the node is heard from, and without a majority of the others.
A node that will come back is not removed: start it again.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			address, err := w.address()
			if err != nil {
				return err
			}
			s, err := remove(c.Context(), address, args[0], c.ErrOrStderr())
			if err != nil {
				return failed(err)
			}
			fmt.Fprintf(c.OutOrStdout(), "%s is no node of the cluster any more.\n\n%s", args[0], statusTable(s))
			return nil
		},
	}
	w.flags(c)
	return c
}
