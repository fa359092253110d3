package broker

import (
	"cmp"
	"log/slog"
	"math"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// Defaults of Options.
const (
	DefaultConnectTimeout  = 10 * time.Second
	DefaultMaxTopicLength  = 4 << 10
	DefaultMaxPacketSize   = 1 << 20
	LargestMaxPacketSize   = 8 << 20
	DefaultMaxQueued       = 100_000
	DefaultMaxQueuedBytes  = 64 << 20
	DefaultReceiveMaximum  = 1024
	DefaultInflight        = 1024
	DefaultTopicAliases    = 32
	DefaultMaxRecord       = 2 << 20
	DefaultWriteTimeout    = 30 * time.Second
	DefaultCheckpointEvery = 2 * time.Second
)

// DefaultLimits are those of a configuration that says nothing of them.
func DefaultLimits() session.Limits {
	return session.Limits{
		ReceiveMaximum:    DefaultReceiveMaximum,
		MaximumPacketSize: DefaultMaxPacketSize,
		TopicAliasMaximum: DefaultTopicAliases,
		Inflight:          DefaultInflight,
		TopicAliases:      DefaultTopicAliases,
		Record:            DefaultMaxRecord,
		Queued:            DefaultMaxQueued,
		QueuedBytes:       DefaultMaxQueuedBytes,
		Overflow:          session.DropNewest,
	}
}

// Options are a broker node's. They are copied by New and do not change. Where
// nothing else is said, zero stands for the default.
type Options struct {
	// Node names this node, in logs and, with AnnounceNode, in the user
	// property "node" of a 5.0 CONNACK.
	Node         string
	AnnounceNode bool
	// Store has to take messages and records of LargestRecord bytes.
	Store cluster.Store
	// Redirect is the Server Reference that 5.0 clients get when the node lets
	// them go, such as the host of a load balancer; empty tells them of none.
	Redirect string
	// Peers are the other nodes of the cluster; nil for a node that is alone. Node
	// is the name that it has among them.
	Peers cluster.Peers

	// MaxTopicLength bounds topic names and filters, in bytes. A longer name is
	// answered 0x90 (5.0) or ends the connection (3.x).
	MaxTopicLength int
	// Limits are what sessions are held to, each as it is said of it there: zero
	// is none, no bound, or MQTT's own. Nothing is filled in, but for
	// MaximumPacketSize, for a broker has to have one: zero is
	// DefaultMaxPacketSize. It is announced in CONNACK, and larger packets end
	// the connection with 0x95. DefaultLimits are the configuration's.
	Limits session.Limits
	// ConnectTimeout is the budget from accept to whole CONNECT, PROXY header
	// and TLS included.
	ConnectTimeout time.Duration
	// WriteTimeout ends a client that takes nothing for this long while there
	// is something for it.
	WriteTimeout time.Duration
	// Checkpoint is how often records that may wait are written.
	Checkpoint time.Duration

	// Authenticate says who a client is; nil lets everyone in as anonymous. Any
	// reason but Success refuses.
	Authenticate func(Credentials) (identity string, reason mqtt.Reason)

	Observer Observer
	Log      *slog.Logger
}

// LargestRecord is how large a session's record can be, in bytes: what grows has
// its bound, and all that one CONNECT brings comes beside it, with some numbers.
func LargestRecord(l session.Limits) int {
	const numbers = 64 << 10
	return l.Record + int(l.MaximumPacketSize) + numbers
}

// Credentials are what a client shows at CONNECT. The byte slices are good
// during the call only.
type Credentials struct {
	ClientID           string
	Username, Password []byte
	HasUsername        bool
	HasPassword        bool
}

// Observer is told of what happens, for metrics. Its methods must not block.
type Observer interface {
	// Appended: a message was stored, or not.
	Appended(took time.Duration, err error)
	// Ended: a client's connection is over.
	Ended(End)
}

type noObserver struct{}

func (noObserver) Appended(time.Duration, error) {}
func (noObserver) Ended(End)                     {}

func (o Options) withDefaults() Options {
	o.Node = cmp.Or(o.Node, "broker")
	if o.Peers != nil {
		o.Node = o.Peers.Node()
	}
	o.MaxTopicLength = cmp.Or(o.MaxTopicLength, DefaultMaxTopicLength)
	o.Limits.MaximumPacketSize = cmp.Or(o.Limits.MaximumPacketSize, DefaultMaxPacketSize)
	o.Limits.ReceiveMaximum = cmp.Or(o.Limits.ReceiveMaximum, math.MaxUint16) // which is what zero means there
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, DefaultConnectTimeout)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, DefaultWriteTimeout)
	o.Checkpoint = cmp.Or(o.Checkpoint, DefaultCheckpointEvery)
	if o.Observer == nil {
		o.Observer = noObserver{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}
