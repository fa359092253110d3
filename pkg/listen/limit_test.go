package listen

import (
	"net/netip"
	"testing"
	"time"
)

func TestLimiterBoundsConnectionsOfOneAddress(t *testing.T) {
	l := NewLimiter(Limit{Connections: 2})
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	now := time.Unix(1000, 0)
	for i, want := range []Entry{Welcome, Welcome, TooMany, TooMany, FarTooMany, FarTooMany} {
		if got := l.Enter(a, now); got != want {
			t.Errorf("connection %d: %v, want %v", i+1, got, want)
		}
	}
	if got := l.Enter(b, now); got != Welcome {
		t.Errorf("another address: %v", got)
	}
	for range 4 { // those that were FarTooMany are not counted
		l.Leave(a)
	}
	if got := l.Enter(a, now); got != Welcome {
		t.Errorf("after all left: %v", got)
	}
}

func TestLimiterBoundsTheRateOfOneAddress(t *testing.T) {
	l := NewLimiter(Limit{Rate: 2})
	a := netip.MustParseAddr("192.0.2.1")
	now := time.Unix(1000, 0)
	for i, want := range []Entry{Welcome, Welcome, TooFast, TooFast, FarTooFast} {
		if got := l.Enter(a, now); got != want {
			t.Errorf("attempt %d: %v, want %v", i+1, got, want)
		}
	}
	now = now.Add(500 * time.Millisecond)
	if got := l.Enter(a, now); got != Welcome {
		t.Errorf("after half a second: %v, want one more", got)
	}
}

func TestLimiterKnowsWhoseAddressItIs(t *testing.T) {
	l := NewLimiter(Limit{Connections: 1, Exempt: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		what, first, second string
		want                Entry
	}{
		{"the same IPv4 address, mapped", "192.0.2.9", "::ffff:192.0.2.9", TooMany},
		{"two addresses of one IPv6 /64", "2001:db8::1", "2001:db8::ffff:2", TooMany},
		{"two IPv6 networks", "2001:db8:0:1::1", "2001:db8:0:2::1", Welcome},
		{"an exempt network", "10.1.2.3", "10.1.2.3", Welcome},
	} {
		l.Enter(netip.MustParseAddr(c.first), now)
		if got := l.Enter(netip.MustParseAddr(c.second), now); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

func TestLimiterForgetsWhoHasLeft(t *testing.T) {
	l := NewLimiter(Limit{Connections: 5, Rate: 5})
	now := time.Unix(1000, 0)
	for i := range 1000 {
		a := netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})
		l.Enter(a, now)
		l.Leave(a)
	}
	now = now.Add(2 * sweepEvery)
	l.Enter(netip.MustParseAddr("192.0.2.1"), now)
	if n := len(l.sources); n != 1 {
		t.Errorf("%d addresses remembered, want the one that is here", n)
	}
}

func TestNoLimitIsNoLimiter(t *testing.T) {
	l := NewLimiter(Limit{Exempt: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if l != nil {
		t.Fatal("a limit that bounds nothing needs no limiter")
	}
	if got := l.Enter(netip.MustParseAddr("192.0.2.1"), time.Now()); got != Welcome {
		t.Errorf("%v", got)
	}
	l.Leave(netip.MustParseAddr("192.0.2.1"))
}
