package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mqttlb/mqttlb/cmd/internal/command"
	"github.com/mqttlb/mqttlb/pkg/proxy"
)

func explainCommand() *cobra.Command {
	var path, pool, output string
	c := &cobra.Command{
		Use:   "explain CLIENT-ID",
		Short: "Say which backend a Client Identifier belongs to, and which come next",
		Long: `Say which backend a Client Identifier belongs to, and which come next.

The answer comes from the configuration alone: every mqttlb with the same pool
gives the same. Backends count as up unless the configuration says otherwise.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("-o %q is unknown; use text or json", output)
			}
			h, _, err := assemble(path, command.Silent)
			if err != nil {
				return err
			}
			p, err := h.poolNamed(pool)
			if err != nil {
				return err
			}
			for _, b := range p.Options().Table.Backends() {
				b.SetHealth(true, "")
			}
			e := p.Options().Table.Explain([]byte(args[0]))
			if output == "json" {
				return json.NewEncoder(c.OutOrStdout()).Encode(e)
			}
			_, err = e.WriteTo(c.OutOrStdout())
			return command.Fail(err)
		},
	}
	configFlag(c, &path)
	c.Flags().StringVar(&pool, "pool", "", "pool to ask, where there are several")
	c.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return c
}

// poolNamed finds a pool; the only one needs no name.
func (h *house) poolNamed(name string) (*proxy.Pool, error) {
	var names []string
	for _, p := range h.pools {
		names = append(names, p.pool.Name)
	}
	i := slices.Index(names, name)
	switch {
	case i >= 0:
		return h.pools[i].pool, nil
	case name == "" && len(h.pools) == 1:
		return h.pools[0].pool, nil
	case name == "":
		return nil, fmt.Errorf("there are several pools; add --pool with one of: %s", strings.Join(names, ", "))
	default:
		return nil, fmt.Errorf("there is no pool %q; the pools are: %s", name, strings.Join(names, ", "))
	}
}
