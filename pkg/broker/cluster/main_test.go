package cluster

import (
	"context"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// helper is what this binary does when a test starts it again; see
// durable_linux_test.go.
var helper = func() (code int, is bool) { return 0, false }

func TestMain(m *testing.M) {
	if code, is := helper(); is {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// openJetStream opens a store whose log goes to the test's, from warnings on.
func openJetStream(t testing.TB, o Options) *JetStream {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	s, err := OpenJetStream(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
