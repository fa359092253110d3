package brokeradmin

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"

	"github.com/mqttlb/mqttlb/pkg/admin"
	"github.com/mqttlb/mqttlb/pkg/broker"
)

// scrape gives the broker's series as Prometheus reads them, buckets and the
// rest of the process left out.
func scrape(t *testing.T, m *Metrics) []string {
	t.Helper()
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	var series []string
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, "broker_") && !strings.Contains(line, "_bucket{") {
			series = append(series, strings.TrimSpace(line))
		}
	}
	return series
}

func TestMetricsAreTheBrokersFigures(t *testing.T) {
	m := NewMetrics()
	m.Appended(2*time.Second, nil)
	m.Appended(time.Second, errors.New("full"))
	m.Stored("log", 20, 3*time.Second, nil)
	m.Stored("log", 20, time.Second, errors.New("full"))
	m.Ended(broker.End{Stage: broker.StageSession, By: broker.ByClient, Why: broker.Closed})
	m.Ended(broker.End{Stage: broker.StageSession, By: broker.ByClient, Why: broker.Closed})
	m.Ended(broker.End{Stage: broker.StageAdmit, By: broker.ByBroker, Why: broker.Refused, ClientID: "never-a-label"})
	m.Watch(Figures{
		Stats: func() broker.Stats {
			return broker.Stats{
				Clients: 1, Sessions: 2, Subscriptions: 3, Retained: 4, Queued: 5, QueuedBytes: 6, InFlight: 7, Takeovers: 8,
				Received: [3]uint64{9, 10, 11}, Sent: [3]uint64{12, 13, 14},
				Dropped: broker.Dropped{Full: 15, Expired: 16, TooLarge: 17, Offline: 18, Lost: 19},
				TailLag: []int{20, 0},
			}
		},
	})
	want := []string{
		`broker_append_failures_total 1`,
		`broker_append_seconds_sum 2`,
		`broker_append_seconds_count 1`,
		`broker_clients 1`,
		`broker_connections_ended_total{by="broker",reason="refused",stage="admit"} 1`,
		`broker_connections_ended_total{by="client",reason="closed",stage="session"} 2`,
		`broker_dropped_total{reason="expired"} 16`,
		`broker_dropped_total{reason="lost"} 19`,
		`broker_dropped_total{reason="offline"} 18`,
		`broker_dropped_total{reason="queue_full"} 15`,
		`broker_dropped_total{reason="too_large"} 17`,
		`broker_in_flight 7`,
		`broker_messages_total{direction="from_clients",qos="0"} 9`,
		`broker_messages_total{direction="from_clients",qos="1"} 10`,
		`broker_messages_total{direction="from_clients",qos="2"} 11`,
		`broker_messages_total{direction="to_clients",qos="0"} 12`,
		`broker_messages_total{direction="to_clients",qos="1"} 13`,
		`broker_messages_total{direction="to_clients",qos="2"} 14`,
		`broker_queued 5`,
		`broker_queued_bytes 6`,
		`broker_retained 4`,
		`broker_sessions 2`,
		`broker_store_write_failures_total{what="log"} 1`,
		`broker_store_write_seconds_sum{what="log"} 3`,
		`broker_store_write_seconds_count{what="log"} 1`,
		`broker_store_written_total{what="log"} 20`,
		`broker_subscriptions 3`,
		`broker_tail_lag{shard="0"} 20`,
		`broker_tail_lag{shard="1"} 0`,
		`broker_takeovers_total 8`,
	}
	if got := scrape(t, m); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestCertificatesCountDown(t *testing.T) {
	m := NewMetrics()
	m.Watch(Figures{
		Stats:        func() broker.Stats { return broker.Stats{} },
		Certificates: []admin.Certificate{{Listener: "mqtts", Subject: "CN=b", NotAfter: time.Now().Add(-time.Hour)}},
	})
	got := scrape(t, m)
	if !slices.ContainsFunc(got, func(s string) bool {
		return strings.HasPrefix(s, `broker_certificate_expiry_seconds{listener="mqtts",subject="CN=b"} -`)
	}) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}
