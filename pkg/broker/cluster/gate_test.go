package cluster

import (
	"errors"
	"testing"
	"testing/synctest"
)

func TestGateLetsInByNumberAndBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(3, 100)
		var r recorder
		enter := func(name string, bytes int) {
			go func() { r.note(name, g.enter(bytes)) }()
			synctest.Wait() // so that they stand in line in the order of the calls
		}
		enter("a", 50)
		enter("b", 40)
		r.expect(t, "a", "b")
		enter("too many bytes", 20)
		enter("small, and behind", 1)
		r.expect(t)
		g.leave(50)
		r.expectSet(t, "small, and behind", "too many bytes")
		enter("one too many", 1)
		r.expect(t)
		g.leave(40)
		r.expect(t, "one too many")
		enter("larger than everything", 1000)
		g.leave(20)
		g.leave(1)
		r.expect(t)
		g.leave(1)
		r.expect(t, "larger than everything")
		enter("waits", 1)
		closed := make(chan struct{})
		go func() { g.close(); close(closed) }()
		r.expect(t, "waits: "+ErrClosed.Error())
		select {
		case <-closed:
			t.Error("closed with somebody inside")
		default:
		}
		g.leave(1000)
		<-closed
		g.close() // again
		if err := g.enter(1); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}
