package listen

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func option(t *testing.T, c net.Conn, level, name int) int {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	v := -1
	if err := raw.Control(func(fd uintptr) {
		if v, err = unix.GetsockoptInt(int(fd), level, name); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return v
}

// The options are set once, on the listening socket: accepted ones have them
// from there.
func TestSocketsHaveTheirOptions(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := Listen(context.Background(), address)
		if err != nil {
			t.Logf("%s: %v", address, err)
			continue
		}
		defer l.Close()
		d := net.Dialer{Control: ControlDial, KeepAlive: -1}
		c, err := d.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for side, conn := range map[string]net.Conn{"accepted": s, "dialled": c} {
			for _, o := range []struct {
				what        string
				level, name int
				want        int
			}{
				{"SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
				{"TCP_KEEPIDLE", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(KeepAliveIdle / time.Second)},
				{"TCP_KEEPINTVL", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(KeepAliveInterval / time.Second)},
				{"TCP_KEEPCNT", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, KeepAliveCount},
				{"TCP_USER_TIMEOUT", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(UserTimeout / time.Millisecond)},
				{"TCP_NODELAY", unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
			} {
				if got := option(t, conn, o.level, o.name); got != o.want {
					t.Errorf("%s, %s: %s is %d, want %d", address, side, o.what, got, o.want)
				}
			}
		}
	}
}

// A reset is known of without a read, whatever lies before it; a FIN is not one.
func TestGoneTellsAResetFromAFIN(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(client *net.TCPConn)
		gone bool
	}{
		{"lives", func(*net.TCPConn) {}, false},
		{"has sent bytes", func(c *net.TCPConn) { _, _ = c.Write([]byte("x")) }, false},
		{"FIN", func(c *net.TCPConn) { _ = c.CloseWrite() }, false},
		{"RST", func(c *net.TCPConn) { _ = c.SetLinger(0); c.Close() }, true},
		{"bytes, then RST", func(c *net.TCPConn) { _, _ = c.Write([]byte("x")); _ = c.SetLinger(0); c.Close() }, true},
		{"FIN, then RST", func(c *net.TCPConn) { _ = c.CloseWrite(); _ = c.SetLinger(0); c.Close() }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client, server := tcpPair(t)
			s := NewStream(server)
			tt.end(client)
			if !tt.gone {
				if err := s.Gone(); err != nil {
					t.Error(err)
				}
				return
			}
			for deadline := time.Now().Add(10 * time.Second); s.Gone() == nil; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("not noticed")
				}
			}
			if err := s.Gone(); err == nil {
				t.Error("forgotten when it was asked a second time")
			}
		})
	}
}

// A low soft limit, as many shells and units have it, is not ours: Go raises it
// when it starts. The test runs itself again under one.
func TestTheSoftLimitOfDescriptorsIsRaised(t *testing.T) {
	if os.Getenv("UNDER_A_LOW_LIMIT") != "" {
		n, known := Descriptors()
		fmt.Println("descriptors:", n, known)
		return
	}
	if n, _ := Descriptors(); n <= 64 {
		t.Skip("the hard limit is as low as that")
	}
	again := exec.Command("sh", "-c", `ulimit -S -n 64; exec "$0" -test.run='^TestTheSoftLimitOfDescriptorsIsRaised$'`, os.Args[0])
	again.Env = append(os.Environ(), "UNDER_A_LOW_LIMIT=1")
	out, err := again.CombinedOutput()
	var n uint64
	if _, scan := fmt.Sscanf(string(out), "descriptors: %d true", &n); err != nil || scan != nil || n <= 64 {
		t.Errorf("%v, %s", err, out)
	}
}
