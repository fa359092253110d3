package proxy

import (
	"bytes"
	"encoding/json"
	"log/slog"
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

// A storm of refusals is a count in the log, and each kind has its own.
func TestRepeatedRefusalsAreThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		r := build(t, []string{"nobody"}, logJSON(&log, slog.LevelInfo))
		defer r.close()
		refuse := func(b string) {
			c := r.pipe("192.0.2.1:4000")
			go func() { _, _ = c.Write([]byte(b)); _, _ = c.rest(); c.Close() }()
			r.end()
		}
		for range 50 {
			refuse("GET / HTTP/1.1")
		}
		refuse("\x10\x0c\x00\x04MQTT\x04\x00\x00\x3c\x00\x00") // another kind
		time.Sleep(throttlePeriod)
		refuse("GET / HTTP/1.1")
		records := log.records(t)
		var repeats []any
		for _, m := range records {
			if m["msg"] != "connection refused" || m["level"] != "INFO" {
				t.Errorf("line %v", m)
			}
			repeats = append(repeats, m["repeats"])
		}
		if len(records) != 3 || repeats[0] != nil || repeats[1] != nil || repeats[2] != 49.0 {
			t.Errorf("%d lines with repeats %v", len(records), repeats)
		}
	})
}

func TestThrottleKeepsKindsApart(t *testing.T) {
	var th throttle
	now := time.Now()
	a, b := throttleKey{StageConnect, ByClient, Timeout}, throttleKey{StageConnect, ByClient, NotMQTT}
	for i, tt := range []struct {
		key     throttleKey
		at      time.Duration
		repeats int
		ok      bool
	}{
		{a, 0, 0, true}, {a, 1, 0, false}, {b, 1, 0, true}, {a, throttlePeriod - 1, 0, false},
		{a, throttlePeriod, 2, true}, {a, 2*throttlePeriod - 1, 0, false}, {b, 5 * throttlePeriod, 0, true}, {a, 9 * throttlePeriod, 1, true},
	} {
		if repeats, ok := th.allow(tt.key, now.Add(tt.at)); repeats != tt.repeats || ok != tt.ok {
			t.Errorf("step %d: %d, %v", i, repeats, ok)
		}
	}
}
