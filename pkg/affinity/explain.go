package affinity

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/mqttlb/mqttlb/pkg/backend"
)

// Explanation says where a key goes and why, for people (String, WriteTo) and
// for programs (JSON). It is a picture of one moment and owes nothing to the
// table after that.
type Explanation struct {
	Key     string  `json:"key"`
	Balance Balance `json:"balance"`
	// Hash is the place of the key on the ring, 16 hex digits; empty without a ring.
	Hash string `json:"hash,omitempty"`
	// Home is the backend that the key goes to when all are well; empty when
	// the key has none.
	Home string `json:"home,omitempty"`
	// Serves is the backend that a connection with this key would get now;
	// empty when that is for lot or turn to say, or when there is none.
	Serves string `json:"serves,omitempty"`
	// Why says all that in one sentence.
	Why string `json:"why"`
	// Order is every backend, in the order in which the key would try them on a
	// ring, by load for least_connections, else by name.
	Order []Step `json:"order"`
}

// Step is one backend in an Explanation.
type Step struct {
	Name        string        `json:"name"`
	Address     string        `json:"address"`
	Weight      int           `json:"weight"`
	State       backend.State `json:"state"`
	Connections int64         `json:"connections"`
	// MaxConnections is the configured bound; zero is none.
	MaxConnections int `json:"max_connections,omitempty"`
	// Bound is what load_factor allows now; zero is no bound.
	Bound int64 `json:"bound,omitempty"`
	// Takes says whether it would take a connection now.
	Takes bool `json:"takes"`
	// Note says why it does not, or where that lies in the order.
	Note string `json:"note"`
}

// Explain gives the way that Walk would go for key now, and counts nothing.
func (t *Table) Explain(key []byte) Explanation {
	w := t.Walk(key)
	e := Explanation{Key: string(key), Balance: w.balance, Order: make([]Step, 0, len(t.members))}
	findings := make([]finding, 0, len(t.members))
	for _, b := range t.inOrder(&w) {
		f := t.judge(b, w.bound)
		findings = append(findings, f)
		s := Step{
			Name: b.Name, Address: b.Address, Weight: b.Weight, State: b.State(),
			Connections: b.Connections(), MaxConnections: b.MaxConnections,
			Takes: f == hasRoom,
		}
		if w.bound.on() {
			s.Bound = w.bound.of(b)
		}
		s.Note = note(b, f, s)
		e.Order = append(e.Order, s)
	}
	// The first with room serves. One always is within the bound when any has
	// room at all, unless connections came while this was looking.
	serves := slices.Index(findings, hasRoom)
	if serves < 0 {
		serves = slices.Index(findings, overBound)
	}
	if w.balance == Ring {
		e.Hash = fmt.Sprintf("%016x", hashKey(key))
		e.Home = e.Order[0].Name
		if serves >= 0 {
			e.Serves = e.Order[serves].Name
		}
	}
	e.Why = why(&w, e, findings, serves)
	return e
}

// inOrder gives all members in the order of Explanation.Order.
func (t *Table) inOrder(w *Walk) []*backend.Backend {
	switch w.balance {
	case Ring:
		order := make([]*backend.Backend, 0, len(t.members))
		seen, at, owner := newSet(len(t.members)), w.home, 0
		for range t.members {
			owner, at = t.ring.nextDistinct(at, &seen)
			order = append(order, t.members[owner])
		}
		return order
	case LeastConnections:
		// One reading of each counter: a sort must not see them move.
		type loaded struct {
			b    *backend.Backend
			load float64
		}
		all := make([]loaded, len(t.members))
		for i, b := range t.members {
			all[i] = loaded{b, float64(b.Connections()+1) / float64(b.Weight)}
		}
		slices.SortStableFunc(all, func(a, b loaded) int { return cmp.Compare(a.load, b.load) })
		order := make([]*backend.Backend, len(all))
		for i, l := range all {
			order[i] = l.b
		}
		return order
	default:
		return t.members
	}
}

func note(b *backend.Backend, f finding, s Step) string {
	switch f {
	case isFull:
		return fmt.Sprintf("full: holds %d of %d connections", s.Connections, s.MaxConnections)
	case overBound:
		return fmt.Sprintf("over the bounded load: holds %d, load_factor allows %d", s.Connections, s.Bound)
	case hasRoom:
		return "takes connections"
	}
	switch s.State {
	case backend.StateDrain:
		return "in drain: takes no new connections"
	case backend.StateMaint:
		return "in maintenance: takes no new connections"
	case backend.StateChecking:
		return "not checked yet"
	}
	if v, ok := b.Verdict(); ok && v.Reason != "" {
		return "down: " + v.Reason
	}
	return "down"
}

func why(w *Walk, e Explanation, findings []finding, serves int) string {
	switch {
	case w.balance != Ring && serves < 0:
		return "no backend takes connections now"
	case w.balance == LeastConnections && e.Key == "" && w.table.balance != LeastConnections:
		return "an empty key has no home; it goes to the backend with the fewest connections for its weight"
	case w.balance == LeastConnections:
		return "each connection goes to the backend with the fewest connections for its weight"
	case w.balance == RoundRobin:
		return "backends take turns, by weight; the key plays no part"
	case w.balance == Random:
		return "lots are drawn, by weight; the key plays no part"
	}

	home := e.Order[0]
	switch {
	case serves == 0:
		return fmt.Sprintf("home %s serves", home.Name)
	case serves > 0:
		return fmt.Sprintf("home %s is out (%s); spare %d, %s, serves", home.Name, home.Note, serves, e.Serves)
	}
	checked := slices.ContainsFunc(e.Order, func(s Step) bool { return s.State != backend.StateChecking })
	switch {
	case !checked:
		return fmt.Sprintf("home is %s; no backend has been checked yet", home.Name)
	case slices.Contains(findings, isFull):
		return fmt.Sprintf("home is %s; no backend has room: those that are up are full", home.Name)
	default:
		return fmt.Sprintf("home is %s; no backend takes connections now", home.Name)
	}
}

// String gives what WriteTo writes.
func (e Explanation) String() string {
	var s strings.Builder
	key := "empty key"
	if e.Key != "" {
		key = fmt.Sprintf("key %q", e.Key)
	}
	fmt.Fprintf(&s, "%s: %s\n", key, e.Why)
	if e.Hash != "" {
		fmt.Fprintf(&s, "balance %s, key at %s\n", e.Balance, e.Hash)
	} else {
		fmt.Fprintf(&s, "balance %s\n", e.Balance)
	}
	t := tabwriter.NewWriter(&s, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nORDER\tBACKEND\tADDRESS\tWEIGHT\tSTATE\tCONNECTIONS\tNOTE")
	for i, step := range e.Order {
		place := ""
		switch {
		case e.Home == "":
		case i == 0:
			place = "home"
		default:
			place = fmt.Sprintf("spare %d", i)
		}
		note := step.Note
		if e.Serves == step.Name {
			note += "  <- serves"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%d\t%s\n", place, step.Name, step.Address, step.Weight, step.State, step.Connections, note)
	}
	t.Flush() // a strings.Builder takes everything
	return s.String()
}

// WriteTo writes the explanation as a table for people, a few lines long.
func (e Explanation) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, e.String())
	return int64(n), err
}
