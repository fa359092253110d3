package config

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestASecretShowsInNoDump(t *testing.T) {
	h := Health{Username: "check", Password: "tops3cret"}
	var logged strings.Builder
	slog.New(slog.NewTextHandler(&logged, nil)).Info("health", "config", h, "password", h.Password)
	asJSON, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	for _, dump := range []string{
		fmt.Sprint(h), fmt.Sprintf("%+v", h), fmt.Sprintf("%#v", h), fmt.Sprintf("%v", []any{&h, h.Password}),
		fmt.Sprintf("%q", h.Password), fmt.Sprintf("%v", h.Password), fmt.Sprintf("%x", h.Password),
		string(asJSON), logged.String(),
	} {
		if strings.Contains(dump, "tops3cret") || strings.Contains(dump, fmt.Sprintf("%x", "tops3cret")) {
			t.Errorf("shown in %s", dump)
		}
	}
	if string(h.Password) != "tops3cret" {
		t.Error("a conversion gives the secret")
	}
}

func TestLogLevelIsSlogs(t *testing.T) {
	for word, want := range map[LogLevel]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError, "": slog.LevelInfo} {
		if got := word.Level(); got != want {
			t.Errorf("%q is %s, want %s", word, got, want)
		}
	}
}
