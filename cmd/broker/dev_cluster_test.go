package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// at is a broker that listens somewhere else.
func at(t *testing.T, n *devNode) *running {
	t.Helper()
	return &running{sockets: sockets{listeners: []net.Listener{elsewhere(n.clients)}, admin: elsewhere(n.admin)}}
}

// elsewhere is the address of a listener of another process.
type elsewhere string

func (e elsewhere) Accept() (net.Conn, error) { panic("it is another's") }
func (e elsewhere) Close() error              { return nil }
func (e elsewhere) Addr() net.Addr            { return e }
func (elsewhere) Network() string             { return "tcp" }
func (e elsewhere) String() string            { return string(e) }

// untilStatus asks for the status until it has the exit code and says all of this.
func untilStatus(t *testing.T, admin string, want int, says ...string) {
	t.Helper()
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for late := time.After(patience); ; {
		code, out := do("cluster", "status", "--admin", admin)
		silent := slices.ContainsFunc(says, func(s string) bool { return !strings.Contains(out, s) })
		if code == want && !silent {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("exit code %d, never %d and %q\n%s", code, want, says, out)
		}
	}
}

func TestDevRunsAClusterThatBearsALoss(t *testing.T) {
	d := startDev(t, 3)
	d.out.wait(t, "Ctrl-C ends all of it")
	first, last := d.nodes[0], d.nodes[2]
	untilStatus(t, first.admin, 0, "cluster dev of 3 nodes, asked broker-1: HEALTHY\n", "\nlog 0 ")
	sub, _ := at(t, first).connect(t, "subscriber")
	subscribe(t, sub, "demo/#")
	publishOne(t, at(t, last), "demo/hello", "hello")
	if m := publication(t, sub); string(m.Payload) != "hello" {
		t.Errorf("got %q", m.Payload)
	}

	if err := last.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.out.wait(t, "broker-3 has ended by itself (signal: killed). It is not started again")
	untilStatus(t, first.admin, 1, "DEGRADED", "broker-3  LOST")
	publishOne(t, at(t, d.nodes[1]), "demo/hello", "again")
	if m := publication(t, sub); string(m.Payload) != "again" {
		t.Errorf("got %q", m.Payload)
	}
	if code, _ := do("cluster", "remove", "broker-2", "--admin", first.admin); code != 1 {
		t.Errorf("a node that is there was removed: exit code %d", code)
	}

	// Without a second one there is no majority.
	if err := d.nodes[1].cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	untilShut(t, first.health)
	t.Logf("out for TCP checks %s after the majority was lost", time.Since(killed).Round(time.Millisecond))
	if took := time.Since(killed); took > 5*time.Second {
		t.Errorf("a node without a majority was in for checkers for %s", took)
	}
	untilStatus(t, first.admin, 3, "NO QUORUM", "broker-2  LOST")
	if err := d.end(t); err != nil {
		t.Errorf("%v\n%s", err, d.out)
	}
}

// untilShut waits until connecting is refused.
func untilShut(t *testing.T, address string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(patience); ; {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		c.Close()
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%s stays open", address)
		}
	}
}

func send(t *testing.T, c net.Conn, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}

// read reads one packet, which has to be of the type.
func read(t *testing.T, c net.Conn, want mqtt.PacketType) []byte {
	t.Helper()
	var got []byte
	for b := make([]byte, 1); ; {
		if is, _, remaining, n, err := mqtt.ParseFixedHeader(got); err == nil && len(got) >= n+remaining {
			if is != want {
				t.Fatalf("got %s % x, want %s", is, got, want)
			}
			return got
		}
		if _, err := c.Read(b); err != nil {
			t.Fatalf("waiting for %s: %v", want, err)
		}
		got = append(got, b[0])
	}
}

func subscribe(t *testing.T, c net.Conn, filter string) {
	t.Helper()
	s := mqtt.Subscribe{PacketID: 1}
	s.Subscriptions = s.Subscriptions.Append(mqtt.Subscription{Filter: []byte(filter), QoS: 1})
	send(t, c, mqtt.AppendSubscribe(nil, mqtt.V5, s))
	read(t, c, mqtt.TypeSuback)
}

// admitted connects until it is let in: while leaders are elected nobody is, and
// clients try again.
func admitted(t *testing.T, r *running, id string) net.Conn {
	t.Helper()
	for late := time.Now().Add(patience); ; {
		c, ack := r.connect(t, id)
		if ack.Code == 0 {
			return c
		}
		c.Close()
		if time.Now().After(late) {
			t.Fatalf("%s is never let in: CONNACK 0x%02x", id, ack.Code)
		}
	}
}

// publishOne connects, publishes with QoS 1, and waits for the acknowledgement.
func publishOne(t *testing.T, r *running, topic, payload string) {
	t.Helper()
	c := admitted(t, r, "publisher")
	defer c.Close()
	send(t, c, mqtt.AppendPublish(nil, mqtt.V5, mqtt.Publish{QoS: 1, PacketID: 1, Topic: []byte(topic), Payload: []byte(payload)}))
	read(t, c, mqtt.TypePuback)
}

// publication takes a message, and acknowledges it.
func publication(t *testing.T, c net.Conn) mqtt.Publish {
	t.Helper()
	m, _, err := mqtt.ParsePublish(read(t, c, mqtt.TypePublish), mqtt.V5)
	if err != nil {
		t.Fatal(err)
	}
	send(t, c, mqtt.AppendAck(nil, mqtt.V5, mqtt.Ack{Type: mqtt.TypePuback, PacketID: m.PacketID}))
	return m
}

// A broker of one node becomes a cluster of three: what waits for a client that is
// away comes along.
func TestOneNodeBecomesThree(t *testing.T) {
	old := single(t, "old")
	r := running1(t, old)
	sub, _ := r.connect(t, "subscriber")
	subscribe(t, sub, "demo/#")
	sub.Close()
	publishOne(t, r, "demo/hello", "waits")
	if err := r.end(t); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "all.export")
	if code, out := do("export", file, "-c", old); code != 0 {
		t.Fatalf("export: exit code %d\n%s", code, out)
	}

	t.Setenv(asBroker, "1")
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	nodes := devOptions{nodes: 3, data: t.TempDir(), port: freeRow(t, 3)}.all()
	logs := newScreen()
	all := &lines{w: logs}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the nodes' logs:\n%s", logs)
		}
	})
	defer func() {
		if err := stop(nodes); err != nil {
			t.Error(err)
		}
	}()
	for _, n := range nodes {
		if err := n.prepare(nodes); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range nodes[1:] {
		if err := n.start(binary, all); err != nil {
			t.Fatal(err)
		}
	}
	if code, out := do("import", file, "-c", nodes[0].config); code != 0 || !strings.Contains(out, ": 2 sessions, 1 message, ") {
		t.Fatalf("import: exit code %d\n%s", code, out)
	}
	if err := nodes[0].start(binary, all); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := allReady(ctx, nodes); err != nil {
		t.Fatal(err)
	}
	for i, n := range []*devNode{nodes[2], nodes[0]} {
		c, ack := at(t, n).connect(t, "subscriber")
		if !ack.SessionPresent {
			t.Fatalf("%s: the session did not come along", n.name)
		}
		if i == 0 {
			if m := publication(t, c); string(m.Payload) != "waits" || m.Dup {
				t.Errorf("got %q, DUP %t", m.Payload, m.Dup)
			}
		}
		send(t, c, mqtt.AppendPingreq(nil))
		read(t, c, mqtt.TypePingresp)
	}
}
