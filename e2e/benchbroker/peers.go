package main

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/mqttlb/mqttlb/e2e/rig"
)

// peer is a broker that takes part.
type peer interface {
	start(ctx context.Context) (target, error)
}

// target is a peer that runs.
type target struct {
	addr string
	more []string // further nodes of a cluster
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
		"mosquitto":  mosquitto{},
		"1s":         ours{binary, "1s"},
		"always":     ours{binary, "always"},
		"3 × 1s":     three{binary, "1s"},
		"3 × always": three{binary, "always"},
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

// at is where the n-th client of a kind connects: those of a cluster take the
// nodes in turn.
func (t target) at(n int) string {
	if n %= len(t.more) + 1; n > 0 {
		return t.more[n-1]
	}
	return t.addr
}

// three is a cluster of three nodes on this machine, which share its cores and
// its disk.
type three struct{ binary, durability string }

func (o three) start(ctx context.Context) (target, error) {
	dir, err := os.MkdirTemp("", "benchbroker-")
	if err != nil {
		return target{}, err
	}
	ports, err := rig.FreePorts(3)
	if err != nil {
		return target{}, err
	}
	nodes := make([]*rig.Broker, len(ports))
	var starting errgroup.Group // they wait for each other
	for i, port := range ports {
		starting.Go(func() (err error) {
			nodes[i], err = rig.StartBroker(ctx, rig.BrokerOptions{
				Binary: o.binary, Dir: dir, Name: fmt.Sprintf("node-%d", i+1),
				Extra: fmt.Sprintf("durability: %s\nlog: {level: warn}\ncluster: {name: bench, size: 3, listen: %q, join: [%q, %q, %q]}\n",
					o.durability, rig.Local(port), rig.Local(ports[0]), rig.Local(ports[1]), rig.Local(ports[2])),
			})
			return err
		})
	}
	err = starting.Wait()
	stop := func() {
		var stopping errgroup.Group
		for _, n := range nodes {
			if n != nil {
				stopping.Go(n.Stop)
			}
		}
		_ = stopping.Wait()
		os.RemoveAll(dir)
	}
	if err != nil {
		stop()
		return target{}, err
	}
	return target{addr: nodes[0].Addr(), more: []string{nodes[1].Addr(), nodes[2].Addr()}, pid: nodes[0].PID(), stop: stop}, nil
}
