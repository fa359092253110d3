package brokeradmin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker"
)

// drains is a node that keeps what is asked of it.
type drains struct{ now broker.Drain }

func (d *drains) Drain(rate float64, within time.Duration) error {
	if rate == 0 && within == 0 {
		return errors.New("it takes one of the two")
	}
	if within > 0 {
		rate = 100 / within.Seconds()
	}
	d.now = broker.Drain{Active: true, Since: time.Unix(1, 0).UTC(), Rate: rate, Clients: 100, Remaining: 60}
	return nil
}

func (d *drains) CancelDrain() bool {
	was := d.now.Active
	d.now = broker.Drain{Remaining: 60}
	return was
}

func (d *drains) Draining() broker.Drain { return d.now }

// nodes are a cluster that is as it is told.
type nodes struct {
	seen    Seen
	err     error
	removed []string
}

func (n *nodes) Status(context.Context) (Seen, error) { return n.seen, n.err }

func (n *nodes) Remove(_ context.Context, node string) error {
	if n.err != nil {
		return n.err
	}
	n.removed = append(n.removed, node)
	return nil
}

// healthy is a cluster of three with one stream.
func healthy() Seen {
	return Seen{
		Cluster: "plant", Size: 3, Copies: 3, Quorum: true, Leader: "b2",
		Nodes: []Node{{Name: "b1", Heard: true, Start: 1, Leads: 1}, {Name: "b2", Heard: true, Start: 2}, {Name: "b3", Heard: true, Start: 3}},
		Streams: []Stream{{Name: "log 0", Leader: "b1", Quorum: true, Replicas: []Replica{
			{Node: "b2", Current: true}, {Node: "b3", Current: true, Lag: 2},
		}}},
	}
}

type served struct {
	*httptest.ResponseRecorder
	t *testing.T
}

func (a *API) serve(t *testing.T, method, path, body string, change ...func(*http.Request)) served {
	t.Helper()
	mux := http.NewServeMux()
	a.Handle(mux)
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.RemoteAddr, r.Host = "127.0.0.1:4711", "127.0.0.1:9191"
	r.Header.Set("Content-Type", "application/json")
	for _, c := range change {
		c(r)
	}
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, r)
	if kind := rec.Header().Get("Content-Type"); kind != "application/json" {
		t.Errorf("Content-Type %q", kind)
	}
	return served{rec, t}
}

func (s served) into(v any) {
	s.t.Helper()
	if err := json.Unmarshal(s.Body.Bytes(), v); err != nil {
		s.t.Fatalf("%v in %s", err, s.Body)
	}
}

func api(c Cluster) (*API, *drains) {
	d := &drains{}
	return &API{Ready: NewReadiness("b1", func() (bool, []string) { return true, nil }), Drainer: d, Cluster: c, Log: slog.New(slog.DiscardHandler)}, d
}

