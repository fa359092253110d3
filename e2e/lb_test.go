package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/e2e/rig/rigtest"
)

// patience bounds every wait for an event. It is long, because a test that
// waits for it has failed, and the machine may be busy.
const patience = 30 * time.Second

// lb is a running mqttlb.
type lb struct {
	*rig.Process
	admin  string
	file   string // its configuration
	binary string // default: built with the race detector
}

// startLB starts mqttlb with the configuration and an admin address of its
// own, and returns when its listeners are open, ready or not. When the test
// ends it must end too: in order, and without a data race.
func startLB(t *testing.T, config string) *lb {
	t.Helper()
	return prepareLB(t, config).run(t)
}

// run is what startLB does with what is prepared.
func (l *lb) run(t *testing.T) *lb {
	t.Helper()
	l.start(t)
	t.Cleanup(func() {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
		if code := l.ExitCode(); code != 0 {
			t.Errorf("mqttlb: exit code %d", code)
		}
	})
	return l
}

// readyLB is startLB that waits for a backend to be up.
func readyLB(t *testing.T, config string) *lb {
	t.Helper()
	l := startLB(t, config)
	l.await(t, "readiness", func() bool { return l.report(t).Ready })
	return l
}

// prepareLB writes the configuration, with a short shutdown if it asks for no
// other.
func prepareLB(t *testing.T, config string) *lb {
	t.Helper()
	l := &lb{admin: freeAddr(t), file: filepath.Join(t.TempDir(), "mqttlb.yaml")}
	config += fmt.Sprintf("\nadmin: {address: %q}\n", l.admin)
	if !strings.Contains(config, "shutdown_timeout:") {
		config += "shutdown_timeout: 1s\n"
	}
	if err := os.WriteFile(l.file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lb) start(t *testing.T) {
	t.Helper()
	if l.binary == "" {
		l.binary = must(rig.BuildRace())(t)
	}
	var err error
	if l.Process, err = rig.Start(rig.Command{Name: "mqttlb", Path: l.binary, Args: []string{"run", "-c", l.file}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Kill() // does nothing when the test has seen to its end
		log := l.Log().Since(0)
		if i := indexLine(log, "WARNING: DATA RACE", "panic:"); i >= 0 {
			t.Errorf("mqttlb:\n%s", strings.Join(log[i:min(i+60, len(log))], "\n"))
		}
		if t.Failed() {
			t.Logf("the last lines of mqttlb:\n%s", l.Log().Tail(40))
		}
	})
	if _, err := l.Log().WaitFor(rigtest.Context(t, patience), 0, "ready to balance"); err != nil {
		t.Fatal(err)
	}
}

// awaitEnd waits until the process has ended and gives its exit code.
func (l *lb) awaitEnd(t *testing.T) int {
	t.Helper()
	select {
	case <-l.Done():
		return l.ExitCode()
	case <-within(t).Done():
		t.Fatalf("mqttlb is still there after %v", patience)
		return 0
	}
}

// indexLine finds the first line that contains one of the texts.
func indexLine(lines []string, texts ...string) int {
	for i, line := range lines {
		for _, text := range texts {
			if strings.Contains(line, text) {
				return i
			}
		}
	}
	return -1
}

// await waits until what is seen from outside, by polling, becomes true: a
// readiness, a metric, a broker's log. Where there is a line to wait for,
// awaitLine is better.
func (l *lb) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	await(t, what, done)
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx := rigtest.Context(t, patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited %v in vain for %s", patience, what)
		}
	}
}

// awaitLine waits for a line of mqttlb's log, numbered from or higher, that
// contains all the texts.
func (l *lb) awaitLine(t *testing.T, from int, texts ...string) string {
	t.Helper()
	return awaitLine(t, l.Process, from, texts...)
}

func awaitLine(t *testing.T, p *rig.Process, from int, texts ...string) string {
	t.Helper()
	line, _, err := p.Log().Wait(rigtest.Context(t, patience), from, func(s string) bool { return containsAll(s, texts) })
	if err != nil {
		t.Fatalf("waited for a line of %s with %q: %v; its last lines are\n%s", p.Name, texts, err, p.Log().Tail(20))
	}
	return line
}

func containsAll(s string, texts []string) bool {
	for _, text := range texts {
		if !strings.Contains(s, text) {
			return false
		}
	}
	return true
}

// readiness is the answer of /readyz.
type readiness struct {
	Status  int `json:"-"`
	Ready   bool
	Reasons []string
	Pools   []struct {
		Name     string
		Backends []struct{ Name, State, Reason string }
	}
}

