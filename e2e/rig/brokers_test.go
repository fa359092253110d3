package rig_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/e2e/rig/rigtest"
)

func TestAnyTwoClientsOfAStarHearEachOther(t *testing.T) {
	ctx := rigtest.Context(t, time.Minute)
	star := rigtest.Star(t, 3)
	subs := subscribeToEach(t, star)
	for qos := range 3 {
		for i := range star.Brokers {
			publishAndExpect(ctx, t, star, i, qos, subs)
		}
	}
	// Each has had every message once and in order: nothing went round.
	for i, sub := range subs {
		if n := countMessages(sub); n != 9 {
			t.Errorf("subscriber at broker %d received %d messages, want 9", i+1, n)
		}
	}
}

func TestASpokeThatWasKilledComesBackIntoTheStar(t *testing.T) {
	ctx := rigtest.Context(t, time.Minute)
	star := rigtest.Star(t, 3)
	subs := subscribeToEach(t, star)
	star.Brokers[2].Kill()
	publishAndExpect(ctx, t, star, 1, 1, subs[:2])
	if err := star.Restart(ctx, 2); err != nil {
		t.Fatal(err)
	}
	subs[2] = rigtest.Subscribe(t, rig.Client{Addr: star.Brokers[2].Addr(), QoS: 2}, "#")
	for i := range star.Brokers {
		publishAndExpect(ctx, t, star, i, 1, subs)
	}
}

func TestSpokesCatchUpWhenTheHubComesBack(t *testing.T) {
	ctx := rigtest.Context(t, time.Minute)
	star := rigtest.Star(t, 3)
	sub := rigtest.Subscribe(t, rig.Client{Addr: star.Brokers[2].Addr(), QoS: 2}, "#")
	star.Brokers[0].Kill()
	if err := (rig.Client{Addr: star.Brokers[1].Addr(), QoS: 1}).Publish(ctx, "held", "until the hub is back"); err != nil {
		t.Fatal(err)
	}
	if err := star.Restart(ctx, 0); err != nil {
		t.Fatal(err)
	}
	publishAndExpect(ctx, t, star, 1, 1, nil)
	// In any order: mosquitto may send first what came last when a bridge is back.
	want := map[string]bool{"held": true, "from/2": true}
	for len(want) > 0 {
		m, err := sub.Next(ctx)
		if err != nil {
			t.Fatalf("%v; still to come: %v", err, want)
		}
		delete(want, m.Topic)
	}
}

// subscribeToEach gives one subscriber to everything at each broker.
func subscribeToEach(t *testing.T, star *rig.Star) []*rig.Subscriber {
	t.Helper()
	var subs []*rig.Subscriber
	for _, b := range star.Brokers {
		subs = append(subs, rigtest.Subscribe(t, rig.Client{Addr: b.Addr(), QoS: 2}, "#"))
	}
	return subs
}

// publishAndExpect publishes at broker i and wants that as each subscriber's
// next message.
func publishAndExpect(ctx context.Context, t *testing.T, star *rig.Star, i, qos int, subs []*rig.Subscriber) {
	t.Helper()
	want := rig.Message{Topic: fmt.Sprintf("from/%d", i+1), Payload: fmt.Sprintf("at QoS %d:\nü", qos), QoS: qos}
	if err := (rig.Client{Addr: star.Brokers[i].Addr(), QoS: qos}).Publish(ctx, want.Topic, want.Payload); err != nil {
		t.Fatal(err)
	}
	for _, sub := range subs {
		if got, err := sub.Next(ctx); err != nil || got != want {
			t.Fatalf("received %+v, %v; want %+v", got, err, want)
		}
	}
}

func countMessages(s *rig.Subscriber) int {
	n := 0
	for _, line := range s.Log().Since(0) {
		if strings.HasPrefix(line, "message: ") {
			n++
		}
	}
	return n
}

