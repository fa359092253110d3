package affinity

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/backend"
)

func TestExplainSaysWhy(t *testing.T) {
	const key = "dev-000001"
	for _, c := range []struct {
		name   string
		key    string
		o      Options
		set    func(home, spare, last *backend.Backend)
		why    string
		serves string
	}{
		{"home up", key, Options{}, func(_, _, _ *backend.Backend) {},
			"home H serves", "H"},
		{"home down", key, Options{}, func(h, _, _ *backend.Backend) { h.SetHealth(false, "connection refused") },
			"home H is out (down: connection refused); spare 1, S, serves", "S"},
		{"home in drain, spare in maintenance", key, Options{}, func(h, s, _ *backend.Backend) { h.SetAdmin(backend.Drain); s.SetAdmin(backend.Maint) },
			"home H is out (in drain: takes no new connections); spare 2, L, serves", "L"},
		{"home full", key, Options{}, func(h, _, _ *backend.Backend) { hold(t, h, 9) },
			"home H is out (full: holds 9 of 9 connections); spare 1, S, serves", "S"},
		{"home over the bounded load", key, Options{LoadFactor: 1.25}, func(h, _, _ *backend.Backend) { hold(t, h, 4) },
			"home H is out (over the bounded load: holds 4, load_factor allows 3); spare 1, S, serves", "S"},
		{"all full", key, Options{}, func(h, s, l *backend.Backend) { hold(t, h, 9); hold(t, s, 9); hold(t, l, 9) },
			"home is H; no backend has room: those that are up are full", ""},
		{"all down", key, Options{}, func(h, s, l *backend.Backend) {
			h.SetHealth(false, "x")
			s.SetHealth(false, "")
			l.SetHealth(false, "x")
		}, "home is H; no backend takes connections now", ""},
		{"an empty key", "", Options{}, func(_, _, _ *backend.Backend) {},
			"an empty key has no home; it goes to the backend with the fewest connections for its weight", ""},
		{"least connections", key, Options{Balance: LeastConnections}, func(_, _, _ *backend.Backend) {},
			"each connection goes to the backend with the fewest connections for its weight", ""},
		{"round robin", key, Options{Balance: RoundRobin}, func(_, _, _ *backend.Backend) {},
			"backends take turns, by weight; the key plays no part", ""},
		{"random", key, Options{Balance: Random}, func(_, _, _ *backend.Backend) {},
			"lots are drawn, by weight; the key plays no part", ""},
		{"round robin, all down", key, Options{Balance: RoundRobin}, func(h, s, l *backend.Backend) {
			for _, b := range []*backend.Backend{h, s, l} {
				b.SetHealth(false, "x")
			}
		}, "no backend takes connections now", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var all []*backend.Backend
			for _, name := range []string{"b1", "b2", "b3"} {
				all = append(all, up(backend.Spec{Name: name, Address: name + ".example.com:1883", MaxConnections: 9}))
			}
			ring := build(t, all, Options{})
			h, s, l := home(t, ring, []byte(key)), mustPick(t, ring, key, 1), mustPick(t, ring, key, 2)
			c.set(h, s, l)
			name := strings.NewReplacer("H", h.Name, "S", s.Name, "L", l.Name)

			e := build(t, all, c.o).Explain([]byte(c.key))
			if want := name.Replace(c.why); e.Why != want {
				t.Errorf("why %q, want %q", e.Why, want)
			}
			if want := name.Replace(c.serves); e.Serves != want {
				t.Errorf("serves %q, want %q", e.Serves, want)
			}
			if len(e.Order) != 3 || (e.Home != "") != (e.Hash != "") {
				t.Errorf("explanation %+v", e)
			}
		})
	}
}

func mustPick(t *testing.T, table *Table, key string, attempt int) *backend.Backend {
	t.Helper()
	b, ok := table.Pick([]byte(key), attempt)
	if !ok {
		t.Fatalf("%q has no backend %d", key, attempt)
	}
	return b
}

// `mqttlb ring explain` with a file and no running mqttlb: nothing is checked.
func TestExplainNamesTheHomeBeforeAnyCheck(t *testing.T) {
	table := build(t, []*backend.Backend{
		backend.New(backend.Spec{Name: "b1"}), backend.New(backend.Spec{Name: "b2"}),
	}, Options{})
	e := table.Explain([]byte("dev-000001"))
	if e.Home == "" || e.Serves != "" || !strings.HasSuffix(e.Why, "no backend has been checked yet") {
		t.Fatalf("explanation %+v", e)
	}
}

func TestExplainOrdersAnEmptyKeyByLoad(t *testing.T) {
	all := pool(3, "b%d")
	hold(t, all[0], 7)
	hold(t, all[2], 3)
	e := build(t, all, Options{}).Explain(nil)
	if e.Order[0].Name != "b2" || e.Order[1].Name != "b3" || e.Order[2].Name != "b1" || e.Balance != LeastConnections {
		t.Fatalf("explanation %+v", e)
	}
}

func TestExplanationReadsWell(t *testing.T) {
	var all []*backend.Backend
	for _, s := range []backend.Spec{
		{Name: "b1", Address: "10.0.0.1:1883"}, {Name: "b2", Address: "10.0.0.2:1883", Weight: 200}, {Name: "b3", Address: "10.0.0.3:1883"},
	} {
		all = append(all, up(s))
	}
	hold(t, all[1], 12)
	all[1].SetHealth(false, "connection refused")
	const want = `key "dev-000001": home b2 is out (down: connection refused); spare 1, b3, serves
balance ring, key at 8cfb9e8bcf779756

ORDER    BACKEND  ADDRESS        WEIGHT  STATE  CONNECTIONS  NOTE
home     b2       10.0.0.2:1883  200     down   12           down: connection refused
spare 1  b3       10.0.0.3:1883  100     up     0            takes connections  <- serves
spare 2  b1       10.0.0.1:1883  100     up     0            takes connections
`
	var got strings.Builder
	n, err := build(t, all, Options{}).Explain([]byte("dev-000001")).WriteTo(&got)
	if err != nil || n != int64(got.Len()) || got.String() != want {
		t.Fatalf("wrote %d, %v:\n%s\nwant:\n%s", n, err, got.String(), want)
	}
}

func TestExplanationKeepsTerminalsSafe(t *testing.T) {
	s := build(t, pool(2, "b%d"), Options{}).Explain([]byte("\x1b[2Jdev\n")).String()
	if strings.Contains(s, "\x1b") || !strings.Contains(s, `"\x1b[2Jdev\n"`) {
		t.Fatalf("%q", s)
	}
}

func TestExplanationAsJSON(t *testing.T) {
	table := build(t, []*backend.Backend{up(backend.Spec{Name: "b1", Address: "10.0.0.1:1883"})}, Options{LoadFactor: 1.25})
	got, err := json.Marshal(table.Explain([]byte("dev-000001")))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"key":"dev-000001","balance":"ring","hash":"8cfb9e8bcf779756","home":"b1","serves":"b1","why":"home b1 serves",` +
		`"order":[{"name":"b1","address":"10.0.0.1:1883","weight":100,"state":"up","connections":0,"bound":2,"takes":true,"note":"takes connections"}]}`
	if string(got) != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}