func (l *lb) report(t *testing.T) (r readiness) {
	t.Helper()
	status, body := l.get(t, "/readyz")
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatalf("/readyz: %v: %s", err, body)
	}
	r.Status = status
	return r
}

// backend gives the state of a backend, and the reason if it is down.
func (r readiness) backend(pool, name string) (state, reason string) {
	for _, p := range r.Pools {
		for _, b := range p.Backends {
			if p.Name == pool && b.Name == name {
				return b.State, b.Reason
			}
		}
	}
	return "unknown", ""
}

// awaitState waits until /readyz shows a backend in the state, and gives the
// reason that it shows.
func (l *lb) awaitState(t *testing.T, pool, name, state string) (reason string) {
	t.Helper()
	l.await(t, fmt.Sprintf("%s/%s to be %s", pool, name, state), func() bool {
		var is string
		is, reason = l.report(t).backend(pool, name)
		return is == state
	})
	return reason
}

func (l *lb) get(t *testing.T, path string) (status int, body []byte) {
	t.Helper()
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + l.admin + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}

// scrape parses /metrics as Prometheus does.
func (l *lb) scrape(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	_, body := l.get(t, "/metrics")
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		t.Fatalf("/metrics: %v", err)
	}
	return families
}

// metric sums the series of a metric that bear all the labels, given as
// name=value. Of a histogram it sums the counts.
func (l *lb) metric(t *testing.T, name string, labels ...string) (sum float64) {
	t.Helper()
	for _, m := range l.scrape(t)[name].GetMetric() {
		if bears(m, labels) {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

func bears(m *dto.Metric, labels []string) bool {
	has := map[string]bool{}
	for _, l := range m.GetLabel() {
		has[l.GetName()+"="+l.GetValue()] = true
	}
	for _, l := range labels {
		if !has[l] {
			return false
		}
	}
	return true
}

// awaitMetric waits until a metric has the value.
func (l *lb) awaitMetric(t *testing.T, want float64, name string, labels ...string) {
	t.Helper()
	var got float64
	defer func() {
		if t.Failed() {
			t.Logf("%s %v is %v, want %v", name, labels, got, want)
		}
	}()
	l.await(t, fmt.Sprintf("%s %v to be %v", name, labels, want), func() bool {
		got = l.metric(t, name, labels...)
		return got == want
	})
}

// explain is what `mqttlb ring explain` says of a Client Identifier: its
// backends, home first.
func (l *lb) explain(t *testing.T, clientID string) (order []string) {
	t.Helper()
	out, stderr, code := mqttlb(t, nil, "ring", "explain", clientID, "-c", l.file, "-o", "json")
	var e struct {
		Home  string
		Order []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(out), &e); err != nil || code != 0 {
		t.Fatalf("ring explain %s: exit code %d, %v: %s%s", clientID, code, err, out, stderr)
	}
	for _, step := range e.Order {
		order = append(order, step.Name)
	}
	if e.Home != order[0] {
		t.Errorf("ring explain %s: home is %s, but the order %v", clientID, e.Home, order)
	}
	return order
}

// mqttlb runs a command of the binary to its end.
func mqttlb(t *testing.T, env []string, args ...string) (stdout, stderr string, exitCode int) {
	t.Helper()
	binary, err := rig.Build()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(rigtest.Context(t, patience), binary, args...)
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// freeAddr is an address that nothing listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	port, err := rig.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return rig.Local(port)
}

// refusesConnections says whether connect() itself is refused.
func refusesConnections(t *testing.T, addr string) bool {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, patience)
	if err == nil {
		c.Close()
		return false
	}
	return isRefused(err)
}

// brokers starts n brokers that know nothing of each other.
func brokers(t *testing.T, n int) []*rig.Mosquitto {
	t.Helper()
	var all []*rig.Mosquitto
	for i := range n {
		all = append(all, rigtest.Mosquitto(t, rig.MosquittoOptions{Name: fmt.Sprintf("broker-%d", i+1)}))
	}
	return all
}

// flow writes brokers as the list of a pool's backends.
func flow(brokers ...*rig.Mosquitto) string {
	var items []string
	for _, b := range brokers {
		items = append(items, fmt.Sprintf("{name: %s, address: %q}", b.Name, b.Addr()))
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// must is for set-up that does not fail.
func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func within(t *testing.T) context.Context { return rigtest.Context(t, patience) }
