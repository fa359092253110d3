package admin

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mqttlb/mqttlb/pkg/backend"
	"github.com/mqttlb/mqttlb/pkg/proxy"
)

// Metrics are mqttlb's Prometheus metrics. Labels come from closed lists and
// from the configuration, never from clients. It is the proxy.Observer of all
// listeners.
type Metrics struct {
	Registry *prometheus.Registry

	ended             *prometheus.CounterVec
	refused           *prometheus.CounterVec
	handshakes        *prometheus.HistogramVec
	handshakeFailures *prometheus.CounterVec
	connect           *prometheus.HistogramVec
	backendConnect    *prometheus.HistogramVec
	checkFailures     *prometheus.CounterVec
}

// setUpBuckets reach from a resumed handshake near by to a device at the end of
// a bad radio link, in seconds.
var setUpBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// NewMetrics gives metrics in a registry of their own, together with those of
// the Go runtime and the process.
func NewMetrics() *Metrics {
	m := &Metrics{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mqttlb_connections_ended_total", Help: "Connections that ended, by how far they came, who ended them and why.",
		}, []string{"stage", "by", "reason"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mqttlb_connect_refused_total", Help: "Connections that did not get through to a backend.",
		}, []string{"listener", "reason"}),
		handshakes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mqttlb_tls_handshake_seconds", Help: "Duration of TLS handshakes that succeeded.", Buckets: setUpBuckets,
		}, []string{"listener", "resumed"}),
		handshakeFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mqttlb_tls_handshake_failures_total", Help: "TLS handshakes that failed.",
		}, []string{"listener", "reason"}),
		connect: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mqttlb_connect_seconds", Help: "From accept to the way to the backend being open.", Buckets: setUpBuckets,
		}, []string{"listener"}),
		backendConnect: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mqttlb_backend_connect_seconds", Help: "Duration of TCP connects to backends that succeeded.", Buckets: setUpBuckets,
		}, []string{"pool", "backend"}),
		checkFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mqttlb_check_failures_total", Help: "Health checks and passive reports that failed.",
		}, []string{"pool", "backend", "reason"}),
	}
	m.Registry = NewRegistry(m.ended, m.refused, m.handshakes, m.handshakeFailures, m.connect, m.backendConnect, m.checkFailures)
	return m
}

// Watch adds the figures that listeners and pools keep themselves, read at each
// scrape, and the expiry of the certificates.
func (m *Metrics) Watch(servers []*proxy.Server, pools []*proxy.Pool, certificates []Certificate) {
	m.Registry.MustRegister(&live{servers, pools, certificates})
}

// Handshaken implements proxy.Observer.
func (m *Metrics) Handshaken(h proxy.Handshake) {
	if h.Failure != "" {
		m.handshakeFailures.WithLabelValues(h.Listener, string(h.Failure)).Inc()
		return
	}
	m.handshakes.WithLabelValues(h.Listener, strconv.FormatBool(h.Resumed)).Observe(h.Took.Seconds())
}

// Opened implements proxy.Observer.
func (m *Metrics) Opened(s proxy.Start) {
	m.connect.WithLabelValues(s.Listener).Observe(s.SetUp.Seconds())
}

// Ended implements proxy.Observer.
func (m *Metrics) Ended(e proxy.End) {
	m.ended.WithLabelValues(string(e.Stage), string(e.By), string(e.Why)).Inc()
	if !e.Opened && e.Why != proxy.NoBytes {
		m.refused.WithLabelValues(e.Listener, string(e.Why)).Inc()
	}
}

// Dialed notes a TCP connect to a backend that succeeded.
func (m *Metrics) Dialed(id backend.ID, took time.Duration) {
	m.backendConnect.WithLabelValues(id.Pool, id.Name).Observe(took.Seconds())
}

// CheckFailed notes a failed health check; reason is one of health's closed
// list.
func (m *Metrics) CheckFailed(id backend.ID, reason string) {
	m.checkFailures.WithLabelValues(id.Pool, id.Name, reason).Inc()
}

// live reads figures where they are kept.
type live struct {
	servers      []*proxy.Server
	pools        []*proxy.Pool
	certificates []Certificate
}

var (
	connectionsDesc        = Desc("mqttlb_connections", "Connections held now.", "listener")
	connectionsTotalDesc   = Desc("mqttlb_connections_total", "Connections accepted.", "listener")
	bytesDesc              = Desc("mqttlb_bytes_total", "Bytes relayed, and those of connections that were refused, by who sent them.", "listener", "direction")
	backendUpDesc          = Desc("mqttlb_backend_up", "1 if the backend's health checks pass.", "pool", "backend")
	backendConnectionsDesc = Desc("mqttlb_backend_connections", "Connections held now, those being set up included.", "pool", "backend")
	backendSpilledDesc     = Desc("mqttlb_backend_spilled_total", "Clients that went elsewhere because the backend was full or over its bounded load.", "pool", "backend")
	certificateDesc        = Desc("mqttlb_certificate_expiry_seconds", "Seconds until the certificate expires.", "listener", "subject")
)

// Describe implements prometheus.Collector.
func (l *live) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{connectionsDesc, connectionsTotalDesc, bytesDesc, backendUpDesc, backendConnectionsDesc, backendSpilledDesc, certificateDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (l *live) Collect(ch chan<- prometheus.Metric) {
	out := Sink(ch)
	for _, s := range l.servers {
		out.Gauge(connectionsDesc, float64(s.Connections()), s.Name())
		out.Counter(connectionsTotalDesc, s.Accepted(), s.Name())
		out.Counter(bytesDesc, s.Traffic().FromClients.Load(), s.Name(), "from_clients")
		out.Counter(bytesDesc, s.Traffic().FromBackends.Load(), s.Name(), "from_backends")
	}
	for _, p := range l.pools {
		for _, b := range p.Options().Table.Backends() {
			up := 0.0
			if v, ok := b.Verdict(); ok && v.Up {
				up = 1
			}
			out.Gauge(backendUpDesc, up, b.Pool, b.Name)
			out.Gauge(backendConnectionsDesc, float64(b.Connections()), b.Pool, b.Name)
			out.Counter(backendSpilledDesc, b.Spilled(), b.Pool, b.Name)
		}
	}
	for _, c := range l.certificates {
		out.Gauge(certificateDesc, c.Left(), c.Listener, c.Subject)
	}
}
