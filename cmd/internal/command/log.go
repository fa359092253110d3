package command

import (
	"io"
	"log/slog"
	"os"

	"github.com/mqttlb/mqttlb/pkg/config"
)

// ToStderr gives the log that a configuration asks for.
func ToStderr(c config.Log) *slog.Logger { return logger(c, os.Stderr) }

// Silent gives a log that keeps nothing, for commands that only look.
func Silent(config.Log) *slog.Logger { return slog.New(slog.DiscardHandler) }

func logger(c config.Log, w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: c.Level.Level()}
	if c.Format == config.LogJSON {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
