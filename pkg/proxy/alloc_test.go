package proxy

import (
	"io"
	"testing"
)

// A connection in its steady state moves bytes and allocates nothing.
func TestRelayDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	r := newRig(t, []string{broker(t, func(p *peer, _ []byte) {
		b := make([]byte, 1<<10)
		for {
			n, err := p.Read(b)
			if err != nil {
				return
			}
			if _, err := p.Write(b[:n]); err != nil {
				return
			}
		}
	})})
	c := r.connected("dev-1")
	b := make([]byte, 100)
	if n := testing.AllocsPerRun(200, func() {
		_, _ = c.Write(b)
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations a round trip", n)
	}
}
