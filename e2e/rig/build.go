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
var Build = sync.OnceValues(func() (string, error) { return build("mqttlb", "bin") })

// BuildRace builds bin/race/mqttlb, with the race detector in.
var BuildRace = sync.OnceValues(func() (string, error) { return build("mqttlb", "bin/race", "-race") })

// BuildBroker builds bin/broker, as Build does mqttlb.
var BuildBroker = sync.OnceValues(func() (string, error) { return build("broker", "bin") })

// BuildBrokerRace builds bin/race/broker, with the race detector in.
var BuildBrokerRace = sync.OnceValues(func() (string, error) { return build("broker", "bin/race", "-race") })

func build(program, dir string, flags ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(root, dir, program)
	args := append([]string{"build", "-o", binary}, flags...)
	cmd := exec.Command("go", append(args, "./cmd/"+program)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/%s: %w\n%s", program, err, out)
	}
	return binary, nil
}
