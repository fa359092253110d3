package rig

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPortHolderNamesTheListener(t *testing.T) {
	for _, tc := range []struct{ name, listen, ask string }{
		{"same address", "127.0.0.1:0", "127.0.0.1"},
		{"asked for every address", "127.0.0.1:0", "0.0.0.0"},
		{"asked for every IPv6 address", "127.0.0.1:0", "::"},
		{"listens on every address", "0.0.0.0:0", "127.0.0.1"},
		{"listens on every IPv6 address", "[::]:0", "127.0.0.1"},
		{"IPv6", "[::1]:0", "::1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, err := net.Listen("tcp", tc.listen)
			if err != nil {
				t.Skip(err)
			}
			defer l.Close()
			ask := netip.AddrPortFrom(netip.MustParseAddr(tc.ask), netip.MustParseAddrPort(l.Addr().String()).Port())
			h, found, err := PortHolder(ask.String())
			if err != nil || !found {
				t.Fatalf("found %v, error %v", found, err)
			}
			if h.PID != os.Getpid() || !strings.Contains(h.Command, filepath.Base(os.Args[0])) || h.User == "" {
				t.Errorf("holder %+v, want process %d", h, os.Getpid())
			}
		})
	}
}

func TestPortHolderFindsNobody(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	if h, found, err := PortHolder("127.0.0.2:" + port); found || err != nil {
		t.Errorf("other address: %v, found %v, error %v", h, found, err)
	}
	l.Close()
	if h, found, err := PortHolder(addr); found || err != nil {
		t.Errorf("closed: %v, found %v, error %v", h, found, err)
	}
}

func TestFreePortsDiffer(t *testing.T) {
	seen := map[int]bool{}
	for range 10 {
		ports, err := FreePorts(5)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range ports {
			if seen[p] {
				t.Errorf("port %d given twice", p)
			}
			seen[p] = true
		}
	}
}