func TestClusterTellsWhatAnOperatorHasToKnow(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*Seen)
		why    []string // the node takes no clients
		health Health
		want   []string
	}{
		{"all well", func(*Seen) {}, nil, Healthy, []string{}},
		{"a node is lost", func(s *Seen) {
			s.Nodes[2].Heard = false
			s.Streams[0].Replicas[1] = Replica{Node: "b3", Offline: true, Lag: 40}
		}, nil, Degraded, []string{"b3 is not heard from: start it again, or remove it if it is lost for good"}},
		{"a node never came", func(s *Seen) { s.Nodes = s.Nodes[:2] }, nil, Degraded, []string{"1 of 3 nodes are missing: start them"}},
		{"a replica catches up", func(s *Seen) { s.Streams[0].Replicas[1] = Replica{Node: "b3", Lag: 40} }, nil, Degraded,
			[]string{"log 0 on b3 is 40 behind and catches up"}},
		{"a replica is offline on a node that is there", func(s *Seen) { s.Streams[0].Replicas[1] = Replica{Node: "b3", Offline: true} }, nil, Degraded,
			[]string{"log 0 on b3 is offline"}},
		{"a copy is missing", func(s *Seen) { s.Streams[0].Replicas = s.Streams[0].Replicas[:1] }, nil, Degraded,
			[]string{"log 0 is on 2 nodes, and should be on 3"}},
		{"an election in the cluster", func(s *Seen) { s.Leader = "" }, nil, Degraded, []string{"the cluster has no leader: an election is under way"}},
		{"an election", func(s *Seen) { s.Streams[0].Leader = "" }, nil, Degraded,
			[]string{"log 0 has no leader: an election is under way, or there is no majority"}},
		{"cut off", func(s *Seen) { s.Quorum, s.Nodes[1].Heard, s.Nodes[2].Heard = false, false, false }, []string{"no quorum"}, NoQuorum,
			[]string{"1 of 3 nodes are heard here, which is no majority: nothing is acknowledged on this side",
				"b2 is not heard from: start it again, or remove it if it is lost for good",
				"b3 is not heard from: start it again, or remove it if it is lost for good"}},
		{"it takes no clients", func(*Seen) {}, []string{"draining"}, Degraded, []string{"b1 takes no clients: draining"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			seen := healthy()
			row.change(&seen)
			a, _ := api(&nodes{seen: seen})
			a.Ready = NewReadiness("b1", func() (bool, []string) { return row.why == nil, row.why })
			got := a.serve(t, "GET", "/api/v1/cluster", "")
			var s Status
			got.into(&s)
			if got.Code != http.StatusOK || s.Health != row.health || !slices.Equal(s.Problems, row.want) || s.Node != "b1" || s.Ready != (row.why == nil) {
				t.Errorf("%d %s", got.Code, got.Body)
			}
		})
	}
}

