package admin

import (
	"encoding/json"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Reporter says whether clients should be sent here, and why not.
type Reporter interface{ Report() Report }

// Report is the answer of /readyz.
type Report struct {
	Ready   bool        `json:"ready"`
	Reasons []string    `json:"reasons,omitempty"` // why not
	Pools   []PoolState `json:"pools,omitempty"`   // mqttlb's
	Node    string      `json:"node,omitempty"`    // the broker's
}

// Health answers /healthz and /readyz: what a checker may ask without seeing
// more.
func Health(ready Reporter) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		report := ready.Report()
		w.Header().Set("Content-Type", "application/json")
		if !report.Ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(report)
	})
	return mux
}

// Handler is the admin address: health and metrics.
func Handler(ready Reporter, metrics prometheus.Gatherer) *http.ServeMux {
	mux := Health(ready)
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	return mux
}
