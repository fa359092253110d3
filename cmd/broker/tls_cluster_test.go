package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/cmd/internal/command"
	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/pkg/config"
)

// A cluster whose nodes show each other certificates; what it has moves to a
// single node.
func TestThreeNodesOverTLSBecomeOne(t *testing.T) {
	dir := t.TempDir()
	ca, err := rig.NewCA("nodes")
	if err != nil {
		t.Fatal(err)
	}
	authority, err := ca.WriteCert(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	nodes := devOptions{nodes: 3, data: dir, port: freeRow(t, 3)}.all()
	for _, n := range nodes {
		c, err := ca.Issue(rig.Request{Name: n.name, Hosts: []string{"127.0.0.1"}, Alter: func(x *x509.Certificate) {
			x.ExtKeyUsage = append(x.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
		}})
		if err != nil {
			t.Fatal(err)
		}
		cert, key, err := c.Write(dir, n.name)
		if err != nil {
			t.Fatal(err)
		}
		tls := fmt.Sprintf("\n  tls: {certificate: %q, key: %q, ca: %q}\nlisteners:", cert, key, authority)
		yaml := strings.Replace(n.yaml(nodes), "\nlisteners:", tls, 1)
		if err := os.WriteFile(n.config, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var all []*running
	for _, n := range nodes {
		h, err := assemble(n.config, nil, func(config.Log) *slog.Logger { return slog.New(slog.DiscardHandler) })
		if err != nil {
			t.Fatal(err)
		}
		if h.files.Cluster == nil || h.storeOptions().Cluster.TLS == nil {
			t.Fatal("the nodes speak in the clear")
		}
		s, err := h.bind(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		r := &running{s, cancel, make(chan error, 1)}
		go func() { r.over <- h.runOn(ctx, s) }()
		all = append(all, r)
	}
	for _, n := range nodes {
		untilStatus(t, n.admin, command.ExitOK, "HEALTHY")
	}
	sub := admitted(t, all[0], "subscriber")
	subscribe(t, sub, "demo/#")
	sub.Close()
	publishOne(t, all[1], "demo/hello", "waits")

	if err := all[2].end(t); err != nil {
		t.Error(err)
	}
	file := filepath.Join(dir, "all.export")
	if code, out := do("export", file, "-c", nodes[2].config); code != 0 || !strings.Contains(out, "2 sessions, 1 message,") {
		t.Errorf("export: exit code %d\n%s", code, out)
	}
	var ending sync.WaitGroup
	for _, r := range all[:2] {
		ending.Go(func() {
			r.stop()
			select {
			case err := <-r.over:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(patience):
				t.Error("a node does not end")
			}
		})
	}
	ending.Wait()

	fresh := single(t, "fresh")
	if code, out := do("import", file, "-c", fresh); code != 0 {
		t.Fatalf("import: exit code %d\n%s", code, out)
	}
	r := running1(t, fresh)
	c, ack := r.connect(t, "subscriber")
	if !ack.SessionPresent {
		t.Fatal("the session did not come along")
	}
	if m := publication(t, c); string(m.Payload) != "waits" {
		t.Errorf("got %q", m.Payload)
	}
	if err := r.end(t); err != nil {
		t.Fatal(err)
	}
}
