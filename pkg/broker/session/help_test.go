package session

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// t0 is when the tests begin.
var t0 = time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)

func after(d time.Duration) time.Time { return t0.Add(d) }

// A CONNECT as ParseConnect gives it, to be altered.

func v311(clean bool) *mqtt.Connect {
	return &mqtt.Connect{Version: mqtt.V311, CleanStart: clean, ReceiveMaximum: 65535, RequestProblemInfo: true}
}

func v5(expiry uint32, with ...func(*mqtt.Connect)) *mqtt.Connect {
	c := &mqtt.Connect{Version: mqtt.V5, SessionExpiry: expiry, ReceiveMaximum: 65535, RequestProblemInfo: true}
	for _, f := range with {
		f(c)
	}
	return c
}

func receiveMaximum(n uint16) func(*mqtt.Connect) {
	return func(c *mqtt.Connect) { c.ReceiveMaximum = n }
}

func maxPacket(n uint32) func(*mqtt.Connect) {
	return func(c *mqtt.Connect) { c.MaximumPacketSize = n }
}

func aliases(n uint16) func(*mqtt.Connect) {
	return func(c *mqtt.Connect) { c.TopicAliasMaximum = n }
}

func newSession(l Limits) *Session { return New(Options{ClientID: "me", Identity: "user", Limits: &l}) }

// online is a new persistent session and its connection.
func online(l Limits, c *mqtt.Connect) (*Session, *Connection) {
	s := newSession(l)
	return s, s.Connect(c, t0)
}

func reconnect(s *Session, c *mqtt.Connect, now time.Time) *Connection {
	if old := s.Connection(); old != nil {
		old.Lost(now)
	}
	return s.Connect(c, now)
}

// msg is the message at a place in the log; its payload names it.
func msg(seq int) *Message {
	return &Message{Topic: "t", Payload: fmt.Appendf(nil, "%d", seq), QoS: 2}
}

// give queues messages first to last of the log with this QoS.
func give(t *testing.T, s *Session, qos byte, first, last int) {
	t.Helper()
	for seq := first; seq <= last; seq++ {
		d := Delivery{Ref: Ref{0, uint64(seq)}, Message: msg(seq), QoS: qos}
		if v := s.Queue(d, t0); v != Queued {
			t.Fatalf("message %d: verdict %d", seq, v)
		}
	}
}

// sentBy collects what Next gives until it has no more, in short words:
// "PUBLISH 7 #3 qos1 dup", where 7 is the packet identifier and 3 the payload.
func sentBy(c *Connection, now time.Time) []string {
	var all []string
	for {
		p, step := c.Next(now)
		switch step {
		case Idle:
			return all
		case Fetch:
			return append(all, "fetch")
		}
		all = append(all, word(p))
	}
}

func word(p Packet) string {
	if p.Type == mqtt.TypePubrel {
		return fmt.Sprintf("PUBREL %d", p.PacketID)
	}
	w := fmt.Sprintf("PUBLISH %d #%s qos%d", p.PacketID, p.Message.Payload, p.QoS)
	if p.Dup {
		w += " dup"
	}
	if p.Retain {
		w += " retain"
	}
	if p.Alias != 0 {
		w += fmt.Sprintf(" alias %d", p.Alias)
	}
	if p.AliasKnown {
		w += " known"
	}
	return w
}

// publishes gives the words for consecutive QoS 1 and 2 messages whose packet
// identifier is their number in the log.
func publishes(qos byte, first, last int, more string) []string {
	var all []string
	for n := first; n <= last; n++ {
		all = append(all, strings.TrimSpace(fmt.Sprintf("PUBLISH %d #%d qos%d %s", n, n, qos, more)))
	}
	return all
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Fatalf("%s:\n got %q\nwant %q", what, got, want)
	}
}

// closes checks that an error ends the connection with this reason.
func closes(t *testing.T, err error, reason mqtt.Reason) {
	t.Helper()
	e, ok := err.(*mqtt.PacketError)
	if !ok || e.Reason != reason || e.Detail == "" {
		t.Fatalf("got %v, want a packet error with %s", err, reason)
	}
}

// throughRecord writes the session's record and reads it again, as a restart
// does.
func throughRecord(t testing.TB, s *Session, tail []uint64, now time.Time) *Session {
	t.Helper()
	r := s.Snapshot(tail)
	parsed, err := ParseRecord(r.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	return Restore(parsed, s.limits, now)
}
