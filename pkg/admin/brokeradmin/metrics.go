package brokeradmin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mqttlb/mqttlb/pkg/admin"
	"github.com/mqttlb/mqttlb/pkg/broker"
)

// Metrics are the broker's Prometheus metrics. Labels come from closed lists and
// from the configuration, never from clients. It is the broker.Observer.
type Metrics struct {
	Registry *prometheus.Registry

	ended          *prometheus.CounterVec
	appended       prometheus.Histogram
	appendFailures prometheus.Counter
	writes         *prometheus.HistogramVec
	writeFailures  *prometheus.CounterVec
	written        *prometheus.CounterVec
}

// appendBuckets reach from a write that the operating system has taken to a disk
// that is about to fail, in seconds.
var appendBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}

// NewMetrics gives metrics in a registry of their own, together with those of
// the Go runtime and the process.
func NewMetrics() *Metrics {
	m := &Metrics{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "broker_connections_ended_total", Help: "Connections that ended, by how far they came, who ended them and why.",
		}, []string{"stage", "by", "reason"}),
		appended: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "broker_append_seconds", Help: "From a message of QoS 1 or 2 being given to the store to its being stored.", Buckets: appendBuckets,
		}),
		appendFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "broker_append_failures_total", Help: "Messages of QoS 1 or 2 that the store did not take, or not in time.",
		}),
		writes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "broker_store_write_seconds", Help: "Writes of the store that succeeded, from the wait for one another to the end, by what was written.", Buckets: appendBuckets,
		}, []string{"what"}),
		writeFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "broker_store_write_failures_total", Help: "Writes of the store that failed, by what was written.",
		}, []string{"what"}),
		written: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "broker_store_written_total", Help: "Messages and records that were written; several share a write.",
		}, []string{"what"}),
	}
	m.Registry = admin.NewRegistry(m.ended, m.appended, m.appendFailures, m.writes, m.writeFailures, m.written)
	return m
}

// Appended implements broker.Observer.
func (m *Metrics) Appended(took time.Duration, err error) {
	if err != nil {
		m.appendFailures.Inc()
		return
	}
	m.appended.Observe(took.Seconds())
}

// Stored notes a write of the store that is over, of as many messages or
// records; what is one of the store's closed list.
func (m *Metrics) Stored(what string, messages int, took time.Duration, err error) {
	if err != nil {
		m.writeFailures.WithLabelValues(what).Inc()
		return
	}
	m.writes.WithLabelValues(what).Observe(took.Seconds())
	m.written.WithLabelValues(what).Add(float64(messages))
}

// Ended implements broker.Observer.
func (m *Metrics) Ended(e broker.End) {
	m.ended.WithLabelValues(string(e.Stage), string(e.By), string(e.Why)).Inc()
}

// Watch adds the figures that the broker keeps itself, read at each scrape, and
// the expiry of the certificates.
func (m *Metrics) Watch(f Figures) { m.Registry.MustRegister(&live{f}) }
