package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

func shutdownConfig(listen string, timeout time.Duration, broker *rig.Mosquitto) string {
	return fmt.Sprintf(`
listeners:
  - {name: plain, address: %q, pool: brokers}
pools:
  - {name: brokers, backends: %s}
shutdown_timeout: %v
`, listen, flow(broker), timeout)
}

// The connections are let go one by one, each with FIN, within the time that
// there is; then the process ends, and nothing is left of it at the broker.
func TestSIGTERMLetsConnectionsGoInOrder(t *testing.T) {
	const timeout = 3 * time.Second
	broker := brokers(t, 1)[0]
	addr := freeAddr(t)
	l := readyLB(t, shutdownConfig(addr, timeout, broker))
	var devices []*device
	for _, id := range ids(20) {
		devices = append(devices, way{addr: addr}.join(t, id))
	}

	begun := time.Now()
	if err := l.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ends := make(chan time.Duration, len(devices))
	for _, d := range devices {
		go func() {
			if err := d.end(); err != nil {
				t.Errorf("%s: %v, want FIN", d.id, err)
			}
			d.Close()
			ends <- time.Since(begun)
		}()
	}
	var first, last time.Duration
	for i := range devices {
		last = <-ends
		if i == 0 {
			first = last
		}
	}
	if code := l.awaitEnd(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(begun); took > timeout+2*time.Second {
		t.Errorf("ended after %v; shutdown_timeout is %v", took, timeout)
	}
	if last-first < timeout/2 {
		t.Errorf("all connections ended between %v and %v: that is a storm of reconnects", first, last)
	}
	if n := countLines(l.Log().Since(0), "why=shutdown"); n != len(devices) {
		t.Errorf("%d lines say why=shutdown, want %d", n, len(devices))
	}
	await(t, "the broker to see all ends", func() bool {
		return countLines(broker.Log().Since(0), "closed its connection") == len(devices)
	})
}

// A client that does not take its leave holds nothing up.
func TestSIGTERMEndsWithinItsTimeWhateverClientsDo(t *testing.T) {
	const timeout = time.Second
	broker := brokers(t, 1)[0]
	addr := freeAddr(t)
	l := readyLB(t, shutdownConfig(addr, timeout, broker))
	for _, id := range ids(5) {
		way{addr: addr}.join(t, id) // never reads, never closes
	}
	slow := must(way{addr: addr}.dial(t))(t)
	slow.Write(mqtt.AppendConnect(nil, mqtt.ConnectOptions{ClientID: "half"})[:7]) // never whole
	begun := time.Now()
	if err := l.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := l.awaitEnd(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(begun); took > timeout+2*time.Second {
		t.Errorf("ended after %v; shutdown_timeout is %v", took, timeout)
	}
}

func TestASecondSignalEndsAtOnce(t *testing.T) {
	for _, again := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(again.String(), func(t *testing.T) {
			broker := brokers(t, 1)[0]
			addr := freeAddr(t)
			l := prepareLB(t, shutdownConfig(addr, time.Hour, broker))
			l.start(t)
			for _, id := range ids(3) {
				way{addr: addr}.join(t, id)
			}
			from := l.Log().Len()
			if err := l.Signal(again); err != nil {
				t.Fatal(err)
			}
			l.awaitLine(t, from, "shutting down")
			// One that follows at once is an echo of the first: go on until it ends.
			repeat := time.NewTicker(100 * time.Millisecond)
			defer repeat.Stop()
			for running := true; running; {
				select {
				case <-repeat.C:
					_ = l.Signal(again)
				case <-l.Done():
					running = false
				}
			}
			if code := l.awaitEnd(t); code == 0 {
				t.Error("exit code 0 for a shutdown that was cut short")
			}
		})
	}
}

func TestSIGHUPDropsNobody(t *testing.T) {
	broker := brokers(t, 1)[0]
	addr := freeAddr(t)
	l := startLB(t, shutdownConfig(addr, time.Second, broker))
	d := way{addr: addr}.join(t, "device-hup")
	from := l.Log().Len()
	if err := l.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	l.awaitLine(t, from, "SIGHUP changes nothing")
	if err := d.ping(); err != nil {
		t.Errorf("after SIGHUP: %v", err)
	}
}
