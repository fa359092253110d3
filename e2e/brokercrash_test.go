package e2e

import (
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/e2e/rig"
)

// The story of ten crashes: each comes in the middle of the traffic, when a count
// of acknowledgements is reached. After the last there is none.
func TestTenCrashesLoseNothingAcknowledgedAndRepeatNothingOfQoS2(t *testing.T) {
	const (
		crashes  = 10
		perRound = 4000 // acknowledgements between two crashes
		// aimedRate is what is to be acknowledged in a second between two crashes, the
		// clients' coming back included. The writers are as many as it takes for the
		// broker, and not the wait for its answers, to be the bound; a busy machine
		// may be slower, and says so.
		aimedRate = 2000
	)
	// Without the race detector, which would have four times the time pass.
	b := startBroker(t, rig.BrokerOptions{Binary: must(rig.BuildBroker())(t), Extra: "durability: always\nlog: {level: warn}\n"})
	begun, traffic := time.Now(), time.Duration(0)
	s := startTraffic(t, trafficOptions{name: "crash", addr: b.Addr(), writers: 10, readers: 50, window: 256})
	for range crashes {
		back := time.Now()
		s.acknowledged(perRound)
		traffic += time.Since(back)
		crash(t, b)
		restart(t, b)
	}
	s.acknowledged(perRound)
	s.judge()
	rate := crashes * perRound / traffic.Seconds()
	t.Logf("%d crashes in %v; %.0f messages/s between crashes", crashes, time.Since(begun).Round(time.Millisecond), rate)
	if rate < aimedRate {
		t.Logf("slower than %d messages/s: this machine is busy", aimedRate)
	}
	for _, r := range s.readers {
		if n := r.broken.Load(); n > crashes {
			t.Errorf("%s has lost its connection %d times in %d crashes", r.id, n, crashes)
		}
	}
}
