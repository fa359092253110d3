package e2e

import (
	"crypto/x509"
	"fmt"

	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// inNamespace says that the test runs in a network namespace of its own.
const inNamespace = "E2E_IN_NAMESPACE" // no MQTTLB_: those are the programs' own

// apart runs the test that calls it once more, in a network namespace of its own,
// and gives true in there.
func apart(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inNamespace) != "" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("it makes network namespaces, and needs root for that")
	}
	cmd := rig.Apart(t.Context(), must(os.Executable())(t), "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if t.Logf("in a network namespace of its own:\n%s", out); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in a network namespace of its own: %v", err)
	}
	return false
}

// spread starts a cluster whose nodes have a network namespace each, and trust one
// another by certificates.
func spread(t *testing.T, size int) (*rig.Cluster, *rig.Namespaces) {
	t.Helper()
	spaces := must(rig.NewNamespaces(t.Context(), size))(t)
	dir := t.TempDir()
	ca := must(rig.NewCA("nodes"))(t)
	file := must(ca.WriteCert(dir, "ca"))(t)
	var shown []rig.ClusterTLS
	for i, host := range spaces.Hosts {
		own := must(ca.Issue(rig.Request{Name: spaces.Names[i], Hosts: []string{host}, Alter: forBothSides}))(t)
		cert, key, err := own.Write(dir, spaces.Names[i])
		if err != nil {
			t.Fatal(err)
		}
		shown = append(shown, rig.ClusterTLS{Cert: cert, Key: key, CA: file})
	}
	return startCluster(t, rig.ClusterOptions{Size: size, Hosts: spaces.Hosts, Namespaces: spaces.Names, TLS: shown, Extra: "durability: 1s\n"}), spaces
}

// forBothSides makes a certificate for a node, which connects and is connected to.
func forBothSides(c *x509.Certificate) {
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
}

// A node that the others can't reach, while clients and mqttlb can: it must promise
// nothing, and send its clients to where they are served.
func TestANodeThatIsCutOffPromisesNothing(t *testing.T) {
	must(rig.BuildBroker())(t) // for its commands; not when time counts
	if !apart(t) {
		return
	}
	c, cut := spread(t, 3)
	l, addr := before(t, c, "tcp")
	l.run(t)
	awaitAll(t, l, c)
	const alone = 2
	n, other := c.Nodes[alone], c.Nodes[0]
	s := startTraffic(t, trafficOptions{name: "partition", addr: addr, writers: 2, readers: 12, rate: 200, silence: 4 * time.Second})
	s.acknowledged(200)

	idle, _ := nodeWay(n).keeper(t, "idle")
	idle.wants(t, 1, "cut/news")
	publisher, _ := nodeWay(n).keeper(t, "publisher")
	publisher.says(t, rig.Message{Topic: "cut/kept", Payload: "old", QoS: 1, Retained: true})
	busy, _ := nodeWay(n).speak(t, mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "busy"})

	if err := cut.Cut(t.Context(), alone); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	awaited := mqtt.Publish{QoS: 1, PacketID: 77, Topic: []byte("cut/news"), Payload: []byte("from the minority")}
	for _, d := range []*speaker{publisher, busy} {
		d.send(t, mqtt.AppendPublish(nil, d.v, awaited))
	}
	ended := make(chan string, 3)
	watch := func(d *speaker) {
		for {
			p, err := d.packet()
			switch {
			case err != nil:
				ended <- fmt.Sprintf("%s after %v", d.id, since(begun))
				return
			case mqtt.PacketType(p[0]>>4) == mqtt.TypePuback:
				t.Errorf("%s: acknowledged %v after the node was cut off", d.id, since(begun))
			}
		}
	}
	for _, d := range []*speaker{idle, publisher, busy} {
		go watch(d)
	}
	await(t, "the health-check port to close", func() bool { return refusesConnections(t, n.HealthCheck()) })
	refuses := since(begun)
	for _, o := range []mqtt.ConnectOptions{
		{Version: mqtt.V311, ClientID: "late", CleanStart: true}, {Version: mqtt.V5, ClientID: "late", CleanStart: true},
		{Version: mqtt.V5, ClientID: "idle", Properties: kept},
	} {
		_, ack, err := nodeWay(n).connect(t, o)
		if want := map[mqtt.Version]byte{mqtt.V311: 3, mqtt.V5: byte(mqtt.ServerUnavailable)}[o.Version]; err != nil || ack.Code != want {
			t.Errorf("CONNECT of %v alone: 0x%02x, %v; want 0x%02x", o.Version, ack.Code, err, want)
		}
	}
	reason := l.awaitState(t, "brokers", n.Options.Name, "down")
	t.Logf("cut off: the health-check port refuses after %v, mqttlb knows after %v (%s)", refuses, since(begun), reason)
	for range cap(ended) {
		t.Logf("gone: %s", <-ended)
	}
	if took := time.Since(begun); took > 10*time.Second+3*time.Second { // a loaded machine gets some grace
		t.Errorf("its clients are gone after %v, want 10s", took)
	}
	asked := time.Now()
	awaitStatus(t, n, 3, "NO QUORUM")
	t.Logf("broker cluster status alone took %v", since(asked))

	// The others go on, with its clients.
	awaitStatus(t, other, 1, n.Options.Name+"  LOST")
	moved, ack := nodeWay(other).insistent(t, mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "idle", Properties: kept})
	if !ack.SessionPresent {
		t.Error("the session did not survive the loss of its node")
	}
	teller, _ := nodeWay(c.Nodes[1]).insistent(t, mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "publisher", Properties: kept})
	again := awaited
	again.Dup = true
	teller.send(t, mqtt.AppendPublish(nil, teller.v, again))
	teller.answer(t, mqtt.TypePuback, awaited.PacketID)
	teller.says(t, rig.Message{Topic: "cut/kept", Payload: "new", QoS: 1, Retained: true})
	if m := moved.hears(t); m.Payload != "from the minority" {
		t.Errorf("%+v, want what was published again", m)
	}
	s.acknowledged(200)

	if err := cut.Heal(t.Context(), alone); err != nil {
		t.Fatal(err)
	}
	healed := time.Now()
	healthy(t, c)
	t.Logf("healed: healthy after %v", since(healed))
	l.awaitState(t, "brokers", n.Options.Name, "up")
	t.Logf("healed: mqttlb knows after %v", since(healed))
	late, _ := nodeWay(n).insistent(t, mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "late", CleanStart: true})
	late.wants(t, 1, "cut/kept")
	if m := late.hears(t); m.Payload != "new" || !m.Retained {
		t.Errorf("%+v retained on the node that was cut off, want the new one", m)
	}
	if back, ack := nodeWay(n).keeper(t, "idle"); ack.SessionPresent {
		teller.says(t, rig.Message{Topic: "cut/news", Payload: "end", QoS: 1})
		back.hearsTo(t, "end")
	} else {
		t.Error("the session is not on the node that was cut off")
	}
	s.acknowledged(200)
	s.judge()
}
