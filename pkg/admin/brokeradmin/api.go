package brokeradmin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker"
)

// Drainer lets a node's clients go: a *broker.Broker.
type Drainer interface {
	Drain(rate float64, within time.Duration) error
	CancelDrain() bool
	Draining() broker.Drain
}

// ErrNotNow is what a Cluster can't do at this moment, and may be able to soon.
var ErrNotNow = errors.New("not now")

// Cluster is what the nodes know of one another.
type Cluster interface {
	// Status says how things are, as seen from here.
	Status(ctx context.Context) (Seen, error)
	// Remove takes a lost node out for good, so that another can come in its
	// place.
	Remove(ctx context.Context, node string) error
}

// API is what operators see and do over HTTP, below /api/v1.
type API struct {
	Ready   *Readiness
	Drainer Drainer
	Cluster Cluster // nil on a node that is alone
	Log     *slog.Logger
}

// apiTimeout bounds what the API asks of the cluster.
const apiTimeout = 10 * time.Second

// mostBody is the longest request that is read.
const mostBody = 64 << 10

// Handle adds the API to a mux.
func (a *API) Handle(mux *http.ServeMux) {
	mux.HandleFunc("GET /api/v1/cluster", a.cluster)
	mux.HandleFunc("POST /api/v1/cluster/remove", a.changes(a.remove))
	mux.HandleFunc("GET /api/v1/drain", a.progress)
	mux.HandleFunc("POST /api/v1/drain", a.changes(a.drain))
	mux.HandleFunc("DELETE /api/v1/drain", a.changes(a.cancelDrain))
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, fmt.Errorf("there is no %s %s here; docs/broker.md lists what there is", r.Method, r.URL.Path))
	})
}

// Progress is the answer of /api/v1/drain.
type Progress struct {
	Active    bool      `json:"active"`
	Since     time.Time `json:"since,omitzero"`
	Rate      float64   `json:"rate,omitempty"` // clients a second
	Clients   int       `json:"clients"`        // when it began
	Remaining int       `json:"remaining"`      // now
}

func (a *API) progress(w http.ResponseWriter, _ *http.Request) {
	answer(w, Progress(a.Drainer.Draining()))
}

func (a *API) drain(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Rate   float64
		Within string
	}
	if err := read(w, r, &ask); err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	within, err := time.ParseDuration(ask.Within)
	if ask.Within != "" && err != nil {
		refuse(w, http.StatusBadRequest, fmt.Errorf(`within: %q is not a time; write a number with its unit, e.g. "10m"`, ask.Within))
		return
	}
	if err := a.Drainer.Drain(ask.Rate, within); err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	a.progress(w, r)
}

func (a *API) cancelDrain(w http.ResponseWriter, r *http.Request) {
	a.Drainer.CancelDrain()
	a.progress(w, r)
}

func (a *API) remove(w http.ResponseWriter, r *http.Request) {
	var ask struct{ Node string }
	if err := read(w, r, &ask); err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	switch {
	case a.Cluster == nil:
		refuse(w, http.StatusConflict, errors.New("this broker is a single node: there is no other to remove"))
		return
	case ask.Node == "":
		refuse(w, http.StatusBadRequest, errors.New("node: is missing; name the node that is lost for good"))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), apiTimeout)
	defer cancel()
	if err := a.Cluster.Remove(ctx, ask.Node); err != nil {
		status := http.StatusConflict
		if errors.Is(err, ErrNotNow) {
			status = http.StatusServiceUnavailable
		}
		refuse(w, status, fmt.Errorf("remove %s: %w", ask.Node, err))
		return
	}
	a.cluster(w, r)
}

// read takes a request's body, and nothing that would have no effect.
func read(w http.ResponseWriter, r *http.Request, into any) error {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostBody))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("the request is not what it takes: %w", err)
	}
	return nil
}

func answer(w http.ResponseWriter, v any) { write(w, http.StatusOK, v) }

func refuse(w http.ResponseWriter, status int, err error) {
	write(w, status, map[string]string{"error": err.Error()})
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v)
}
