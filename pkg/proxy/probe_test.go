package proxy

import (
	"strings"
	"testing"
	"time"
)

// C018: checkers connect and leave. That is no error, dials nobody, and has a
// reason of its own, by which it is counted.
func TestClientsThatLeaveWithoutAByteAreNotLogged_C018(t *testing.T) {
	const each = 600
	for _, tt := range []struct {
		name  string
		setup setup
		stage Stage
	}{
		{"plain", func(*Options, *PoolOptions) {}, StageConnect},
		{"tls", terminate(nil), StageHandshake},
		{"passthrough", passthrough, StageConnect},
		{"proxy header", acceptProxy(false), StageHeader},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, []string{closedPort(t)}, tt.setup)
			for name, leave := range map[string]func(*peer){
				"FIN":               func(c *peer) { c.Close() },
				"RST":               (*peer).reset,
				"half-close, close": func(c *peer) { c.closeWrite(); c.expectEOF(); c.Close() },
			} {
				for range each {
					leave(r.dial())
					e := r.end()
					if e.Why != NoBytes || e.Stage != tt.stage || e.By != ByClient || e.Backend != "" {
						t.Fatalf("%s: ended %s at %s by %s, backend %q: %v", name, e.Why, e.Stage, e.By, e.Backend, e.Err)
					}
				}
			}
			var waiting []*peer
			for range 50 {
				waiting = append(waiting, r.dial())
			}
			for _, c := range waiting { // each has waited for all the others
				c.Close()
				r.ended(tt.stage, ByClient, NoBytes)
			}
			if lines := r.log.above("DEBUG"); len(lines) > 0 {
				t.Errorf("%d lines above debug: %s", len(lines), lines[0])
			}
			r.reported(nil, nil, nil)
			if n := len(noted(r, &r.handshakes)); n > 0 {
				t.Errorf("%d handshakes counted as failed", n)
			}
			if n := r.server.Accepted(); n != 3*each+50 {
				t.Errorf("%d accepted", n)
			}
		})
	}
}

// C018: how MQTT sessions usually end is no error either.
func TestUsualEndsOfSessionsAreNoErrors_C018(t *testing.T) {
	onBothFronts(t, func(t *testing.T, front setup, wrap func(*peer) *peer) {
		address, _ := recorder(t)
		r := newRig(t, []string{address}, front)
		for i := range 200 {
			c := wrap(r.dial())
			c.send(connect311("dev-1"))
			c.expect(connack311)
			if i%2 == 0 {
				c.send([]byte{0xE0, 0})
			}
			c.Close()
			if e := r.ended(StageRelay, ByClient, Closed); e.Err != nil {
				t.Errorf("record has the error %v", e.Err)
			}
		}
		for _, line := range r.log.above("DEBUG") {
			if !strings.Contains(line, "level=INFO") || !strings.Contains(line, `"connection ended"`) || strings.Contains(line, " err=") {
				t.Errorf("logged: %s", line)
			}
		}
	})
}

// A client that comes, waits, and is cut at the deadline has told nothing
// either, but it held a slot for all that time: that is worth a line.
func TestSilentClientAtTheDeadlineIsATimeout(t *testing.T) {
	r := newRig(t, []string{closedPort(t)}, func(o *Options, _ *PoolOptions) { o.ConnectTimeout = 20 * time.Millisecond })
	r.dial()
	r.ended(StageConnect, ByClient, Timeout)
}
