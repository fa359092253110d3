package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mqttlb/mqttlb/cmd/internal/command"
	"github.com/mqttlb/mqttlb/pkg/admin/brokeradmin"
)

// asked is an admin address that gives one answer, and keeps what it was asked.
type asked struct {
	*httptest.Server
	what string
}

func answering(t *testing.T, status int, v any) *asked {
	a := &asked{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		a.what = r.Method + " " + r.URL.Path + " " + string(body)
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *asked) address() string { return a.Listener.Addr().String() }

// do runs a command line, and gives its exit code and output.
func do(args ...string) (code int, out string) {
	root := rootCommand()
	var b strings.Builder
	root.SetOut(&b)
	code = command.Run(root, args)
	return code, b.String()
}

func someStatus() brokeradmin.Status {
	return brokeradmin.Status{
		Node: "broker-1", Health: brokeradmin.Degraded, Ready: true,
		Problems: []string{"broker-3 is not heard from: start it again, or remove it if it is lost for good"},
		Seen: brokeradmin.Seen{
			Cluster: "dev", Size: 3, Quorum: true,
			Nodes: []brokeradmin.Node{{Name: "broker-1", Heard: true, Leads: 1}, {Name: "broker-2", Heard: true, Leads: 1}, {Name: "broker-3"}},
			Streams: []brokeradmin.Stream{
				{Name: "log 0", Leader: "broker-1", Quorum: true, Replicas: []brokeradmin.Replica{
					{Node: "broker-2", Current: true}, {Node: "broker-3", Current: true}}},
				{Name: "retained", Leader: "broker-2", Quorum: true, Replicas: []brokeradmin.Replica{
					{Node: "broker-1", Current: true, Lag: 3}, {Node: "broker-3", Lag: 12}}},
				{Name: "QoS 2", Leader: "broker-3", Replicas: []brokeradmin.Replica{
					{Node: "broker-1", Lag: 12}, {Node: "broker-2", Offline: true}}},
				{Name: "sessions", Replicas: []brokeradmin.Replica{{Node: "broker-1", Current: true}}},
			},
		},
	}
}

func TestStatusIsUnderstoodAtAGlance(t *testing.T) {
	const want = `cluster dev of 3 nodes, asked broker-1: DEGRADED
  - broker-3 is not heard from: start it again, or remove it if it is lost for good

NODE      STATE  LEADS  CLIENTS
broker-1  up     1      takes them
broker-2  up     1
broker-3  LOST   -

STREAM    LEADER    REPLICAS
log 0     broker-1  broker-2 ok, broker-3 LOST
retained  broker-2  broker-1 ok (3 behind), broker-3 LOST
QoS 2     broker-3  broker-1 BEHIND by 12, broker-2 OFFLINE
sessions  NONE      broker-1 ok
`
	a := answering(t, http.StatusOK, someStatus())
	code, out := do("cluster", "status", "--admin", a.address())
	if code != 1 || out != want {
		t.Errorf("exit code %d\n%s\nwant 1\n%s", code, out, want)
	}
	if a.what != "GET /api/v1/cluster " {
		t.Errorf("asked %s", a.what)
	}
}

func TestStatusAsJSONIsTheAnswer(t *testing.T) {
	a := answering(t, http.StatusOK, someStatus())
	_, out := do("cluster", "status", "-o", "json", "--admin", a.address())
	var s brokeradmin.Status
	if err := json.Unmarshal([]byte(out), &s); err != nil || s.Node != "broker-1" || len(s.Streams) != 4 {
		t.Errorf("%v: %s", err, out)
	}
}

func TestStatusTellsByItsExitCode(t *testing.T) {
	t.Setenv("MQTTLB_BROKER_CONFIG", "")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	off := filepath.Join(t.TempDir(), "off.yaml")
	if err := os.WriteFile(off, []byte("listeners: [{name: l, address: ':1'}]\nadmin: {address: ''}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	with := func(h brokeradmin.Health) string {
		return answering(t, http.StatusOK, brokeradmin.Status{Node: "b1", Health: h}).address()
	}
	for _, row := range []struct {
		name string
		args []string
		code int
	}{
		{"healthy", []string{"--admin", with(brokeradmin.Healthy)}, 0},
		{"degraded", []string{"--admin", with(brokeradmin.Degraded)}, 1},
		{"no quorum", []string{"--admin", with(brokeradmin.NoQuorum)}, 3},
		{"nobody answers", []string{"--admin", nobody}, 4},
		{"something else answers", []string{"--admin", answering(t, http.StatusNotFound, "?").address()}, 1},
		{"admin is off", []string{"-c", off}, 2},
		{"unknown form", []string{"-o", "xml"}, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			if code, out := do(append([]string{"cluster", "status"}, row.args...)...); code != row.code {
				t.Errorf("exit code %d, want %d\n%s", code, row.code, out)
			}
		})
	}
	if code, _ := do("cluster"); code != command.ExitUsage {
		t.Errorf("cluster without a verb: exit code %d", code)
	}
}

func TestRemoveAsksAndTellsWhatIsNext(t *testing.T) {
	a := answering(t, http.StatusOK, someStatus())
	code, out := do("cluster", "remove", "broker-3", "--admin", a.address())
	if code != 0 || !strings.Contains(out, "broker-3 is no node of the cluster any more") || !strings.Contains(out, "NODE ") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if a.what != `POST /api/v1/cluster/remove {"node":"broker-3"}` {
		t.Errorf("asked %s", a.what)
	}
	a = answering(t, http.StatusConflict, map[string]string{"error": "remove broker-2: it is heard from"})
	if code, _ := do("cluster", "remove", "broker-2", "--admin", a.address()); code != 1 {
		t.Errorf("refused: exit code %d", code)
	}
	if code, _ := do("cluster", "remove"); code != 2 {
		t.Errorf("nobody named: exit code %d", code)
	}
}

// While a new node is taken in the cluster can't remove another one.
func TestRemoveTriesAgain(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			_ = json.NewEncoder(w).Encode(map[string]string{"error": "remove b3: a change is under way"})
			return
		}
		_ = json.NewEncoder(w).Encode(someStatus())
	}))
	defer s.Close()
	var say strings.Builder
	got, err := remove(t.Context(), s.Listener.Addr().String(), "b3", &say)
	if err != nil || got.Node != "broker-1" || asked != 3 {
		t.Errorf("%v after %d questions", err, asked)
	}
	if want := "remove b3: a change is under way; trying again for 1m0s\n"; say.String() != want {
		t.Errorf("said %q, want %q", say.String(), want)
	}
}

