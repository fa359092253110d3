package rig

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Free ports come from below the range that the kernel takes the ports of
// outgoing connections from, so that a client of some test can't sit on a port
// between its choice here and its use.
const (
	firstFreePort = 20000
	lastFreePort  = 29999
)

var given struct {
	sync.Mutex
	ports map[int]bool
}

// FreePorts gives n ports of 127.0.0.1 that nothing listens on. No port is
// given twice in one process.
func FreePorts(n int) ([]int, error) {
	given.Lock()
	defer given.Unlock()
	if given.ports == nil {
		given.ports = map[int]bool{}
	}
	var ports []int
	for range 10 * (lastFreePort - firstFreePort) {
		if len(ports) == n {
			return ports, nil
		}
		p := firstFreePort + rand.IntN(lastFreePort-firstFreePort+1)
		if given.ports[p] {
			continue
		}
		l, err := net.Listen("tcp", Local(p))
		if err != nil {
			continue
		}
		l.Close()
		given.ports[p] = true
		ports = append(ports, p)
	}
	return nil, fmt.Errorf("no %d free ports between %d and %d on 127.0.0.1", n, firstFreePort, lastFreePort)
}

// FreePort gives one of [FreePorts].
func FreePort() (int, error) {
	ports, err := FreePorts(1)
	if err != nil {
		return 0, err
	}
	return ports[0], nil
}

// Local is the address of a port on 127.0.0.1.
func Local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Holder is the process that listens on a port.
type Holder struct {
	// PID is 0 where the process belongs to another user and so can't be seen.
	PID     int
	Command string // e.g. "/usr/sbin/mosquitto -c /etc/mosquitto/mosquitto.conf", cut when long
	User    string
}

func (h Holder) String() string {
	if h.PID == 0 {
		return fmt.Sprintf("a process of user %s (only root sees which)", h.User)
	}
	return fmt.Sprintf("process %d of user %s: %s", h.PID, h.User, h.Command)
}

// PortHolder tells who listens where a listener on addr ("127.0.0.1:1883",
// "[::]:1883") would be in the way; false when nobody does. It reads /proc, so
// it needs no lsof.
func PortHolder(addr string) (Holder, bool, error) {
	want, err := netip.ParseAddrPort(addr)
	if err != nil {
		return Holder{}, false, err
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		socks, err := listeningSockets(table)
		if errors.Is(err, os.ErrNotExist) { // a kernel without IPv6
			continue
		}
		if err != nil {
			return Holder{}, false, err
		}
		for _, s := range socks {
			if inTheWay(s.addr, want) {
				return s.holder(), true, nil
			}
		}
	}
	return Holder{}, false, nil
}

// inTheWay tells whether two listeners can't both be.
func inTheWay(a, b netip.AddrPort) bool {
	return a.Port() == b.Port() &&
		(a.Addr().Unmap() == b.Addr().Unmap() || a.Addr().IsUnspecified() || b.Addr().IsUnspecified())
}

type socket struct {
	addr  netip.AddrPort
	uid   string
	inode string
}

func listeningSockets(table string) ([]socket, error) {
	f, err := os.Open(table)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var socks []socket
	lines := bufio.NewScanner(f)
	lines.Scan() // the headings
	for lines.Scan() {
		// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode …
		col := strings.Fields(lines.Text())
		const listen = "0A"
		if len(col) < 10 || col[3] != listen {
			continue
		}
		addr, err := parseKernelAddr(col[1])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", table, err)
		}
		socks = append(socks, socket{addr: addr, uid: col[7], inode: col[9]})
	}
	return socks, lines.Err()
}

// parseKernelAddr reads "0100007F:075B": words of 4 bytes in the machine's
// order (little-endian wherever this runs), then the port.
func parseKernelAddr(s string) (netip.AddrPort, error) {
	host, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	for word := range slices.Chunk(b, 4) {
		slices.Reverse(word)
	}
	addr, ok := netip.AddrFromSlice(b)
	p, err := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil {
		return netip.AddrPort{}, fmt.Errorf("no address: %q", s)
	}
	return netip.AddrPortFrom(addr, uint16(p)), nil
}

func (s socket) holder() Holder {
	h := Holder{User: s.uid}
	if u, err := user.LookupId(s.uid); err == nil {
		h.User = u.Username
	}
	// Errors are the other users' processes, and those that end meanwhile.
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err != nil || to != "socket:["+s.inode+"]" {
			continue
		}
		h.PID, _ = strconv.Atoi(strings.Split(fd, "/")[2])
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", h.PID))
		h.Command = oneLine(string(cmdline))
		break
	}
	return h
}

// oneLine makes a line for people of a kernel's command line, whose words end
// in NUL.
func oneLine(cmdline string) string {
	const most = 100
	s := []rune(strings.Join(strings.Fields(strings.ReplaceAll(cmdline, "\x00", " ")), " "))
	if len(s) > most {
		return string(s[:most-1]) + "…"
	}
	return string(s)
}
