package proxy

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// logJSON has a rig's log written as JSON.
func logJSON(to *logBuffer, level slog.Level) setup {
	return func(o *Options, _ *PoolOptions) {
		o.Log = slog.New(slog.NewJSONHandler(to, &slog.HandlerOptions{Level: level}))
	}
}

func (l *logBuffer) records(t *testing.T) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(l.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

func TestOneLineTellsOfAFinishedConnection(t *testing.T) {
	var log logBuffer
	address, _ := recorder(t)
	r := newRig(t, []string{address}, terminate(nil), logJSON(&log, slog.LevelInfo))
	connect := mqtt.AppendConnect(nil, mqtt.ConnectOptions{
		ClientID: "dev \"1\"\n", CleanStart: true, Username: []byte("mallory-name"), Password: []byte("secret-word"),
		Will: &mqtt.Will{Topic: "lwt/topic", Payload: []byte("last-will")},
	})
	c := r.dial().overTLS(clientTLS())
	c.send(connect)
	c.expect(connack311)
	c.Close()
	e := r.end()
	records := log.records(t)
	if len(records) != 1 {
		t.Fatalf("%d lines: %s", len(records), log.String())
	}
	for key, want := range map[string]any{
		"level": "INFO", "msg": "connection ended", "listener": "test", "conn": connID(e.ID),
		"stage": "relay", "by": "client", "why": "closed", "client": e.Source.String(),
		"client_id": "dev \"1\"\n", "mqtt": "3.1.1", "pool": "pool", "backend": "b1", "attempt": 1.0,
		"tls": "TLS 1.3", "sni": serverName, "from_client": float64(len(connect)), "from_backend": 4.0,
	} {
		if got := records[0][key]; got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	if _, ok := records[0]["duration"]; !ok {
		t.Error("no duration")
	}
	if _, ok := records[0]["err"]; ok {
		t.Error("an err where all went well")
	}
	if _, ok := records[0]["peer"]; ok {
		t.Error("the peer beside a client that is the same")
	}
}

// A refusal says what the client has said: its version as soon as that is known,
// and how much it was.
func TestRefusalsTellVersionAndBytes(t *testing.T) {
	good := connect5("dev-1")
	tooLarge := mqtt.AppendConnect(nil, mqtt.ConnectOptions{Version: mqtt.V311, ClientID: strings.Repeat("x", 200), CleanStart: true})
	for _, tt := range []struct {
		name         string
		send         []byte
		mqtt, client any // of the log line
		bytes        int
	}{
		{"not MQTT", []byte("GET / HTTP/1.1"), nil, nil, 14},
		{"of no version of ours", mend(good, "MQTT\x05", "MQTT\x09"), nil, nil, len(good)},
		{"malformed 5.0", mend(good, "MQTT\x05\x02", "MQTT\x05\x03"), "5.0", nil, len(good)},
		{"malformed behind the Client Identifier", []byte("\x10\x15\x00\x04MQTT\x04\x82\x00\x3c\x00\x05dev-1\x00\x02\xff\xff"), "3.1.1", "dev-1", 23},
		{"too large 3.1.1", tooLarge, "3.1.1", nil, len(tooLarge)},
		{"no backend", good, "5.0", "dev-1", len(good)},
		{"no backend, and bytes behind", append(slices.Clone(good), 0xC0, 0), "5.0", "dev-1", len(good) + 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onBothFronts(t, func(t *testing.T, front setup, wrap func(*peer) *peer) {
				var log logBuffer
				r := newRig(t, []string{closedPort(t)}, front, logJSON(&log, slog.LevelInfo), func(o *Options, _ *PoolOptions) { o.MaxConnectSize = 100 })
				c := wrap(r.dial())
				c.send(tt.send)
				_, _ = c.rest()
				c.Close()
				r.end()
				m := log.records(t)[0]
				if m["mqtt"] != tt.mqtt || m["client_id"] != tt.client || m["from_client"] != float64(tt.bytes) {
					t.Errorf("mqtt=%v client_id=%v from_client=%v, want %v, %v, %d", m["mqtt"], m["client_id"], m["from_client"], tt.mqtt, tt.client, tt.bytes)
				}
			})
		})
	}
}

// Whatever goes wrong with a CONNECT, what is secret in it stays out of the log
// and of the answer.
func TestCredentialsAreNeverLogged(t *testing.T) {
	var log logBuffer
	r := newRig(t, []string{closedPort(t), serve(t, func(p *peer) { p.readConnect() })}, logJSON(&log, slog.LevelDebug),
		func(o *Options, _ *PoolOptions) { o.MaxConnectSize = 400 })
	o := mqtt.ConnectOptions{
		Version: mqtt.V5, ClientID: "dev-1", CleanStart: true, Username: []byte("mallory-name"), Password: []byte("secret-word"),
		Will:       &mqtt.Will{Topic: "lwt/topic", Payload: []byte("last-will")},
		Properties: append([]byte{byte(mqtt.PropAuthenticationMethod), 0, 5, 'm', 'e', 't', 'h', 'd', byte(mqtt.PropAuthenticationData), 0, 9}, "auth-data"...),
	}
	good := mqtt.AppendConnect(nil, o)
	o.Password = bytes.Repeat([]byte("secret-word"), 50)
	variants := [][]byte{
		good, mqtt.AppendConnect(nil, o), // too large
		mend(good, "mallory-name", "mallory\xffname"), // not UTF-8
		mend(good, "secret-word", "secret"),           // cut: trailing bytes are missing
		append(bytes.Clone(good), good...),            // twice
		mend(good, "MQTT\x05", "MQTT\x04"),            // another version
	}
	for i, b := range variants {
		c := r.dial()
		c.send(b)
		c.closeWrite()
		answer, _ := c.rest()
		c.Close()
		e := r.end()
		text := log.String() + string(answer)
		if e.Err != nil {
			text += e.Err.Error()
		}
		for _, secret := range []string{"mallory", "secret", "last-will", "auth-data"} {
			if strings.Contains(text, secret) {
				t.Errorf("variant %d tells %q: %s", i, secret, text)
			}
		}
	}
}

// A storm of refusals is a count in the log, and each kind has its own. Nothing
// of it is lost when it ends: what was held back is told a period later, or when
// the server goes.
func TestRepeatedRefusalsAreThrottledAndAllAreCounted(t *testing.T) {
	const notMQTT, noIdentifier = "GET / HTTP/1.1", "\x10\x0c\x00\x04MQTT\x04\x00\x00\x3c\x00\x00"
	for _, tt := range []struct {
		name   string
		then   func(r *rig)
		counts []float64 // of the lines in their order: 1 and the repeats
	}{
		{"the storm ends", func(*rig) { time.Sleep(throttlePeriod) }, []float64{1, 1, 49}},
		{"and begins again", func(r *rig) { time.Sleep(2 * throttlePeriod); r.refuse(notMQTT); r.refuse(noIdentifier) }, []float64{1, 1, 49, 1, 1}},
		{"the server goes", func(r *rig) { r.close() }, []float64{1, 1, 49}},
		{"goes on", func(r *rig) {
			time.Sleep(throttlePeriod / 4)
			for range 9 {
				r.refuse(notMQTT)
				time.Sleep(throttlePeriod / 2)
			}
			r.close()
		}, []float64{1, 1, 51, 2, 2, 2, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log logBuffer
				r := build(t, []string{"nobody"}, logJSON(&log, slog.LevelInfo))
				defer r.close()
				for range 50 {
					r.refuse(notMQTT)
				}
				r.refuse(noIdentifier)
				tt.then(r)
				synctest.Wait()
				var counts []float64
				for _, m := range log.records(t) {
					if m["msg"] != "connection refused" || m["level"] != "INFO" || m["client"] == nil {
						t.Errorf("line %v", m)
					}
					repeats, _ := m["repeats"].(float64)
					counts = append(counts, 1+repeats)
				}
				if !slices.Equal(counts, tt.counts) {
					t.Errorf("lines for %v connections, want %v", counts, tt.counts)
				}
			})
		})
	}
}

