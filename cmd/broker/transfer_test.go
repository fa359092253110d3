package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mqttlb/mqttlb/cmd/internal/command"
)

// single writes the file of a broker of one node, with a folder of its own.
func single(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".yaml")
	content := fmt.Sprintf("node: {name: %s}\nlisteners: [{name: mqtt, address: '127.0.0.1:0'}]\nadmin: {address: '127.0.0.1:0'}\n", name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func running1(t *testing.T, config string) *running {
	t.Helper()
	h, err := assemble(config, nil, command.Silent)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, h.cfg)
}

func TestExportAndImportMoveASession(t *testing.T) {
	old, fresh := single(t, "old"), single(t, "fresh")
	r := running1(t, old)
	r.connect(t, "device-1")
	if code, _ := do("export", filepath.Join(t.TempDir(), "early"), "-c", old); code != 1 {
		t.Errorf("export beside the running broker: exit code %d", code)
	}
	if err := r.end(t); err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(t.TempDir(), "all.export")
	code, out := do("export", file, "-c", old)
	if want := file + ": 1 session, 0 messages, 0 retained messages, 0 QoS 2 publications under way\n"; code != 0 || out != want {
		t.Fatalf("exit code %d, %q, want %q", code, out, want)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	if code, _ := do("export", file, "-c", old); code != 1 {
		t.Errorf("a file that is there was written over: exit code %d", code)
	}

	code, out = do("import", file, "-c", fresh)
	if code != 0 || !strings.Contains(out, "from node old, exported ") || !strings.Contains(out, ": 1 session, ") {
		t.Fatalf("exit code %d, %q", code, out)
	}
	if code, _ := do("import", file, "-c", fresh); code != 1 {
		t.Errorf("imported twice: exit code %d", code)
	}
	r = running1(t, fresh)
	if _, ack := r.connect(t, "device-1"); !ack.SessionPresent {
		t.Error("the session did not come along")
	}
	if err := r.end(t); err != nil {
		t.Fatal(err)
	}
}

func TestImportOfSomethingElse(t *testing.T) {
	fresh := single(t, "fresh")
	for _, file := range []string{fresh, filepath.Join(t.TempDir(), "absent")} {
		if code, _ := do("import", file, "-c", fresh); code != 1 {
			t.Errorf("%s: exit code %d", file, code)
		}
	}
	if code, _ := do("import", "-c", fresh); code != 2 {
		t.Errorf("no file: exit code %d", code)
	}
}
