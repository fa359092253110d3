//go:build !linux

package listen

import (
	"net"
	"syscall"
)

// Elsewhere than on Linux accepted sockets get Go's own keep-alive defaults,
// and there is no TCP_USER_TIMEOUT.
const inheritedKeepAlive = 0

func controlListener(_, _ string, _ syscall.RawConn) error { return nil }

// ControlDial is a net.Dialer.Control.
func ControlDial(_, _ string, _ syscall.RawConn) error { return nil }

func unsent(*net.TCPConn) int { return 0 }

// gone is not known elsewhere: the next read or write tells.
func gone(*net.TCPConn) error { return nil }

// awaitReadable does not wait elsewhere: the read that follows does.
func awaitReadable(*net.TCPConn) error { return nil }

// Descriptors is not known elsewhere.
func Descriptors() (n uint64, known bool) { return 0, false }
