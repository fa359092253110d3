package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mqttlb/mqttlb/cmd/internal/command"
	"github.com/mqttlb/mqttlb/pkg/config"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// patience bounds waits that a sound broker ends much sooner.
const patience = 30 * time.Second

// asBroker in the environment makes this test binary the broker itself, for tests
// of what starts the broker again as a child.
const asBroker = "TEST_AS_BROKER"

func TestMain(m *testing.M) {
	if os.Getenv(asBroker) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// load reads a configuration of a listener on a port of the system's choice,
// and more lines.
func load(t *testing.T, more string) *config.Broker {
	t.Helper()
	path := filepath.Join(t.TempDir(), "broker.yaml")
	content := "listeners: [{name: mqtt, address: '127.0.0.1:0'}]\nadmin: {address: '127.0.0.1:0'}\n" + more
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.BrokerLoader{}.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// running is a broker of this process.
type running struct {
	sockets
	stop context.CancelFunc
	over chan error
}

func start(t *testing.T, cfg *config.Broker) *running {
	t.Helper()
	h := houseOf(cfg, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	s, err := h.bind(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r := &running{s, cancel, make(chan error, 1)}
	go func() { r.over <- h.runOn(ctx, s) }()
	return r
}

// end stops it and gives what run gave.
func (r *running) end(t *testing.T) error {
	t.Helper()
	r.stop()
	select {
	case err := <-r.over:
		return err
	case <-time.After(patience):
		t.Fatal("the broker does not end")
		return nil
	}
}

// connect is a 5.0 client whose session outlives it.
func (r *running) connect(t *testing.T, id string) (net.Conn, mqtt.Connack) {
	t.Helper()
	c, err := net.Dial("tcp", r.listeners[0].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	expiry := mqtt.Properties(nil).AppendUint(mqtt.PropSessionExpiryInterval, 3600)
	if _, err := c.Write(mqtt.AppendConnect(nil, mqtt.ConnectOptions{Version: mqtt.V5, ClientID: id, Properties: expiry})); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for b := make([]byte, 1); ; { // what comes behind CONNACK is for whoever reads next
		n, err := c.Read(b)
		got = append(got, b[:n]...)
		ack, _, parseErr := mqtt.ParseConnack(got, mqtt.V5)
		if !errors.Is(parseErr, mqtt.ErrShort) {
			if parseErr != nil {
				t.Fatal(parseErr)
			}
			return c, ack
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (r *running) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + r.admin.Addr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestRunServesUntilItIsAskedToStop(t *testing.T) {
	cfg := load(t, "node: {name: b1, announce: true}\n")
	r := start(t, cfg)
	_, ack := r.connect(t, "device-1")
	if ack.Code != 0 || ack.SessionPresent {
		t.Errorf("CONNACK %+v", ack)
	}
	if status, body := r.get(t, "/readyz"); status != http.StatusOK || body != `{"ready":true,"node":"b1"}`+"\n" {
		t.Errorf("/readyz: %d %s", status, body)
	}
	if _, body := r.get(t, "/metrics"); !strings.Contains(body, "\nbroker_clients 1\n") {
		t.Error("/metrics does not count the client")
	}
	if err := r.end(t); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(cfg.Data, "lock")); err != nil {
		t.Errorf("the data is elsewhere: %v", err)
	}

	again := start(t, cfg)
	if _, ack := again.connect(t, "device-1"); !ack.SessionPresent {
		t.Error("the session is gone after a restart")
	}
	if err := again.end(t); err != nil {
		t.Fatal(err)
	}
}

func TestASecondBrokerDoesNotGetTheData(t *testing.T) {
	cfg := load(t, "")
	first := start(t, cfg)
	first.connect(t, "device-1") // it has the data by now
	second := start(t, cfg)
	select {
	case err := <-second.over:
		if err == nil || !strings.Contains(err.Error(), cfg.Data) {
			t.Errorf("got %v, want an error that names the folder", err)
		}
	case <-time.After(patience):
		t.Error("two brokers run on one folder")
	}
	second.stop()
	if err := first.end(t); err != nil {
		t.Fatal(err)
	}
}

// Asked to stop before it has begun, it ends well and soon.
func TestStopBeforeTheStart(t *testing.T) {
	cfg := load(t, "")
	h := houseOf(cfg, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	s, err := h.bind(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := h.runOn(ctx, s); err != nil {
		t.Error(err)
	}
	if _, err := s.listeners[0].Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is left open: %v", err)
	}
}

func TestCommands(t *testing.T) {
	t.Setenv("MQTTLB_BROKER_CONFIG", "")
	dir := t.TempDir()
	good, bad, node := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "node.yaml")
	for path, content := range map[string]string{
		good: "listeners: [{name: mqtt, address: ':1883'}]\n",
		bad:  "listeners: [{name: mqtt, adress: ':1883'}]\n",
		node: "node: {name: b1}\nlisteners: [{name: mqtt, address: ':1883'}]\ncluster: {listen: '127.0.0.1:6222'}\n",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		args []string
		code int
		out  string
	}{
		{[]string{"version"}, command.ExitOK, "broker dev\n"},
		{[]string{"check"}, command.ExitOK, "ok: 1 listener, data in broker-data\n"},
		{[]string{"check", "-c", good}, command.ExitOK, "ok: 1 listener, data in " + filepath.Join(dir, "broker-data") + "\n"},
		{[]string{"check", "-c", bad}, command.ExitUsage, ""},
		{[]string{"check", "-c", node}, command.ExitUsage, ""},
		{[]string{"check", "-c", node, "--join", "127.0.0.1:6223,127.0.0.1:6224"}, command.ExitOK,
			"ok: 1 listener, data in " + filepath.Join(dir, "broker-data") + ", node b1 of 3 in cluster brokers\n"},
		{[]string{"check", "-c", node, "--join", "127.0.0.1:6223", "--join", "6224"}, command.ExitUsage, ""},
		{[]string{"run", "-c", bad}, command.ExitUsage, ""},
		{[]string{"run", "-c", filepath.Join(dir, "absent.yaml")}, command.ExitUsage, ""},
		{[]string{"serve"}, command.ExitUsage, ""},
	} {
		t.Run(strings.Join(row.args[:1], " "), func(t *testing.T) {
			root := rootCommand()
			var out strings.Builder
			root.SetOut(&out)
			if code := command.Run(root, row.args); code != row.code || out.String() != row.out {
				t.Errorf("%v: exit code %d, %q; want %d, %q", row.args, code, out.String(), row.code, row.out)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "broker-data")); !os.IsNotExist(err) {
		t.Errorf("check has made the data folder: %v", err)
	}
}

func TestCheckKnowsAConfigurationOfMqttlb(t *testing.T) {
	const file = "../../configs/plain.yaml"
	root := rootCommand()
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetArgs([]string{"check", "-c", file})
	if err := root.Execute(); err == nil || !strings.HasSuffix(err.Error(), "mqttlb check -c "+file) {
		t.Errorf("%v", err)
	}
}
