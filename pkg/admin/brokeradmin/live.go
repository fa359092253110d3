package brokeradmin

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mqttlb/mqttlb/pkg/admin"
	"github.com/mqttlb/mqttlb/pkg/broker"
)

// Figures is where a broker's figures come from.
type Figures struct {
	// Stats are the broker's own.
	Stats func() broker.Stats
	// Certificates are those that listeners present.
	Certificates []admin.Certificate
}

// live reads figures where they are kept.
type live struct{ Figures }

var (
	clientsDesc       = admin.Desc("broker_clients", "Clients connected now.")
	sessionsDesc      = admin.Desc("broker_sessions", "Sessions, with those of clients that are away.")
	subscriptionsDesc = admin.Desc("broker_subscriptions", "Subscriptions of all sessions.")
	retainedDesc      = admin.Desc("broker_retained", "Retained messages.")
	queuedDesc        = admin.Desc("broker_queued", "Messages that wait in sessions to be sent.")
	queuedBytesDesc   = admin.Desc("broker_queued_bytes", "Bytes of the waiting messages that are in memory.")
	inFlightDesc      = admin.Desc("broker_in_flight", "Messages of QoS 1 and 2 that were sent and not acknowledged.")
	messagesDesc      = admin.Desc("broker_messages_total", "Messages (PUBLISH), by QoS and by where they went.", "qos", "direction")
	takeoversDesc     = admin.Desc("broker_takeovers_total", "Sessions that a newer connection took from an older one.")
	droppedDesc       = admin.Desc("broker_dropped_total", "Messages that a session did not get, by reason.", "reason")
	tailLagDesc       = admin.Desc("broker_tail_lag", "Messages of QoS 1 and 2 that this node has stored and not yet handed to sessions.", "shard")
	certificateDesc   = admin.Desc("broker_certificate_expiry_seconds", "Seconds until the certificate expires.", "listener", "subject")
)

// Describe implements prometheus.Collector.
func (l *live) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		clientsDesc, sessionsDesc, subscriptionsDesc, retainedDesc, queuedDesc, queuedBytesDesc, inFlightDesc,
		messagesDesc, takeoversDesc, droppedDesc, tailLagDesc, certificateDesc,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (l *live) Collect(ch chan<- prometheus.Metric) {
	out, s := admin.Sink(ch), l.Stats()
	out.Gauge(clientsDesc, float64(s.Clients))
	out.Gauge(sessionsDesc, float64(s.Sessions))
	out.Gauge(subscriptionsDesc, float64(s.Subscriptions))
	out.Gauge(retainedDesc, float64(s.Retained))
	out.Gauge(queuedDesc, float64(s.Queued))
	out.Gauge(queuedBytesDesc, float64(s.QueuedBytes))
	out.Gauge(inFlightDesc, float64(s.InFlight))
	for qos := range s.Received {
		out.Counter(messagesDesc, s.Received[qos], strconv.Itoa(qos), "from_clients")
		out.Counter(messagesDesc, s.Sent[qos], strconv.Itoa(qos), "to_clients")
	}
	out.Counter(takeoversDesc, s.Takeovers)
	out.Counter(droppedDesc, s.Dropped.Full, "queue_full")
	out.Counter(droppedDesc, s.Dropped.Expired, "expired")
	out.Counter(droppedDesc, s.Dropped.TooLarge, "too_large")
	out.Counter(droppedDesc, s.Dropped.Offline, "offline")
	out.Counter(droppedDesc, s.Dropped.Lost, "lost")
	for shard, lag := range s.TailLag {
		out.Gauge(tailLagDesc, float64(lag), strconv.Itoa(shard))
	}
	for _, c := range l.Certificates {
		out.Gauge(certificateDesc, c.Left(), c.Listener, c.Subject)
	}
}
