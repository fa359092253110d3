package main

import (
	"fmt"
	"strings"

	"github.com/mqttlb/mqttlb/cmd/internal/command"
	"github.com/mqttlb/mqttlb/pkg/config"
)

const (
	// descriptorsEach is what a connection takes: the client's and the backend's.
	descriptorsEach = 2
	// fleet is how many connections a listener without a bound is taken to be
	// meant for.
	fleet = 5_000
)

// descriptorWarning says that the listeners may come to hold more connections
// than there are descriptors for; empty if there are enough.
func descriptorWarning(listeners []config.Listener, descriptors uint64) string {
	var bounded, wanted uint64
	var unbounded []string
	for _, l := range listeners {
		if n := uint64(l.Limits.Connections); n > 0 {
			bounded += n
			wanted += descriptorsEach * n
			continue
		}
		unbounded = append(unbounded, l.Name)
		wanted += descriptorsEach * fleet
	}
	if wanted <= descriptors {
		return ""
	}
	have := fmt.Sprintf("this process may have %d descriptors, enough for %d connections", descriptors, descriptors/descriptorsEach)
	const mend = "raise LimitNOFILE (ulimit -n)"
	if len(unbounded) > 0 {
		return fmt.Sprintf("%s, and %s without limits.connections: %s; %s, or set limits.connections",
			have, command.Count(len(unbounded), "listener"), strings.Join(unbounded, ", "), mend)
	}
	return fmt.Sprintf("%s, and limits.connections allow %d; %s, or lower limits.connections", have, bounded, mend)
}
