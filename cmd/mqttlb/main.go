// Command mqttlb is a TLS-aware MQTT load balancer, sticky by Client
// Identifier.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/mqttlb/mqttlb/pkg/config"
)

// Exit codes, the same for every command.
const (
	exitOK      = 0
	exitFailure = 1 // it could not do, or go on doing, what was asked
	exitUsage   = 2 // the configuration or the command line is wrong; nothing was begun
)

// version is set by the linker: -ldflags "-X main.version=…".
var version = "dev"

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	// SIGINT and SIGTERM ask for an orderly end. A second one does not wait.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	root := rootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var failed *failure
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &failed):
		fmt.Fprintln(os.Stderr, "mqttlb:", failed.err)
		return exitFailure
	default: // the command line, or the configuration
		fmt.Fprintln(os.Stderr, err)
		return exitUsage
	}
}

// failure is an error that is not about what the user wrote.
type failure struct{ err error }

func (f *failure) Error() string { return f.err.Error() }

func fail(err error) error {
	if err == nil {
		return nil
	}
	return &failure{err}
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "mqttlb",
		Short:         "MQTT load balancer: TLS-aware, sticky by Client Identifier",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(runCommand(), checkCommand(), ringCommand(), versionCommand())
	return root
}

// configFlag gives a command its -c. MQTTLB_CONFIG stands in for it.
func configFlag(c *cobra.Command, path *string) {
	c.Flags().StringVarP(path, "config", "c", os.Getenv("MQTTLB_CONFIG"), "configuration `file` (YAML, TOML or JSON); MQTTLB_CONFIG stands in for it")
}

// assemble reads a configuration with the files that it names, and builds the
// house. Without a path it is the built-in default.
func assemble(path string, log func(config.Log) *slog.Logger) (*house, *tlsParts, error) {
	files := &tlsParts{}
	cfg, err := config.Loader{Environ: os.Environ(), Also: files.read}.Load(path)
	if err != nil {
		return nil, nil, err
	}
	h, err := build(cfg, files, log(cfg.Log))
	return h, files, err
}

func toStderr(c config.Log) *slog.Logger { return logger(c, os.Stderr) }

func silent(config.Log) *slog.Logger { return slog.New(slog.DiscardHandler) }

func runCommand() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:   "run",
		Short: "Balance until SIGINT or SIGTERM",
		Long: `Balance until SIGINT or SIGTERM, then let the connections go within shutdown_timeout.

Without -c it listens on 127.0.0.1:1883 for three brokers on 127.0.0.1:18831 to 18833.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			h, files, err := assemble(path, toStderr)
			if err != nil {
				return err
			}
			for _, w := range files.warnings {
				h.log.Warn("configuration", "warning", w)
			}
			return fail(h.run(c.Context()))
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
			h, files, err := assemble(path, silent)
			if err != nil {
				return err
			}
			for _, w := range files.warnings {
				fmt.Fprintln(c.ErrOrStderr(), "warning:", w)
			}
			backends := 0
			for _, p := range h.pools {
				backends += len(p.backends)
			}
			fmt.Fprintf(c.OutOrStdout(), "ok: %s, %s, %s\n",
				count(len(h.listeners), "listener"), count(len(h.pools), "pool"), count(backends, "backend"))
			return nil
		},
	}
	configFlag(c, &path)
	return c
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func ringCommand() *cobra.Command {
	c := &cobra.Command{Use: "ring", Short: "Ask where clients belong", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(explainCommand())
	return c
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run:   func(c *cobra.Command, _ []string) { fmt.Fprintln(c.OutOrStdout(), "mqttlb", version) },
	}
}
