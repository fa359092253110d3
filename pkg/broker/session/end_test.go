package session

import (
	"bufio"
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

func withWill(delay uint32) func(*mqtt.Connect) {
	return func(c *mqtt.Connect) {
		c.HasWill, c.WillTopic, c.WillPayload, c.WillDelay = true, []byte("lwt/w"), []byte("old"), delay
	}
}

func due(t *testing.T, s *Session, now time.Time, will, over bool) {
	t.Helper()
	w, o := s.Due(now)
	if (w != nil) != will || o != over {
		t.Fatalf("%v later: will %v, over %v; want %v, %v", now.Sub(t0), w != nil, o, will, over)
	}
	if will && s.Checkpoint() != First {
		t.Fatal("a crash would publish the will again")
	}
}

func TestWillAndSessionAfterTheConnection(t *testing.T) { // [MQTT-3.1.2-8], [MQTT-3.1.2-10], [MQTT-3.1.3-9], [MQTT-4.1.0-2]
	const never = -1
	left := func(reason mqtt.Reason, expiry ...uint32) mqtt.Disconnect {
		d := mqtt.Disconnect{Reason: reason}
		if len(expiry) > 0 {
			d.SessionExpiry, d.HasSessionExpiry = expiry[0], true
		}
		return d
	}
	v3 := func(clean bool) *mqtt.Connect {
		c := v311(clean)
		withWill(0)(c)
		return c
	}
	lost := mqtt.Disconnect{Reason: 0xFF} // stands for none
	for _, tt := range []struct {
		name    string
		limits  Limits
		connect *mqtt.Connect
		end     mqtt.Disconnect
		will    int // seconds after
		over    int
	}{
		{"lost", Limits{}, v5(60, withWill(0)), lost, 0, 60},
		{"lost, delay", Limits{}, v5(60, withWill(5)), lost, 5, 60},
		{"lost, delay longer than the session", Limits{}, v5(60, withWill(100)), lost, 60, 60},
		{"lost, session ends with it", Limits{}, v5(0, withWill(5)), lost, 0, 0},
		{"lost, session never ends", Limits{}, v5(NeverExpires, withWill(7)), lost, 7, never},
		{"lost, never ends, will after all time", Limits{}, v5(NeverExpires, withWill(NeverExpires)), lost, NeverExpires, never},
		{"lost, no will", Limits{}, v5(60), lost, never, 60},
		{"lost, 3.1.1 clean", Limits{}, v3(true), lost, 0, 0},
		{"lost, 3.1.1 persistent", Limits{}, v3(false), lost, 0, never},
		{"lost, 3.1.1 persistent, server's limit", Limits{SessionExpiry: 30}, v3(false), lost, 0, 30},
		{"lost, server's limit", Limits{SessionExpiry: 30}, v5(60, withWill(40)), lost, 30, 30},
		{"lost, below the server's limit", Limits{SessionExpiry: 30}, v5(20, withWill(0)), lost, 0, 20},
		{"left", Limits{}, v5(60, withWill(5)), left(0), never, 60},
		{"left, 3.1.1 clean", Limits{}, v3(true), left(0), never, 0},
		{"left, 3.1.1 persistent", Limits{}, v3(false), left(0), never, never},
		{"left with will", Limits{}, v5(60, withWill(0)), left(4), 0, 60},
		{"left with will, delay", Limits{}, v5(60, withWill(5)), left(4), 5, 60},
		{"left with an error", Limits{}, v5(60, withWill(5)), left(0x82), 5, 60},
		{"left, longer expiry", Limits{}, v5(60, withWill(5)), left(0, 600), never, 600},
		{"left, longer expiry, server's limit", Limits{SessionExpiry: 90}, v5(60), left(0, 600), never, 90},
		{"left with will, shorter expiry", Limits{}, v5(60, withWill(5)), left(4, 3), 3, 3},
		{"left, expiry 0", Limits{}, v5(60, withWill(5)), left(0, 0), never, 0},
		{"left with will, expiry 0", Limits{}, v5(60, withWill(5)), left(4, 0), 0, 0},
		{"left, expiry 0 after 0", Limits{}, v5(0), left(0, 0), never, 0},
	} {
		check := func(t *testing.T, s *Session) {
			t.Helper()
			will, over := tt.will, tt.over
			for range 5 {
				at := s.Deadline()
				next := will
				if next == never || over != never && over < next {
					next = over
				}
				if next == never {
					if !at.IsZero() {
						t.Fatalf("asks to be woken at %v", at)
					}
					return
				}
				if want := after(time.Duration(next) * time.Second); !at.Equal(want) {
					t.Fatalf("deadline %v, want %v", at, want)
				}
				due(t, s, at.Add(-1), false, false)
				due(t, s, at, will == next, over == next)
				if will == next {
					will = never
				}
				if over == next {
					return
				}
			}
		}
		end := func(t *testing.T) *Session {
			s, c := online(tt.limits, tt.connect)
			if !s.Deadline().IsZero() {
				t.Fatal("a deadline while connected")
			}
			due(t, s, after(time.Hour), false, false)
			if tt.end.Reason == 0xFF {
				c.Lost(t0)
			} else if err := c.Disconnect(tt.end, t0); err != nil {
				t.Fatal(err)
			}
			return s
		}
		t.Run(tt.name, func(t *testing.T) { check(t, end(t)) })
		t.Run(tt.name+", restart", func(t *testing.T) { check(t, throughRecord(t, end(t), nil, after(time.Minute))) })
	}
}

func TestASessionThatWasConnectedWhenItsServerWentDownIsLostAtTheRestart(t *testing.T) { // 5 §3.1.2.5
	s, _ := online(Limits{}, v5(60))
	reconnect(s, v5(60, withWill(5)), after(time.Second))
	at := after(time.Hour)
	s = throughRecord(t, s, nil, at)
	if s.Checkpoint() == Saved {
		t.Error("nothing to be saved")
	}
	due(t, s, at.Add(4*time.Second), false, false)
	due(t, s, at.Add(5*time.Second), true, false)
	due(t, s, at.Add(60*time.Second), false, true)
}

func TestAnExpiryCanNotBeginWithDisconnect(t *testing.T) { // 5 §3.14.2.2.2
	s, c := online(Limits{}, v5(0, withWill(0)))
	err := c.Disconnect(mqtt.Disconnect{SessionExpiry: 5, HasSessionExpiry: true}, t0)
	closes(t, err, mqtt.ProtocolError)
	if !c.Current() {
		t.Fatal("ended")
	}
	c.Lost(t0)
	due(t, s, t0, true, true)
}

func TestAReconnectInTimeTakesBackTheWillAndKeepsTheSession(t *testing.T) { // [MQTT-3.1.3-9]
	s, c := online(Limits{}, v5(60, withWill(5)))
	c.Lost(t0)
	due(t, s, after(4*time.Second), false, false)
	if !s.Resumable(v5(60), after(4*time.Second)) || s.Resumable(v5(60, func(c *mqtt.Connect) { c.CleanStart = true }), t0) || s.Resumable(v5(60), after(time.Minute)) {
		t.Error("resumable")
	}
	c = s.Connect(v5(60), after(4*time.Second))
	due(t, s, after(time.Hour), false, false)
	c.Lost(after(time.Hour))
	due(t, s, after(time.Hour+59*time.Second), false, false)
	due(t, s, after(time.Hour+time.Minute), false, true)
}

func TestDiscardEndsTheSessionAtOnce(t *testing.T) { // [MQTT-3.1.2-4]
	s, c := online(Limits{}, v5(60, withWill(5)))
	c.Lost(t0)
	s.Discard(after(time.Second))
	if s.Resumable(v5(60), t0) {
		t.Error("resumable")
	}
	if at := s.Deadline(); at.After(after(time.Second)) || at.IsZero() {
		t.Error("deadline", at)
	}
	due(t, s, after(time.Second), true, true)
	due(t, s, after(time.Second), false, true)

	s, c = online(Limits{}, v5(60))
	s.Discard(t0)
	due(t, s, t0, false, true)
	if c.Current() {
		t.Error("still connected")
	}
}

// C022: the will of the old connection when another takes the session over.
func TestC022WillOnTakeover(t *testing.T) {
	connects := map[string]*mqtt.Connect{}
	f, err := os.Open("testdata/C022.hex")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		col := strings.Fields(lines.Text())
		if col[0] == "#" {
			continue
		}
		b, err := hex.DecodeString(col[2])
		if err != nil {
			t.Fatal(err)
		}
		c, _, err := mqtt.ParseConnect(b, 0)
		if err != nil {
			t.Fatal(col[0], err)
		}
		connects[col[0]] = &c
	}
	for _, tt := range []struct {
		holder, taker string
		will, present bool
	}{
		{"holder-v311", "takeover-v311", true, true},
		{"holder-v5-exp60-delay0", "takeover-v5-cleanstart0", true, true},
		{"holder-v5-exp60-delay0", "takeover-v5-cleanstart1", true, false},
		{"holder-v5-exp0-delay5", "takeover-v5-cleanstart0", true, false},
		{"holder-v5-exp0-delay5", "takeover-v5-cleanstart1", true, false},
		{"holder-v5-exp60-delay5", "takeover-v5-cleanstart0", false, true},
		{"holder-v5-exp60-delay5", "takeover-v5-cleanstart1", true, false},
		// One version after another, which the case does not ask for.
		{"holder-v311", "takeover-v5-cleanstart0", true, true},
		{"holder-v5-exp60-delay5", "takeover-v311", false, true},
	} {
		t.Run(tt.holder+", "+tt.taker, func(t *testing.T) {
			holder, taker := connects[tt.holder], connects[tt.taker]
			if holder == nil || taker == nil {
				t.Fatal("not in the case file")
			}
			s, old := online(Limits{}, holder)
			s.Snapshot(nil)
			old.TakenOver(taker.CleanStart, t0)
			if s.Resumable(taker, t0) != tt.present {
				t.Errorf("session present is %v", !tt.present)
			}
			w, over := s.Due(t0)
			if (w != nil) != tt.will || over == tt.present {
				t.Fatalf("will %v, over %v", w, over)
			}
			if w != nil && (w.Topic != "lwt/w" || string(w.Payload) != "old") {
				t.Errorf("%+v", w)
			}
			if over {
				s = newSession(Limits{})
			}
			now := s.Connect(taker, t0)
			old.Lost(t0) // the close is seen late
			due(t, s, after(time.Hour), false, false)
			if !now.Current() {
				t.Error("the old connection's close ended the new one")
			}
		})
	}
}

