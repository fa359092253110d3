// Package command is what both commands have in common: exit codes, signals,
// flags, logs, listening sockets, and the files of TLS. What they do, and the
// parts that do it, are their own.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/mqttlb/mqttlb/pkg/config"
)

// Exit codes, the same for every command.
const (
	ExitOK      = 0
	ExitFailure = 1 // it could not do, or go on doing, what was asked
	ExitUsage   = 2 // the configuration or the command line is wrong; nothing was begun
	// A command that asks how things are may have more.
)

// Run does what a command line asks for and gives the exit code. SIGINT and
// SIGTERM end the commands' context, for an orderly end. A second one does not
// wait.
func Run(root *cobra.Command, args []string) int {
	ctx, stop := untilSignal()
	defer stop()

	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var failed *failure
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &failed):
		if failed.err != nil {
			fmt.Fprintln(os.Stderr, root.Name()+":", failed.err)
		}
		return failed.code
	default: // the command line, or the configuration
		fmt.Fprintln(os.Stderr, err)
		return ExitUsage
	}
}

// sameSignal is how long after the first signal another one is taken for its
// echo: timeout(1), and a terminal's Ctrl-C beside a parent that passes it on,
// send each signal twice.
const sameSignal = 300 * time.Millisecond

// untilSignal gives a context that the first signal ends. A second one ends the
// process there and then; signal.NotifyContext would lose it if it came soon
// after the first.
func untilSignal() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		var first time.Time
		for {
			select {
			case <-signals:
			case <-over:
				return
			}
			switch {
			case first.IsZero():
				first = time.Now()
				cancel()
			case time.Since(first) >= sameSignal:
				os.Exit(ExitFailure)
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(over)
		<-ended
		cancel()
	}
}

// failure is an error that is not about what the user wrote.
type failure struct {
	err  error // nil: the command has said it itself
	code int
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit code %d", f.code)
	}
	return f.err.Error()
}

// Fail marks an error as not being about what the user wrote: its exit code is
// ExitFailure.
func Fail(err error) error {
	if err == nil {
		return nil
	}
	return Exit(ExitFailure, err)
}

// Exit gives an error with an exit code of its own. Without err it prints nothing.
func Exit(code int, err error) error { return &failure{err, code} }

// ConfigFlag gives a command its -c. The environment variable stands in for it.
func ConfigFlag(c *cobra.Command, path *string, variable string) {
	c.Flags().StringVarP(path, "config", "c", os.Getenv(variable), "configuration `file` (YAML, TOML or JSON); "+variable+" stands in for it")
}

// HintOther adds to the problems of a configuration that it is one of the other
// program, if that would take it.
func HintOther(err error, path, other string, load func() error) error {
	problems, ok := errors.AsType[*config.Problems](err)
	if !ok || path == "" || load() != nil {
		return err
	}
	hint := config.Problem{
		File: path, What: "would do as a configuration of " + other,
		Mend: "if it is meant to be one, run: " + other + " check -c " + path,
	}
	return &config.Problems{List: append(slices.Clone(problems.List), hint)}
}

// Version is the command that prints the version of its root.
func Version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run: func(c *cobra.Command, _ []string) {
			fmt.Fprintln(c.OutOrStdout(), c.Root().Name(), c.Root().Version)
		},
	}
}

// Count is a number of things: "1 listener", "2 listeners".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