// The commands and a broker, put together.
func TestCommandsAskARunningBroker(t *testing.T) {
	r := start(t, load(t, "node: {name: b1}\n"))
	c, _ := r.connect(t, "device-1")
	admin := r.admin.Addr().String()
	code, out := do("cluster", "status", "--admin", admin)
	if want := "single node b1: HEALTHY\n\nNODE  STATE  LEADS  CLIENTS\nb1    up     0      takes them\n"; code != 0 || out != want {
		t.Errorf("exit code %d\n%s\nwant\n%s", code, out, want)
	}
	if code, out = do("drain", "--rate", "1000/s", "--admin", admin); code != 0 || !strings.Contains(out, "drained: no client is left") {
		t.Errorf("drain: exit code %d\n%s", code, out)
	}
	if b, err := io.ReadAll(c); err != nil || len(b) == 0 {
		t.Errorf("the client reads % x, %v; want DISCONNECT and the end", b, err)
	}
	if status, body := r.get(t, "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, `"draining"`) {
		t.Errorf("/readyz: %d %s", status, body)
	}
	if code, out = do("cluster", "status", "--admin", admin); code != 1 || !strings.Contains(out, "refuses: draining") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if code, out = do("drain", "--cancel", "--admin", admin); code != 0 || !strings.Contains(out, "no drain: the node takes clients, and has 0") {
		t.Errorf("cancel: exit code %d\n%s", code, out)
	}
	if _, ack := r.connect(t, "device-1"); ack.Code != 0 || !ack.SessionPresent {
		t.Errorf("CONNACK %+v after the drain", ack)
	}
	if err := r.end(t); err != nil {
		t.Fatal(err)
	}
}

func TestDrainAsksForAPace(t *testing.T) {
	for _, row := range []struct {
		args []string
		want string // what is asked; empty: a wrong command line
	}{
		{nil, `POST /api/v1/drain {"rate":50}`},
		{[]string{"--rate", "20"}, `POST /api/v1/drain {"rate":20}`},
		{[]string{"--rate", "30/m"}, `POST /api/v1/drain {"rate":0.5}`},
		{[]string{"--rate", "1.5/s"}, `POST /api/v1/drain {"rate":1.5}`},
		{[]string{"--within", "10m"}, `POST /api/v1/drain {"within":"10m0s"}`},
		{[]string{"--rate", "5/s", "--within", "90s"}, `POST /api/v1/drain {"rate":5,"within":"1m30s"}`},
		{[]string{"--status"}, `GET /api/v1/drain `},
		{[]string{"--cancel"}, `DELETE /api/v1/drain `},
		{[]string{"--rate", "fast"}, ""},
		{[]string{"--rate", "0"}, ""},
		{[]string{"--rate", "-1/s"}, ""},
		{[]string{"--rate", "5/d"}, ""},
		{[]string{"--within", "-1s"}, ""},
		{[]string{"--cancel", "--rate", "5/s"}, ""},
		{[]string{"now"}, ""},
	} {
		t.Run(strings.Join(row.args, " "), func(t *testing.T) {
			a := answering(t, http.StatusOK, brokeradmin.Progress{Active: true, Rate: 1})
			want := command.ExitOK
			if row.want == "" {
				want = command.ExitUsage
			}
			code, out := do(append([]string{"drain", "--admin", a.address()}, row.args...)...)
			if code != want || a.what != row.want {
				t.Errorf("exit code %d, asked %q, want %d, %q\n%s", code, a.what, want, row.want, out)
			}
		})
	}
}