func TestTheNewConnectionsWillIsItsOwn(t *testing.T) {
	s, old := online(Limits{}, v5(60, withWill(0)))
	old.TakenOver(false, t0)
	due(t, s, t0, true, false)
	c := s.Connect(v5(60, withWill(3)), t0)
	due(t, s, t0, false, false)
	c.Lost(t0)
	due(t, s, after(3*time.Second), true, false)
}

func TestTheWillAsItIsPublished(t *testing.T) {
	props := mqtt.Properties(nil).
		AppendUser("first", "1").
		AppendUint(mqtt.PropWillDelayInterval, 5).
		AppendUint(mqtt.PropPayloadFormatIndicator, 1).
		AppendUint(mqtt.PropMessageExpiryInterval, 10).
		AppendText(mqtt.PropContentType, "text").
		AppendText(mqtt.PropResponseTopic, "back").
		AppendText(mqtt.PropCorrelationData, "\x00\x01").
		AppendUser("second", "2")
	raw := mqtt.AppendConnect(nil, mqtt.ConnectOptions{
		Version: mqtt.V5, ClientID: "me",
		Will: &mqtt.Will{Topic: "w", Payload: []byte("bye"), QoS: 2, Retain: true, Properties: props},
	})
	c, _, err := mqtt.ParseConnect(raw, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := NewWill(&c)
	clear(raw) // the will is a copy
	m := w.Message("me", t0)
	want := mqtt.Properties(nil).
		AppendUser("first", "1").
		AppendUint(mqtt.PropPayloadFormatIndicator, 1).
		AppendText(mqtt.PropContentType, "text").
		AppendText(mqtt.PropResponseTopic, "back").
		AppendText(mqtt.PropCorrelationData, "\x00\x01").
		AppendUser("second", "2")
	if m.Topic != "w" || string(m.Payload) != "bye" || m.QoS != 2 || !m.Retain || m.Publisher != "me" ||
		string(m.Properties) != string(want) || !m.Expires.Equal(after(10*time.Second)) || w.Delay != 5 {
		t.Errorf("%+v", m)
	}
	if NewWill(&mqtt.Connect{}) != nil {
		t.Error("a will of a client that has none")
	}
	w.HasLifetime = false
	if m := w.Message("me", t0); !m.Expires.IsZero() {
		t.Error("expires", m.Expires)
	}
}
