// Command broker is an MQTT 3.1, 3.1.1 and 5.0 broker: the companion of mqttlb,
// for those who have none.
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
		Use:     "broker",
		Short:   "MQTT broker that keeps what it acknowledges",
		Version: version,
	}
	root.AddCommand(runCommand(), checkCommand(), devCommand(), clusterCommand(), drainCommand(), exportCommand(), importCommand(), command.Version())
	return root
}

func configFlag(c *cobra.Command, path *string) {
	command.ConfigFlag(c, path, "MQTTLB_BROKER_CONFIG")
}

func joinFlag(c *cobra.Command, join *[]string) {
	c.Flags().StringSliceVar(join, "join", nil, "where other nodes of the cluster listen, `host:port`,…; in place of cluster.join")
}

// assemble reads a configuration with the files that it names, and builds the
// house. Without a path it is the built-in default.
func assemble(path string, join []string, log func(config.Log) *slog.Logger) (*house, error) {
	files := &command.TLSFiles{}
	cfg, err := config.BrokerLoader{
		Environ:   os.Environ(),
		Overrides: []config.Override{config.Join(join)},
		Also: func(cfg *config.Broker) []config.Problem {
			*files = readTLS(cfg)
			return files.Problems
		},
	}.Load(path)
	if err != nil {
		return nil, command.HintOther(err, path, "mqttlb", func() error {
			_, err := config.Loader{SkipFiles: true}.Load(path)
			return err
		})
	}
	return build(cfg, files, log(cfg.Log)), nil
}

func runCommand() *cobra.Command {
	var path string
	var join []string
	c := &cobra.Command{
		Use:   "run",
		Short: "Serve until SIGINT or SIGTERM",
		Long: `Serve until SIGINT or SIGTERM, then let the connections go within shutdown_timeout.

Without -c it listens on 127.0.0.1:1883 and keeps its data in ./broker-data. With
the section cluster in its file it is one node of several; start them together.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := assemble(path, join, command.ToStderr)
			if err != nil {
				return err
			}
			for _, w := range h.files.Warnings {
				h.log.Warn("configuration", "warning", w)
			}
			return command.Fail(h.run(c.Context()))
		},
	}
	configFlag(c, &path)
	joinFlag(c, &join)
	return c
}

func checkCommand() *cobra.Command {
	var path string
	var join []string
	c := &cobra.Command{
		Use:   "check",
		Short: "Check a configuration and the files that it names; bind nothing",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := assemble(path, join, command.Silent)
			if err != nil {
				return err
			}
			for _, w := range h.files.Warnings {
				fmt.Fprintln(c.ErrOrStderr(), "warning:", w)
			}
			fmt.Fprintf(c.OutOrStdout(), "ok: %s, data in %s%s\n", command.Count(len(h.cfg.Listeners), "listener"), h.cfg.Data, h.place())
			return nil
		},
	}
	configFlag(c, &path)
	joinFlag(c, &join)
	return c
}
