package proxy

import (
	"sync/atomic"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/listen"
)

// onlySession is the one connection that a rig's server holds.
func (r *rig) onlySession() *session {
	r.t.Helper()
	all := r.server.snapshot()
	if len(all) != 1 {
		r.t.Fatalf("%d sessions", len(all))
	}
	return all[0]
}

// resetNoticed resets a client and waits until the server's kernel knows.
func (r *rig) resetNoticed(c *peer) {
	r.t.Helper()
	socket := listen.NewStream(r.onlySession().socket)
	c.reset()
	eventually(r.t, "the reset arrives", func() bool { return socket.Gone() != nil })
}

// A device that has broken off is not brought anywhere: another broker would
// take over, with its old CONNECT, the session that it may have elsewhere by
// now.
func TestClientGoneBeforeTheRetryTheSpareSeesNothing(t *testing.T) {
	for _, tt := range []struct {
		name   string
		behind []byte // CONNECT, unread when the reset comes
	}{{"nothing unread", nil}, {"bytes unread", []byte{0xC0, 0}}} {
		t.Run(tt.name, func(t *testing.T) {
			onBothFronts(t, func(t *testing.T, front setup, wrap func(*peer) *peer) {
				var spare atomic.Int32
				asked, leave := make(chan bool), make(chan bool)
				owner := serve(t, func(p *peer) { p.readConnect(); asked <- true; <-leave })
				r := newRig(t, []string{owner, serve(t, func(*peer) { spare.Add(1) })}, front)
				c := wrap(r.dial())
				c.send(connect5("dev-1"))
				<-asked
				if tt.behind != nil {
					c.send(tt.behind)
				}
				r.resetNoticed(c)
				leave <- true
				if e := r.ended(StageDial, ByClient, Reset); e.Attempt != 1 || e.Err == nil {
					t.Errorf("attempt %d, err %v", e.Attempt, e.Err)
				}
				if n := spare.Load(); n > 0 {
					t.Errorf("the spare was dialled %d times", n)
				}
				r.reported(nil, []string{"b1/dev-1"}, nil)
			})
		})
	}
}

// A dial that took long may come too late: the backend is not told of a client
// that has gone meanwhile.
func TestClientGoneDuringTheDialItsCONNECTIsNotSent(t *testing.T) {
	got := make(chan []byte, 1)
	address := serve(t, func(p *peer) { b, _ := p.rest(); got <- b })
	dialled, proceed := make(chan bool), make(chan bool)
	r := newRig(t, []string{address}, delayDial(dialled, proceed))
	c := r.dial()
	c.send(connect5("dev-1"))
	<-dialled
	r.resetNoticed(c)
	proceed <- true
	r.ended(StageDial, ByClient, Reset)
	if b := <-got; len(b) > 0 {
		t.Errorf("the backend was sent % x", b)
	}
	r.reported(nil, nil, nil)
}

// C020: a client that has said all it has to say is there, and gets its answer,
// from the second backend as from the first.
func TestHalfClosedClientIsStillRetried_C020(t *testing.T) {
	onBothFronts(t, func(t *testing.T, front setup, wrap func(*peer) *peer) {
		asked, leave := make(chan bool), make(chan bool)
		owner := serve(t, func(p *peer) { p.readConnect(); asked <- true; <-leave })
		r := newRig(t, []string{owner, echo(t)}, front)
		c := wrap(r.dial())
		c.send(connect311("dev-1"))
		<-asked
		c.closeWrite()
		leave <- true
		c.expect(connack311)
		c.expectEOF()
		c.Close()
		if e := r.end(); e.Stage != StageRelay || e.Attempt != 2 {
			t.Errorf("ended at %s, attempt %d: %s", e.Stage, e.Attempt, e.Why)
		}
	})
}
