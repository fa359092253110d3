package main

import (
	"testing"

	"github.com/mqttlb/mqttlb/pkg/config"
)

func TestDescriptorWarning(t *testing.T) {
	listeners := func(limits ...int) (all []config.Listener) {
		for i, n := range limits {
			l := config.Listener{Name: string(rune('a' + i))}
			l.Limits.Connections = n
			all = append(all, l)
		}
		return all
	}
	for _, row := range []struct {
		name        string
		listeners   []config.Listener
		descriptors uint64
		want        string
	}{
		{"enough", listeners(250, 250), 1000, ""},
		{"one too few", listeners(250, 250), 999,
			"this process may have 999 descriptors, enough for 499 connections, and limits.connections allow 500; raise LimitNOFILE (ulimit -n), or lower limits.connections"},
		{"no bound, and many", listeners(0), 1 << 20, ""},
		{"no bound, and few", listeners(100, 0, 0), 1024,
			"this process may have 1024 descriptors, enough for 512 connections, and 2 listeners without limits.connections: b, c; raise LimitNOFILE (ulimit -n), or set limits.connections"},
	} {
		if got := descriptorWarning(row.listeners, row.descriptors); got != row.want {
			t.Errorf("%s: %q\nwant %q", row.name, got, row.want)
		}
	}
}
