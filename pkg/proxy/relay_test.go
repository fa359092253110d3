package proxy

import (
	"bytes"
	"io"
	"testing"
)

func TestRelayCarriesBytesBothWays(t *testing.T) {
	r := newRig(t, []string{echo(t)})
	c := r.dial()
	c.send(connect311("dev-1"))
	c.expect(connack311)
	big := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	go func() {
		c.send(big)
		c.closeWrite()
	}()
	got, err := c.rest()
	if err != nil || !bytes.Equal(got, big) {
		t.Fatalf("%d bytes came back of %d: %v", len(got), len(big), err)
	}
	e := r.end()
	if e.Stage != StageRelay || e.By != ByClient || e.Why != Closed || e.ClientID != "dev-1" || e.Backend != "b1" {
		t.Errorf("end %+v", e)
	}
	if want := uint64(len(big) + len(connect311("dev-1"))); e.FromClient != want {
		t.Errorf("%d bytes counted from the client, %d sent", e.FromClient, want)
	}
}

var _ = io.EOF
