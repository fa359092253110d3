// Command mqttlb is a TLS-aware MQTT load balancer, sticky by Client
// Identifier.
package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/mqttlb/mqttlb/cmd/internal/command"
	"github.com/mqttlb/mqttlb/pkg/config"
)

// version is set by the linker: -ldflags "-X main.version=…".
var version = "dev"

func main() { os.Exit(command.Run(rootCommand(), os.Args[1:])) }

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:     "mqttlb",
		Short:   "MQTT load balancer: TLS-aware, sticky by Client Identifier",
		Version: version,
	}
	root.AddCommand(runCommand(), checkCommand(), ringCommand(), command.Version())
	return root
}

func configFlag(c *cobra.Command, path *string) { command.ConfigFlag(c, path, "MQTTLB_CONFIG") }

// assemble reads a configuration with the files that it names, and builds the
// house. Without a path it is the built-in default.
func assemble(path string, log func(config.Log) *slog.Logger) (*house, *tlsParts, error) {
	files := &tlsParts{}
	cfg, err := config.Loader{Environ: os.Environ(), Also: files.read}.Load(path)
	if err != nil {
		return nil, nil, command.HintOther(err, path, "broker", func() error {
			_, err := config.BrokerLoader{SkipFiles: true}.Load(path)
			return err
		})
	}
	h, err := build(cfg, files, log(cfg.Log))
	return h, files, err
}

func runCommand() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:   "run",
		Short: "Balance until SIGINT or SIGTERM",
		Long: `Balance until SIGINT or SIGTERM, then let the connections go within shutdown_timeout.

Without -c it listens on 127.0.0.1:1883 for three brokers on 127.0.0.1:18831 to 18833.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			h, files, err := assemble(path, command.ToStderr)
			if err != nil {
				return err
			}
			for _, w := range files.Warnings {
				h.log.Warn("configuration", "warning", w)
			}
			return command.Fail(h.run(c.Context()))
		},
	}
	configFlag(c, &path)
	return c
}

func checkCommand() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:   "check",
		Short: "Check a configuration and the files that it names; bind nothing",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			h, files, err := assemble(path, command.Silent)
			if err != nil {
				return err
			}
			for _, w := range files.Warnings {
				fmt.Fprintln(c.ErrOrStderr(), "warning:", w)
			}
			backends := 0
			for _, p := range h.pools {
				backends += len(p.backends)
			}
			fmt.Fprintf(c.OutOrStdout(), "ok: %s, %s, %s\n",
				command.Count(len(h.listeners), "listener"), command.Count(len(h.pools), "pool"), command.Count(backends, "backend"))
			return nil
		},
	}
	configFlag(c, &path)
	return c
}

func ringCommand() *cobra.Command {
	c := &cobra.Command{Use: "ring", Short: "Ask where clients belong", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(explainCommand())
	return c
}
