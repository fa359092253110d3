package rig

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// Root is the folder of the module that the caller works in.
var Root = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if filepath.Base(mod) != "go.mod" {
		return "", fmt.Errorf("not in the source tree: go env GOMOD says %q", mod)
	}
	return filepath.Dir(mod), nil
})

// Build builds bin/mqttlb of the source tree and gives its path. A process
// builds it once.
var Build = sync.OnceValues(func() (string, error) { return build("bin") })

// BuildRace builds bin/race/mqttlb, with the race detector in.
var BuildRace = sync.OnceValues(func() (string, error) { return build("bin/race", "-race") })

func build(dir string, flags ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(root, dir, "mqttlb")
	args := append([]string{"build", "-o", binary}, flags...)
	cmd := exec.Command("go", append(args, "./cmd/mqttlb")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/mqttlb: %w\n%s", err, out)
	}
	return binary, nil
}
