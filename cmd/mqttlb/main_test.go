package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mqttlb/mqttlb/cmd/internal/command"
)

// run gives what a command line says, and its error.
func run(args ...string) (string, error) {
	var out strings.Builder
	root := rootCommand()
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetOut(&out)
	root.SetErr(io.Discard)
	root.SetArgs(args)
	err := root.Execute()
	return out.String(), err
}

func TestExplainKnowsItsOutputs(t *testing.T) {
	for output, want := range map[string]string{"text": "home", "json": "{"} {
		if out, err := run("ring", "explain", "-o", output, "dev-1"); err != nil || !strings.Contains(out, want) {
			t.Errorf("-o %s: %v, %s", output, err, out)
		}
	}
	out, err := run("ring", "explain", "-o", "xml", "dev-1")
	if err == nil || err.Error() != `-o "xml" is unknown; use text or json` || out != "" {
		t.Errorf("-o xml: %v, %s", err, out)
	}
	if code := command.Run(rootCommand(), []string{"ring", "explain", "-o", "xml", "dev-1"}); code != command.ExitUsage {
		t.Errorf("-o xml: exit code %d", code)
	}
}

func TestCheckKnowsAConfigurationOfTheBroker(t *testing.T) {
	const file = "../../configs/broker.yaml"
	_, err := run("check", "-c", file)
	if err == nil || !strings.HasSuffix(err.Error(), "broker check -c "+file) {
		t.Errorf("%v", err)
	}
	own := filepath.Join(t.TempDir(), "mqttlb.yaml")
	if err := os.WriteFile(own, []byte("listeners: [{name: a, adress: \":1883\", pool: p}]\npools: [{name: p, backends: [{name: b, address: \"b:1883\"}]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := run("check", "-c", own); err == nil || strings.Contains(err.Error(), "broker") {
		t.Errorf("a mistake of our own: %v", err)
	}
}
