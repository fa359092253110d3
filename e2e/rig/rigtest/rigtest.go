// Package rigtest ties the parts of package rig to a test's life: each is set
// up in a folder of the test, fails the test when it can't be, is stopped when
// the test ends, and shows the end of its log when the test has failed.
package rigtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/e2e/rig"
)

// Main is what TestMain of a package calls that needs Debian packages: it
// installs them if need be, and runs the tests.
func Main(m *testing.M, packages ...string) {
	if err := rig.Install(context.Background(), packages...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	os.Exit(m.Run())
}

// Context ends after the limit, so that what waits can say what it waits for
// before the test as a whole runs out of time.
func Context(t testing.TB, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// Mosquitto starts a broker; the folder is the test's where o names none.
func Mosquitto(t testing.TB, o rig.MosquittoOptions) *rig.Mosquitto {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	m, err := rig.StartMosquitto(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { finish(t, m) })
	return m
}

// Star starts n bridged brokers, named mosquitto-1 and so on.
func Star(t testing.TB, n int) *rig.Star {
	t.Helper()
	dir := t.TempDir()
	var brokers []rig.MosquittoOptions
	for i := range n {
		brokers = append(brokers, rig.MosquittoOptions{Dir: dir, Name: fmt.Sprintf("mosquitto-%d", i+1)})
	}
	s, err := rig.StartStar(t.Context(), brokers...)
	if err != nil {
		t.Fatal(err)
	}
	for _, broker := range s.Brokers { // cleaned up in the reverse order: the hub last
		t.Cleanup(func() { finish(t, broker) })
	}
	return s
}

// RabbitMQ starts a node; the folder is the test's where o names none.
func RabbitMQ(t testing.TB, o rig.RabbitMQOptions) *rig.RabbitMQ {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	r, err := rig.StartRabbitMQ(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { finish(t, r) })
	return r
}

// Subscribe starts a subscriber.
func Subscribe(t testing.TB, c rig.Client, filter string) *rig.Subscriber {
	t.Helper()
	s, err := c.Subscribe(t.Context(), filter)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { finish(t, s) })
	return s
}

// Mqttlb starts the built binary with the given configuration and returns
// when its admin address, which the configuration must name, says ready.
func Mqttlb(t testing.TB, admin, config string) *rig.Process {
	t.Helper()
	binary, err := rig.Build()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "mqttlb.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := rig.StartMqttlb(Context(t, 30*time.Second), rig.MqttlbOptions{Binary: binary, Config: file, Admin: admin})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { finish(t, p) })
	return p
}

// finish stops a part at the end of a test.
func finish(t testing.TB, part interface{ Stop() error }) {
	if err := part.Stop(); err != nil {
		t.Error(err)
	}
	if logged, ok := part.(interface{ Log() *rig.Log }); ok && t.Failed() {
		t.Logf("the last lines of %T:\n%s", part, logged.Log().Tail(30))
	}
}
