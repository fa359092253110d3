// Command setup installs the Debian packages that the tests need: the real
// brokers and clients, and a C compiler for the race detector where there is
// none. Their services are kept from starting. With everything there it does
// nothing, and needs neither root nor the network.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/mqttlb/mqttlb/e2e/rig"
)

func main() {
	packages := rig.TestPackages
	if _, err := exec.LookPath("gcc"); err != nil {
		packages = append(packages, "gcc", "libc6-dev")
	}
	err := rig.Install(context.Background(), packages...)
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, err)
	var needRoot *rig.NeedRootError
	if errors.As(err, &needRoot) {
		os.Exit(3)
	}
	os.Exit(1)
}
