package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/e2e/rig/rigtest"
)

// installMQTTjs copies the script of mqttjs/ to a folder of the test and has
// npm lay the locked version of MQTT.js beside it.
func installMQTTjs(t *testing.T) (script string) {
	t.Helper()
	for _, command := range []string{"node", "npm"} {
		if _, err := exec.LookPath(command); err != nil {
			if err := rig.Install(context.Background(), "nodejs", "npm"); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("mqttjs")); err != nil {
		t.Fatal(err)
	}
	npm := exec.CommandContext(rigtest.Context(t, 4*patience), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v (it needs the npm registry, or its cache filled)\n%s", err, out)
	}
	return filepath.Join(dir, "roundtrip.js")
}

func TestMQTTjsThroughPlainTCPAndTLS(t *testing.T) {
	script := installMQTTjs(t)
	certs := newPKI(t)
	own := certs.server(t, "lb", rig.ECDSA)
	plain, encrypted := freeAddr(t), freeAddr(t)
	three := brokers(t, 3)
	readyLB(t, fmt.Sprintf(`
listeners:
  - {name: plain, address: %q, pool: brokers}
  - {name: tls, address: %q, pool: brokers, tls: {mode: terminate, certificates: [{cert: %q, key: %q}]}}
pools:
  - {name: brokers, backends: %s}
`, plain, encrypted, own.Cert, own.Key, flow(three...)))
	for listener, args := range map[string][2]string{
		"plain": {"mqtt://" + plain, ""},
		"tls":   {"mqtts://" + encrypted, certs.CA},
	} {
		for level, version := range map[string]string{"4": "MQTT 3.1.1", "5": "MQTT 5.0"} {
			t.Run(listener+", "+version, func(t *testing.T) {
				out, err := exec.CommandContext(within(t), "node", script, args[0], level, "from/js", args[1]).CombinedOutput()
				const want = "back: 0 at QoS 0\nback: 1 at QoS 1\nback: 2 at QoS 2"
				if got := strings.TrimSpace(string(out)); err != nil || got != want {
					t.Errorf("%v, %q; want %q", err, got, want)
				}
			})
		}
	}
}
