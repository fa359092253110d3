package main

import (
	"context"
	"fmt"
	"os"

	"github.com/mqttlb/mqttlb/e2e/rig"
)

// peer is a broker that takes part.
type peer interface {
	start(ctx context.Context) (target, error)
}

// target is a peer that runs.
type target struct {
	addr string
	pid  int
	stop func()
	// broker is nil for mosquitto.
	broker *rig.Broker
}

func newPeers() (map[string]peer, error) {
	binary, err := rig.BuildBroker()
	if err != nil {
		return nil, err
	}
	return map[string]peer{
		"mosquitto": mosquitto{},
		"1s":        ours{binary, "1s"},
		"always":    ours{binary, "always"},
	}, nil
}

type mosquitto struct{}

// mosquittoTuning takes the bounds off that would make it drop under load.
var mosquittoTuning = []string{"max_queued_messages 0", "max_inflight_messages 1024", "set_tcp_nodelay true"}

func (mosquitto) start(ctx context.Context) (target, error) {
	dir, err := os.MkdirTemp("", "benchbroker-")
	if err != nil {
		return target{}, err
	}
	m, err := rig.StartMosquitto(ctx, rig.MosquittoOptions{Dir: dir, Extra: mosquittoTuning})
	if err != nil {
		os.RemoveAll(dir)
		return target{}, err
	}
	return target{addr: m.Addr(), pid: m.PID(), stop: func() { _ = m.Stop(); os.RemoveAll(dir) }}, nil
}

type ours struct{ binary, durability string }

func (o ours) start(ctx context.Context) (target, error) {
	dir, err := os.MkdirTemp("", "benchbroker-")
	if err != nil {
		return target{}, err
	}
	b, err := rig.StartBroker(ctx, rig.BrokerOptions{Binary: o.binary, Dir: dir, Extra: fmt.Sprintf("durability: %s\nlog: {level: warn}\n", o.durability)})
	if err != nil {
		os.RemoveAll(dir)
		return target{}, err
	}
	return target{addr: b.Addr(), pid: b.PID(), broker: b, stop: func() { _ = b.Stop(); os.RemoveAll(dir) }}, nil
}
