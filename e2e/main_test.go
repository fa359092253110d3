package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/mqttlb/mqttlb/e2e/rig"
)

func TestMain(m *testing.M) {
	if err := rig.Install(context.Background(), rig.TestPackages...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	goleak.VerifyTestMain(m)
}
