package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

func TestConnackAnnouncesWhatDiffersFromDefaultsAndWishes(t *testing.T) {
	keepAlive := func(n uint16) func(*mqtt.Connect) {
		return func(c *mqtt.Connect) { c.KeepAlive = n }
	}
	v3 := v311(false)
	v3.KeepAlive = 100
	for _, tt := range []struct {
		name    string
		limits  Limits
		connect *mqtt.Connect
		want    string
		silence time.Duration
	}{
		{"no limits", Limits{}, v5(60, keepAlive(10)), "", 15 * time.Second},
		{"limits that change nothing", Limits{ReceiveMaximum: 65535, KeepAlive: 10, SessionExpiry: 60}, v5(60, keepAlive(10)), "", 15 * time.Second},
		{"all limits",
			Limits{ReceiveMaximum: 7, MaximumPacketSize: 1000, TopicAliasMaximum: 5, KeepAlive: 11, SessionExpiry: 59},
			v5(60, keepAlive(12)),
			"Session Expiry Interval 59, Receive Maximum 7, Topic Alias Maximum 5, Maximum Packet Size 1000, Server Keep Alive 11",
			16500 * time.Millisecond},
		{"no keep alive", Limits{}, v5(60), "", 0},
		{"no keep alive is the longest", Limits{KeepAlive: 20}, v5(60), "Server Keep Alive 20", 30 * time.Second},
		{"no end is the longest expiry", Limits{SessionExpiry: 5}, v5(NeverExpires), "Session Expiry Interval 5", 0},
		// A 3.x client can't be told, so its Keep Alive holds.
		{"3.x", Limits{ReceiveMaximum: 7, MaximumPacketSize: 1000, TopicAliasMaximum: 5, KeepAlive: 11, SessionExpiry: 59}, v3, "", 150 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, c := online(tt.limits, tt.connect)
			got := ""
			for p := range c.AppendConnackProperties(nil).All() {
				if got != "" {
					got += ", "
				}
				got += fmt.Sprint(p.ID, " ", p.Uint)
			}
			if got != tt.want || c.Silence() != tt.silence {
				t.Errorf("%s; silence %v", got, c.Silence())
			}
			if s.Checkpoint() != First {
				t.Error("CONNACK may not go out before the record is durable")
			}
		})
	}
}

func TestWhatAConnectionSays(t *testing.T) {
	s, c := online(Limits{}, v5(60, maxPacket(99), func(c *mqtt.Connect) { c.RequestProblemInfo = false }))
	if c.Session() != s || c.Version() != mqtt.V5 || c.MaximumPacketSize() != 99 || c.ProblemInfo() || !c.Current() {
		t.Errorf("%+v", c)
	}
	if s.ClientID() != "me" || s.Identity() != "user" || s.Connection() != c || s.Expiry() != 60 || !s.Persistent() ||
		!s.Connected().Equal(t0) || !s.Disconnected().IsZero() {
		t.Errorf("%+v", s)
	}
	c.Lost(after(time.Second))
	if s.Connection() != nil || !s.Connected().Equal(t0) || !s.Disconnected().Equal(after(time.Second)) {
		t.Errorf("%+v", s)
	}
	if c := s.Connect(v311(true), t0); !c.ProblemInfo() || s.Persistent() || c.MaximumPacketSize() != 0 {
		t.Errorf("%+v", c)
	}
	if s.Touch(Soon); s.Checkpoint() != First {
		t.Error("touching made it less urgent")
	}
	if s := New(Options{}); s.Persistent() || !s.Connected().IsZero() || !s.Deadline().IsZero() {
		t.Errorf("%+v", s)
	}
}
