package main

import (
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/cmd/internal/command"
	"github.com/mqttlb/mqttlb/pkg/broker"
	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
	"github.com/mqttlb/mqttlb/pkg/config"
	"github.com/mqttlb/mqttlb/pkg/listen"
)

// houseOf is a house whose certificates nobody reads.
func houseOf(cfg *config.Broker, log *slog.Logger) *house {
	return build(cfg, &command.TLSFiles{Config: cfg}, log)
}

// What the configuration calls its defaults is what the broker does by itself.
func TestDefaultsAreTheBrokersOwn(t *testing.T) {
	h := houseOf(config.DefaultBroker(), slog.New(slog.DiscardHandler))
	o := h.options(nil, nil)
	want := broker.DefaultLimits()
	if o.Limits != want {
		t.Errorf("limits\n%+v\nwant\n%+v", o.Limits, want)
	}
	if o.MaxTopicLength != broker.DefaultMaxTopicLength || o.Node != "broker" || o.AnnounceNode {
		t.Errorf("options %+v", o)
	}
	if got := h.listenerOptions(h.cfg.Listeners[0]).ConnectTimeout; got != broker.DefaultConnectTimeout {
		t.Errorf("connect_timeout %s", got)
	}
	if got := h.storeOptions(); got.Durability != cluster.Always || got.MaxBytes != 0 || got.MaxTopic != cluster.DefaultMaxTopic || got.Cluster != nil {
		t.Errorf("store %+v", got)
	}
}

// Zero is a value, and not a word for the default.
func TestZerosReachTheBroker(t *testing.T) {
	cfg := config.DefaultBroker()
	cfg.Limits.TopicAliasMaximum, cfg.Limits.MaxKeepAlive, cfg.Limits.MaxSessionExpiry = 0, 0, 0
	got := houseOf(cfg, slog.New(slog.DiscardHandler)).options(nil, nil).Limits
	want := broker.DefaultLimits()
	want.TopicAliasMaximum, want.TopicAliases = 0, 0
	if got != want {
		t.Errorf("limits\n%+v\nwant\n%+v", got, want)
	}
}

// The example sets every key to something, and so everything that a part takes
// from the configuration has to be something.
func TestEveryKeyReachesItsPart(t *testing.T) {
	cfg, err := config.BrokerLoader{SkipFiles: true}.Load("../../configs/broker.yaml")
	if err != nil {
		t.Fatal(err)
	}
	h := houseOf(cfg, slog.New(slog.DiscardHandler))
	l := limits(cfg.Limits)
	for f, v := range reflect.ValueOf(l).Fields() {
		if v.IsZero() {
			t.Errorf("limits: %s is not set", f.Name)
		}
	}
	if l.KeepAlive != 600 || l.SessionExpiry != 7*24*60*60 || l.Overflow != session.DropOldest {
		t.Errorf("limits %+v", l)
	}

	o := h.options(nil, nil)
	if o.Redirect != "mqtt.example.com:8883" || o.Node != "broker-1" || !o.AnnounceNode || o.MaxTopicLength != 1<<10 || o.Observer == nil || o.Log == nil {
		t.Errorf("options %+v", o)
	}
	s := h.storeOptions()
	if s.Dir != "/var/lib/broker" || s.Node != "broker-1" || s.Durability != cluster.EachSecond || s.MaxBytes != 20<<30 || s.MaxTopic != 1<<10 {
		t.Errorf("store %+v", s)
	}
	c5 := s.Cluster
	if c5 == nil || c5.Name != "plant-7" || c5.Size != 5 || c5.Listen != "10.0.0.11:6222" || len(c5.Join) != 5 {
		t.Errorf("cluster %+v", c5)
	}
	if least := broker.DefaultMaxRecord + cfg.Limits.MaxPacketSize; s.MaxPayload < least {
		t.Errorf("the store takes %d bytes: session records have up to %d", s.MaxPayload, least)
	}

	c := cfg.Listeners[0]
	got := h.listenerOptions(c)
	want := broker.Listener{
		Name: "mqtts", MaxConnections: 50000, ConnectTimeout: 5 * time.Second,
		Accept:     &listen.ProxyPolicy{From: c.AcceptProxy.From},
		PerAddress: listen.Limit{Connections: 200, Rate: 50, Exempt: c.Limits.PerIP.Exempt},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("listener\n%+v\nwant\n%+v", got, want)
	}
	if h.gate == nil || h.gate.Address != cfg.HealthEndpoint.TCP {
		t.Errorf("gate %+v", h.gate)
	}
}

func TestEveryPolicyIsTheSessions(t *testing.T) {
	for word, want := range map[config.QueuePolicy]session.Overflow{
		config.DropNewest: session.DropNewest, config.DropOldest: session.DropOldest, config.Refuse: session.Refuse,
	} {
		if got, ok := overflows[word]; !ok || got != want {
			t.Errorf("%s is %v, want %v", word, got, want)
		}
	}
}