func TestMosquittoLetsInOnlyWhomItKnows(t *testing.T) {
	ctx := rigtest.Context(t, time.Minute)
	m := rigtest.Mosquitto(t, rig.MosquittoOptions{Users: map[string]string{"ada": "secret"}})
	if err := (rig.Client{Addr: m.Addr(), Username: "ada", Password: "secret"}).Publish(ctx, "t", "x"); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]rig.Client{
		"wrong password": {Addr: m.Addr(), Username: "ada", Password: "guess"},
		"anonymous":      {Addr: m.Addr()},
	} {
		if err := c.Publish(ctx, "t", "x"); err == nil {
			t.Errorf("%s was let in", name)
		}
	}
}

func TestMosquittoSpeaksTLSAndWantsACertificate(t *testing.T) {
	for _, key := range []rig.KeyType{rig.ECDSA, rig.RSA} {
		t.Run(string(key), func(t *testing.T) {
			ctx := rigtest.Context(t, time.Minute)
			dir := t.TempDir()
			root := must(rig.NewCA("root"))(t)
			below := must(root.Intermediate("below"))(t)
			ca := must(root.WriteCert(dir, "ca"))(t)
			server := must(below.Issue(rig.Request{Name: "server", Key: key, Hosts: []string{"127.0.0.1"}}))(t)
			serverCert, serverKey, err := server.Write(dir, "server")
			if err != nil {
				t.Fatal(err)
			}
			device := must(below.Issue(rig.Request{Name: "device-1", Key: key, Client: true}))(t)
			deviceCert, deviceKey, err := device.Write(dir, "device")
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range []string{serverKey, deviceKey} {
				if s, err := os.Stat(f); err != nil || s.Mode().Perm() != 0o600 {
					t.Errorf("%s: mode %v, %v", f, s.Mode(), err)
				}
			}
			m := rigtest.Mosquitto(t, rig.MosquittoOptions{TLS: &rig.MosquittoTLS{Cert: serverCert, Key: serverKey, ClientCA: ca}})
			if err := (rig.Client{Addr: m.Addr(), CA: ca, Cert: deviceCert, Key: deviceKey}).Publish(ctx, "t", "x"); err != nil {
				t.Error(err)
			}
			if err := (rig.Client{Addr: m.Addr(), CA: ca}).Publish(ctx, "t", "x"); err == nil {
				t.Error("a client without a certificate was let in")
			}
		})
	}
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestRabbitMQBelievesTheProxyHeader(t *testing.T) {
	ctx := rigtest.Context(t, 3*time.Minute)
	dir := t.TempDir()
	r := rigtest.RabbitMQ(t, rig.RabbitMQOptions{Dir: dir, ProxyProtocol: true})
	c, err := net.Dial("tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	deadline, _ := ctx.Deadline()
	c.SetDeadline(deadline)
	const connect = "\x10\x13\x00\x04MQTT\x04\x02\x00\x3c\x00\x07proxied"
	if _, err := c.Write([]byte("PROXY TCP4 192.0.2.7 192.0.2.1 40000 1883\r\n" + connect)); err != nil {
		t.Fatal(err)
	}
	connack := make([]byte, 4)
	if _, err := c.Read(connack); err != nil || string(connack) != "\x20\x02\x00\x00" {
		t.Fatalf("CONNACK % x, %v", connack, err)
	}
	hosts, err := r.MQTTConnections(ctx)
	if err != nil || hosts["proxied"] != "192.0.2.7" {
		t.Errorf("connections %v, %v", hosts, err)
	}

	if n := len(processesOf(t, dir)); n < 2 {
		t.Errorf("%d processes of the node found, want the node and its port mapper at least", n)
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	// Erlang's helpers see that the node is gone and end by themselves.
	left := processesOf(t, dir)
	for ; len(left) > 0 && ctx.Err() == nil; left = processesOf(t, dir) {
		runtime.Gosched()
	}
	if len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// processesOf are the processes that have the folder in their environment.
func processesOf(t *testing.T, dir string) (found []string) {
	t.Helper()
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, environ := range environs {
		// Errors are other users' processes, and those that end meanwhile.
		if env, _ := os.ReadFile(environ); bytes.Contains(env, []byte("="+dir)) {
			cmdline, _ := os.ReadFile(filepath.Join(filepath.Dir(environ), "cmdline"))
			found = append(found, string(cmdline))
		}
	}
	return found
}
