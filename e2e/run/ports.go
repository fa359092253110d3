package main

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/mqttlb/mqttlb/e2e/rig"
)

// busyPorts says which ports are taken, by whom, and what to type instead.
type busyPorts []busyPort

type busyPort struct {
	port
	why  string
	free int // another one; 0 if none was found
}

func (b busyPorts) Error() string {
	var s strings.Builder
	var others []string
	for _, p := range b {
		line(&s, "port %d (%s) can't be used: %s", p.number, p.use, p.why)
		if other := fmt.Sprintf("%s=%d", p.makeVar, p.free); p.free != 0 && !slices.Contains(others, other) {
			others = append(others, other)
		}
	}
	line(&s, "Nothing was started. Free the ports, or choose others:")
	line(&s, "\n    make run %s", strings.Join(others, " "))
	return s.String()
}

// checkPorts gives busyPorts unless all ports can be listened on.
func checkPorts(ports []port) error {
	var busy busyPorts
	for _, p := range ports {
		err := tryListen(p.number)
		if err == nil {
			continue
		}
		b := busyPort{port: p, why: err.Error()}
		if errors.Is(err, syscall.EADDRINUSE) {
			b.why = "in use, and nothing listens there: probably the end of an outgoing connection"
			if h, found, err := rig.PortHolder(rig.Local(p.number)); err == nil && found {
				b.why = "held by " + h.String()
			}
		}
		b.free = freeAbove(p, ports)
		busy = append(busy, b)
	}
	if len(busy) > 0 {
		return busy
	}
	return nil
}

func tryListen(port int) error {
	l, err := net.Listen("tcp", rig.Local(port))
	if err != nil {
		return err
	}
	return l.Close()
}

// freeAbove looks for a port to suggest that none of the others wants. Ports of
// one variable move together, so for them it is the first of a set that is free.
func freeAbove(p port, others []port) int {
	first := p.number
	for _, o := range others {
		if o.makeVar == p.makeVar {
			first = min(first, o.number)
		}
	}
	above := []int{p.number - first}
	for _, o := range others {
		if o.makeVar == p.makeVar {
			above = append(above, o.number-first)
		}
	}
	usable := func(n int) bool {
		return n <= 65535 && tryListen(n) == nil &&
			!slices.ContainsFunc(others, func(o port) bool { return o.number == n && o.makeVar != p.makeVar })
	}
	for n := max(first, 1024) + 1; n <= first+1000; n++ {
		if !slices.ContainsFunc(above, func(more int) bool { return !usable(n + more) }) {
			return n
		}
	}
	return 0
}
