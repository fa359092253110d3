package main

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/mqttlb/mqttlb/cmd/internal/command"
	"github.com/mqttlb/mqttlb/pkg/admin/brokeradmin"
	"github.com/mqttlb/mqttlb/pkg/broker"
	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
	"github.com/mqttlb/mqttlb/pkg/config"
	"github.com/mqttlb/mqttlb/pkg/listen"
)

// house is a configuration turned into parts that know each other. Building it
// binds nothing and opens no data.
type house struct {
	cfg     *config.Broker
	log     *slog.Logger
	files   *command.TLSFiles
	metrics *brokeradmin.Metrics
	gate    *listen.Gate // nil without health_endpoint.tcp
}

// readTLS takes the certificate, key and CA files that the configuration names.
func readTLS(cfg *config.Broker) command.TLSFiles {
	files := command.TLSFiles{Config: cfg}
	for i, l := range cfg.Listeners {
		files.Listener(l.Name, config.TLS(l.TLS), fmt.Sprintf("listeners[%d].tls", i))
	}
	if c := cfg.Cluster; c != nil && c.TLS != nil {
		files.Cluster = files.Nodes(c.TLS, "cluster.tls")
	}
	return files
}

// build makes the parts of a checked configuration that need no data.
func build(cfg *config.Broker, files *command.TLSFiles, log *slog.Logger) *house {
	h := &house{cfg: cfg, log: log, files: files, metrics: brokeradmin.NewMetrics()}
	if cfg.HealthEndpoint.TCP != "" {
		h.gate = &listen.Gate{Address: cfg.HealthEndpoint.TCP, Log: log}
	}
	return h
}

// place says what the node is in a cluster, for people; empty for a single one.
func (h *house) place() string {
	c := h.cfg.Cluster
	if c == nil {
		return ""
	}
	return fmt.Sprintf(", node %s of %d in cluster %s", h.cfg.Node.Name, c.Size, c.Name)
}

// storeOptions are the store's. Records, too, have to fit into its messages, and
// are larger than packets.
func (h *house) storeOptions() cluster.Options {
	return cluster.Options{
		Cluster:    h.clusterOptions(),
		Dir:        h.cfg.Data,
		Node:       h.cfg.Node.Name,
		Durability: cluster.Durability(h.cfg.Durability),
		MaxBytes:   int64(h.cfg.Store.MaxBytes),
		MaxPayload: broker.LargestRecord(limits(h.cfg.Limits)),
		MaxTopic:   h.cfg.Limits.MaxTopicLength,
		Log:        h.log,
		Observe:    func(w cluster.Write) { h.metrics.Stored(w.What, w.Messages, w.Took, w.Err) },
	}
}

// clusterOptions are nil for a single node.
func (h *house) clusterOptions() *cluster.ClusterOptions {
	c := h.cfg.Cluster
	if c == nil {
		return nil
	}
	return &cluster.ClusterOptions{Name: c.Name, Size: c.Size, Listen: c.Listen, Join: c.Join, TLS: h.files.Cluster}
}

// options are the broker's, on an open store; peers is nil for a single node.
func (h *house) options(store cluster.Store, peers cluster.Peers) broker.Options {
	return broker.Options{
		Node:           h.cfg.Node.Name,
		AnnounceNode:   h.cfg.Node.Announce,
		Store:          store,
		Peers:          peers,
		Redirect:       h.cfg.Drain.Redirect,
		MaxTopicLength: h.cfg.Limits.MaxTopicLength,
		Limits:         limits(h.cfg.Limits),
		Observer:       h.metrics,
		Log:            h.log,
	}
}

// limits convert without a loss: the configuration bounds each to its type.
func limits(c config.BrokerLimits) session.Limits {
	return session.Limits{
		ReceiveMaximum:    uint16(c.ReceiveMaximum),
		MaximumPacketSize: uint32(c.MaxPacketSize),
		TopicAliasMaximum: uint16(c.TopicAliasMaximum),
		KeepAlive:         uint16(c.MaxKeepAlive / time.Second),
		SessionExpiry:     uint32(c.MaxSessionExpiry / time.Second),
		Inflight:          uint16(c.Inflight),
		TopicAliases:      uint16(c.TopicAliasMaximum),
		Record:            broker.DefaultMaxRecord,
		Queued:            c.MaxQueued,
		QueuedBytes:       int64(c.MaxQueuedBytes),
		Overflow:          overflows[c.QueuePolicy],
	}
}

var overflows = map[config.QueuePolicy]session.Overflow{
	config.DropNewest: session.DropNewest,
	config.DropOldest: session.DropOldest,
	config.Refuse:     session.Refuse,
}

func (h *house) listenerOptions(c config.BrokerListener) broker.Listener {
	o := broker.Listener{
		Name:           c.Name,
		TLS:            h.files.Listeners[c.Name],
		MaxConnections: c.Limits.Connections,
		PerAddress:     listen.Limit(c.Limits.PerIP),
		ConnectTimeout: c.Limits.ConnectTimeout,
	}
	if a := c.AcceptProxy; a != nil {
		o.Accept = &listen.ProxyPolicy{From: a.From}
	}
	return o
}

// watch lets the metrics read the figures of a broker.
func (h *house) watch(b *broker.Broker) {
	h.metrics.Watch(brokeradmin.Figures{Stats: b.Stats, Certificates: h.files.Shown})
}
