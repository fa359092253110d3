package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// What a cluster bears while 50 subscribers and four publishers are at it, through
// mqttlb.
func TestAClusterLosesNothingAcknowledgedAndRepeatsNothingOfQoS2(t *testing.T) {
	// Without the race detector, which would have four times the time pass.
	c := startCluster(t, rig.ClusterOptions{Binary: must(rig.BuildBroker())(t), Extra: "durability: 1s\nlog: {level: warn}\n"})
	for _, story := range []struct {
		name, check string
		tell        func(t *testing.T, c *rig.Cluster, s *traffic)
	}{
		{"when each node is killed in turn, ten times", "tcp", eachNodeIsKilled},
		{"when a node stands still for 15 s", "mqtt", aNodeStandsStill},
		{"when all nodes are killed at once", "tcp", allNodesAreKilled},
	} {
		t.Run(story.name, func(t *testing.T) {
			healthy(t, c)
			l, addr := before(t, c, story.check)
			l.run(t)
			awaitAll(t, l, c)
			s := startTraffic(t, trafficOptions{name: story.check + "-" + addr[len(addr)-5:], addr: addr, writers: 4, readers: 50, rate: fullRate, silence: 4 * time.Second})
			story.tell(t, c, s)
			s.judge()
		})
	}
}

const (
	fullRate = 2200 // messages a second
	// slowRate leaves the machine to the nodes that come back.
	slowRate = 300
)

// A node is started again at once, or when the others go on without it.
func eachNodeIsKilled(t *testing.T, c *rig.Cluster, s *traffic) {
	const crashes, before = 10, 2000
	begun, rate, worst := time.Now(), 0.0, time.Duration(0)
	for i := range crashes {
		n := c.Nodes[i%len(c.Nodes)]
		s.rate.Store(fullRate)
		back := time.Now()
		s.acknowledged(before)
		now := before / time.Since(back).Seconds()
		rate += now / crashes
		s.stall()
		killed := time.Now()
		crash(t, n)
		if i%2 == 1 {
			if err := n.Launch(); err != nil {
				t.Fatal(err)
			}
		}
		s.acknowledged(before / 4)
		stall, on := s.stall(), since(killed)
		worst = max(worst, stall)
		s.rate.Store(slowRate)
		if i%2 == 0 {
			restart(t, n)
		} else if err := n.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Logf("%2d: %s killed: %.0f messages/s before, no acknowledgement for %v; the others go on after %v, it is ready %v after its start, %v after its end",
			i+1, n.Name, now, stall, on, n.StartTook().Round(10*time.Millisecond), since(killed))
	}
	s.rate.Store(fullRate)
	s.acknowledged(before)
	t.Logf("%d crashes in %v: %.0f messages/s before them, longest time without an acknowledgement %v (expected: 11s at most)", crashes, since(begun), rate, worst)
}

// A node that stands still keeps its sockets, and does not know what has become of
// its clients when it goes on. What they had sent it is still there to be read.
func aNodeStandsStill(t *testing.T, c *rig.Cluster, s *traffic) {
	const still = 15 * time.Second
	s.acknowledged(2000)
	n, others := c.Nodes[1], []*rig.Broker{c.Nodes[0], c.Nodes[2]}
	watcher, _ := nodeWay(others[1]).keeper(t, "watcher")
	watcher.wants(t, 2, "late")
	old, _ := nodeWay(n).keeper(t, "late")
	old.says(t, rig.Message{Topic: "late", Payload: "first", QoS: 2})

	s.stall()
	if err := n.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	acked, stopped := s.acked.Load(), time.Now()
	publish := func(to *speaker, dup bool) {
		to.send(t, mqtt.AppendPublish(nil, to.v, mqtt.Publish{Dup: dup, QoS: 2, PacketID: 2, Topic: []byte("late"), Payload: []byte("second")}))
	}
	publish(old, false)
	old.lastID = 2
	moved, _ := nodeWay(others[0]).insistent(t, mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "late", Properties: kept})
	publish(moved, true)
	moved.answer(t, mqtt.TypePubrec, 2)
	moved.send(t, mqtt.AppendAck(nil, moved.v, mqtt.Ack{Type: mqtt.TypePubrel, PacketID: 2}))
	moved.answer(t, mqtt.TypePubcomp, 2)

	<-time.After(still - time.Since(stopped))
	acked, stall := s.acked.Load()-acked, s.stall()
	if err := n.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d acknowledgements while %s stood still for %v, none for %v of it", acked, n.Name, since(stopped), stall)
	healthy(t, c)
	if err := old.end(); err != nil && !isOver(err) {
		t.Errorf("the old connection: %v", err)
	}
	publish(moved, false) // another one with the same identifier and payload
	moved.answer(t, mqtt.TypePubrec, 2)
	moved.send(t, mqtt.AppendAck(nil, moved.v, mqtt.Ack{Type: mqtt.TypePubrel, PacketID: 2}))
	moved.answer(t, mqtt.TypePubcomp, 2)
	moved.lastID = 2
	moved.says(t, rig.Message{Topic: "late", Payload: "last", QoS: 2})
	if got := watcher.hearsTo(t, "last"); len(got) != 4 {
		t.Errorf("a publication that was made again elsewhere: %q, want first, second, another second and last", got)
	}
	s.acknowledged(4000)
}

func allNodesAreKilled(t *testing.T, c *rig.Cluster, s *traffic) {
	s.acknowledged(3000)
	s.stall()
	begun := time.Now()
	c.Kill()
	for _, n := range c.Nodes {
		judgeLog(t, n)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ready := since(begun)
	s.acknowledged(1000)
	t.Logf("all nodes killed and started: ready after %v, no acknowledgement for %v", ready, s.stall())
	s.acknowledged(2000)
}
