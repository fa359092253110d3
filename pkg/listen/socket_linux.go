package listen

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// How long a silent or unreachable peer is believed to be alive. Devices roam
// and sleep: the keep-alive of MQTT is the one that ends them; these find
// peers that vanished without a word on connections that have none.
const (
	KeepAliveIdle     = 60 * time.Second
	KeepAliveInterval = 15 * time.Second
	KeepAliveCount    = 4
	// UserTimeout bounds how long written bytes may stay unacknowledged
	// (TCP_USER_TIMEOUT, RFC 5482).
	UserTimeout = 60 * time.Second
)

// inheritedKeepAlive is net.ListenConfig.KeepAlive: negative leaves accepted
// sockets as they come, since Linux hands them the listener's options.
const inheritedKeepAlive = -1

func controlListener(_, _ string, c syscall.RawConn) error { return setOptions(c) }

// ControlDial sets the same options on an outgoing socket; it is a
// net.Dialer.Control.
func ControlDial(_, _ string, c syscall.RawConn) error { return setOptions(c) }

func setOptions(c syscall.RawConn) error {
	var err error
	ctl := c.Control(func(fd uintptr) {
		for _, o := range []struct{ level, name, value int }{
			{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(KeepAliveIdle / time.Second)},
			{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(KeepAliveInterval / time.Second)},
			{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, KeepAliveCount},
			{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(UserTimeout / time.Millisecond)},
		} {
			if e := unix.SetsockoptInt(int(fd), o.level, o.name, o.value); e != nil {
				err = e
			}
		}
	})
	if ctl != nil {
		return ctl
	}
	return err
}

// tcpClose is the state of a socket whose connection is over (TCP_CLOSE of
// Linux's tcp_states.h).
const tcpClose = 7

// unsent is the number of bytes that the kernel still holds for the peer,
// sent and unacknowledged ones included. After a reset there is nobody to hold
// them for, though SIOCOUTQ goes on counting them.
func unsent(t *net.TCPConn) int {
	raw, err := t.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil && info.State != tcpClose {
			n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		}
	})
	return n
}

// gone is the error that has ended the connection: a reset, or a timeout of the
// kernel's. The state tells of it, not a look at the bytes, which would find
// those that came before. The error itself is told only once; who comes later
// hears of a reset.
func gone(t *net.TCPConn) error {
	raw, err := t.SyscallConn()
	if err != nil {
		return err
	}
	var end error
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil || info.State != tcpClose {
			return
		}
		end = unix.ECONNRESET
		if code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); err == nil && code != 0 {
			end = syscall.Errno(code)
		}
	})
	return end
}

// awaitReadable waits until a read would not block. Looking first is needed:
// the poller tells of bytes that come, not of those that are there.
func awaitReadable(t *net.TCPConn) error {
	raw, err := t.SyscallConn()
	if err != nil {
		return err
	}
	var one [1]byte
	return raw.Read(func(fd uintptr) bool {
		_, _, err := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return err != unix.EAGAIN
	})
}

// Descriptors is how many the process may hold open at once. The Go runtime has
// raised the soft limit to the hard one by the time that anybody asks.
func Descriptors() (n uint64, known bool) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, false
	}
	return limit.Cur, true
}