func TestANodeThatIsAloneIsAClusterOfOne(t *testing.T) {
	a, _ := api(nil)
	got := a.serve(t, "GET", "/api/v1/cluster", "")
	var s Status
	got.into(&s)
	if s.Health != Healthy || s.Size != 1 || len(s.Nodes) != 1 || s.Nodes[0].Name != "b1" || !strings.Contains(got.Body.String(), `"streams": []`) {
		t.Errorf("%s", got.Body)
	}
	if got := a.serve(t, "POST", "/api/v1/cluster/remove", `{"node":"b2"}`); got.Code != http.StatusConflict {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}

func TestDrainByTheAPI(t *testing.T) {
	a, d := api(nil)
	var p Progress
	a.serve(t, "POST", "/api/v1/drain", `{"rate":50}`).into(&p)
	if !p.Active || p.Rate != 50 || p.Clients != 100 || p.Remaining != 60 || !d.now.Active {
		t.Errorf("%+v", p)
	}
	a.serve(t, "POST", "/api/v1/drain", `{"within":"10s"}`).into(&p)
	if p.Rate != 10 {
		t.Errorf("%+v", p)
	}
	a.serve(t, "DELETE", "/api/v1/drain", "").into(&p)
	if d.now.Active {
		t.Error("it drains still")
	}
	p = Progress{}
	a.serve(t, "GET", "/api/v1/drain", "").into(&p)
	if p.Active || p.Remaining != 60 {
		t.Errorf("%+v", p)
	}
}

func TestRemoveANode(t *testing.T) {
	n := &nodes{seen: healthy()}
	a, _ := api(n)
	if got := a.serve(t, "POST", "/api/v1/cluster/remove", `{"node":"b3"}`); got.Code != http.StatusOK || !slices.Equal(n.removed, []string{"b3"}) {
		t.Errorf("%d %s, removed %v", got.Code, got.Body, n.removed)
	}
}

func TestWhatTheAPIRefusesItExplains(t *testing.T) {
	for _, row := range []struct {
		name, method, path, body string
		err                      error // of the cluster
		status                   int
		want                     string
	}{
		{"no pace", "POST", "/api/v1/drain", `{}`, nil, 400, "it takes one of the two"},
		{"no body", "POST", "/api/v1/drain", ``, nil, 400, "it takes one of the two"},
		{"no time", "POST", "/api/v1/drain", `{"within":"10"}`, nil, 400, `write a number with its unit`},
		{"misspelt", "POST", "/api/v1/drain", `{"rat":1}`, nil, 400, `unknown field "rat"`},
		{"not JSON", "POST", "/api/v1/drain", `rate=1`, nil, 400, "the request is not what it takes"},
		{"nobody to remove", "POST", "/api/v1/cluster/remove", `{}`, nil, 400, "name the node that is lost for good"},
		{"one that is there", "POST", "/api/v1/cluster/remove", `{"node":"b2"}`, errors.New("it is heard from"), 409, "remove b2: it is heard from"},
		{"a change under way", "POST", "/api/v1/cluster/remove", `{"node":"b2"}`, fmt.Errorf("%w: a change is under way", ErrNotNow), 503, "remove b2: not now: a change is under way"},
		{"no answer", "GET", "/api/v1/cluster", "", errors.New("no quorum"), 503, "ask the cluster: no quorum"},
		{"another path", "GET", "/api/v1/nodes", "", nil, 404, "there is no GET /api/v1/nodes here"},
		{"another method", "PUT", "/api/v1/drain", "{}", nil, 404, "there is no PUT /api/v1/drain here"},
	} {
		t.Run(row.name, func(t *testing.T) {
			a, d := api(&nodes{seen: healthy(), err: row.err})
			got := a.serve(t, row.method, row.path, row.body)
			var no struct{ Error string }
			got.into(&no)
			if got.Code != row.status || !strings.Contains(no.Error, row.want) {
				t.Errorf("%d %s", got.Code, got.Body)
			}
			if d.now.Active {
				t.Error("it drains nevertheless")
			}
		})
	}
}

func TestChangesAreTakenFromThisMachineOnly(t *testing.T) {
	from := func(addr string) func(*http.Request) { return func(r *http.Request) { r.RemoteAddr = addr } }
	with := func(key, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(key, value) }
	}
	host := func(h string) func(*http.Request) { return func(r *http.Request) { r.Host = h } }
	for _, row := range []struct {
		name string
		as   func(*http.Request)
		ok   bool
	}{
		{"a command here", from("127.0.0.1:4711"), true},
		{"over IPv6", from("[::1]:4711"), true},
		{"by name", host("localhost:9191"), true},
		{"with a charset", with("Content-Type", "application/json; charset=utf-8"), true},
		{"another machine", from("10.0.0.7:4711"), false},
		{"another machine, mapped", from("[::ffff:10.0.0.7]:4711"), false},
		{"a proxy here", with("X-Forwarded-For", "10.0.0.7"), false},
		{"a page's form", with("Content-Type", "text/plain"), false},
		{"a name that a page made point here", host("evil.example.com:9191"), false},
	} {
		for _, method := range []string{"POST", "DELETE"} {
			t.Run(fmt.Sprint(row.name, " ", method), func(t *testing.T) {
				if method == "DELETE" && strings.Contains(row.name, "form") {
					t.Skip("a form can't")
				}
				a, d := api(nil)
				d.now.Active = method == "DELETE"
				got := a.serve(t, method, "/api/v1/drain", `{"rate":1}`, row.as)
				changed := d.now.Active == (method == "POST")
				if (got.Code == http.StatusOK) != row.ok || !row.ok && got.Code != http.StatusForbidden || changed != row.ok {
					t.Errorf("%d %s, changed %t", got.Code, got.Body, changed)
				}
				if got := a.serve(t, "GET", "/api/v1/drain", "", row.as); got.Code != http.StatusOK {
					t.Errorf("reading: %d", got.Code)
				}
			})
		}
	}
}