// refuse has a client come, say something that it is refused for, and go.
func (r *rig) refuse(b string) {
	c := r.pipe("192.0.2.1:4000")
	go func() { _, _ = c.Write([]byte(b)); _, _ = c.rest(); c.Close() }()
	r.end()
}

func TestThrottleKeepsKindsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type line struct {
			why     Why
			repeats int
			at      time.Duration
		}
		begun := time.Now()
		var got []line
		th := throttle{write: func(e End, repeats int) { got = append(got, line{e.Why, repeats, time.Since(begun)}) }}
		for _, step := range []struct {
			why Why
			at  time.Duration
		}{
			{Timeout, 0}, {Timeout, 1}, {NotMQTT, 1}, {Timeout, throttlePeriod - 1}, {NotMQTT, throttlePeriod},
			{NotMQTT, 5 * throttlePeriod}, {Timeout, 9 * throttlePeriod}, {Timeout, 9*throttlePeriod + 1},
		} {
			time.Sleep(step.at - time.Since(begun))
			synctest.Wait()
			e := End{Stage: StageConnect, By: ByClient, Why: step.why}
			if repeats, ok := th.allow(e); ok {
				th.write(e, repeats)
			}
		}
		th.close()
		want := []line{
			{Timeout, 0, 0}, {NotMQTT, 0, 1}, {Timeout, 1, throttlePeriod}, {NotMQTT, 0, throttlePeriod + 1},
			{NotMQTT, 0, 5 * throttlePeriod}, {Timeout, 0, 9 * throttlePeriod}, {Timeout, 0, 9*throttlePeriod + 1},
		}
		if !slices.Equal(got, want) {
			t.Errorf("lines\n%v, want\n%v", got, want)
		}
	})
}
