package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/mqttlb/mqttlb/cmd/internal/command"
	"github.com/mqttlb/mqttlb/pkg/config"
)

// Exit codes of the commands that ask a broker, beside those that all have.
const (
	exitDegraded = command.ExitFailure
	exitNoQuorum = 3 // nothing is acknowledged where it was asked
	exitNobody   = 4 // no broker answers
)

// where says which broker a command asks.
type where struct{ admin, config string }

func (w *where) flags(c *cobra.Command) {
	c.Flags().StringVar(&w.admin, "admin", "", "admin.address of the broker to ask, `host:port`")
	configFlag(c, &w.config)
}

// address is that of --admin, or else of the file, or else the default. The
// other files that a configuration names are not looked at.
func (w *where) address() (string, error) {
	if w.admin != "" {
		return w.admin, nil
	}
	cfg, err := config.BrokerLoader{Environ: os.Environ(), SkipFiles: true}.Load(w.config)
	if err != nil {
		return "", err
	}
	if cfg.Admin.Address == "" {
		return "", errors.New(cfg.Problem("admin.address", "is off, so nobody can be asked", `write e.g. "127.0.0.1:9191" and start the broker again`).String())
	}
	return cfg.Admin.Address, nil
}

// failed gives the error of a question its exit code.
func failed(err error) error {
	if no, ok := errors.AsType[*refusal](err); ok {
		return command.Fail(no)
	}
	return command.Exit(exitNobody, err)
}

// rate reads "50" and "50/s" as 50, "30/m" as a half.
func rate(text string) (float64, error) {
	var per string
	var n float64
	got, err := fmt.Sscanf(text+" ", "%g%s", &n, &per)
	scale, known := map[string]float64{"": 1, "/s": 1, "/m": 1. / 60, "/h": 1. / 3600}[per]
	if got < 1 || err != nil && per != "" || !known || !(n > 0) || n > 1e6 {
		return 0, fmt.Errorf("--rate %q is no number of clients in a time; write e.g. 50/s or 30/m", text)
	}
	return n * scale, nil
}
