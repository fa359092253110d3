package config

import (
	_ "embed"
	"net/netip"
	"time"
)

//go:embed default_broker.yaml
var defaultBrokerFile []byte

// brokerPrefix begins the broker's environment variables. A bare BROKER_
// would claim what other programs use, such as Celery's BROKER_URL.
const brokerPrefix = "MQTTLB_BROKER_"

// Broker is one whole, checked configuration of the broker.
type Broker struct {
	Node Node `key:"node"`
	// Cluster is nil for a broker of one node.
	Cluster *Cluster `key:"cluster"`
	// Data is the folder that all state is kept in.
	Data       string           `key:"data" default:"broker-data" is:"folder"`
	Durability Durability       `key:"durability" default:"always" oneof:"always 1s"`
	Store      Store            `key:"store"`
	Listeners  []BrokerListener `key:"listeners" required:"true"`
	Limits     BrokerLimits     `key:"limits"`
	Drain      BrokerDrain      `key:"drain"`
	Admin      BrokerAdmin      `key:"admin"`
	// HealthEndpoint is where others ask whether clients should be sent here.
	HealthEndpoint HealthEndpoint `key:"health_endpoint"`
	Log            Log            `key:"log"`
	// ShutdownTimeout bounds the time between the signal to stop and the end
	// of the process; connections still alive then are closed.
	ShutdownTimeout time.Duration `key:"shutdown_timeout" default:"10s" min:"0s" max:"1h"`

	src *source
}

func (*Broker) program() program {
	return program{name: "broker", prefix: brokerPrefix, builtin: defaultBrokerFile}
}

func (b *Broker) locate(s *source) { b.src = s }

// Problem locates a problem that shows up after loading; see [Config.Problem].
func (b *Broker) Problem(key, what, mend string) Problem { return b.src.problem(key, what, mend) }

// Node is what this broker is among others.
type Node struct {
	Name string `key:"name" default:"broker" is:"name"`
	// Announce tells 5.0 clients the name, as the user property "node" of
	// CONNACK.
	Announce bool `key:"announce" default:"false"`
}

// Durability is when a message counts as stored, and so may be acknowledged.
type Durability string

const (
	DurabilityAlways Durability = "always" // when it is on the disk
	Durability1s     Durability = "1s"     // when the operating system has it, which writes it within two seconds
)

// Store bounds what is kept on disk.
type Store struct {
	// MaxBytes bounds the log of messages; 0 leaves it to the disk. When it is
	// reached, publishers of QoS 1 and 2 are refused.
	MaxBytes int `key:"max_bytes" default:"0" min:"0" max:"1048576 GiB" is:"size"`
}

// BrokerListener is one address that clients connect to.
type BrokerListener struct {
	Name    string    `key:"name" required:"true" is:"name"`
	Address string    `key:"address" required:"true" is:"listen"`
	TLS     BrokerTLS `key:"tls"`
	// AcceptProxy is nil where no PROXY protocol header is taken. Otherwise
	// each connection must come from one of its prefixes and begin with one.
	AcceptProxy *BrokerAcceptProxy   `key:"accept_proxy"`
	Limits      BrokerListenerLimits `key:"limits"`
}

// BrokerTLS is [TLS] without the mode passthrough; each converts to the other.
type BrokerTLS struct {
	Mode         TLSMode       `key:"mode" default:"off" oneof:"off terminate"`
	Certificates []Certificate `key:"certificates"`
	Verify       Verify        `key:"verify" default:"none" oneof:"none optional required"`
	ClientCA     string        `key:"client_ca" is:"file"`
	MinVersion   string        `key:"min_version" default:"1.2" oneof:"1.2 1.3"`
	ALPN         []string      `key:"alpn" is:"alpn"`
}

// BrokerAcceptProxy says who must send a PROXY protocol header.
type BrokerAcceptProxy struct {
	From []netip.Prefix `key:"from" required:"true" is:"prefix"`
}

// BrokerListenerLimits bounds what clients of a listener can take.
type BrokerListenerLimits struct {
	Connections int   `key:"connections" default:"0" min:"0" max:"10000000"` // held at once; 0 is no bound
	PerIP       PerIP `key:"per_ip"`
	// ConnectTimeout runs from accept to whole CONNECT, TLS handshake and
	// PROXY header included.
	ConnectTimeout time.Duration `key:"connect_timeout" default:"10s" min:"100ms" max:"10m"`
}

// BrokerLimits are what all sessions are held to.
type BrokerLimits struct {
	MaxTopicLength int `key:"max_topic_length" default:"4 KiB" min:"64 B" max:"65535 B" is:"size"` // bytes of a topic name or filter
	MaxPacketSize  int `key:"max_packet_size" default:"1 MiB" min:"1 KiB" max:"8 MiB" is:"size"`   // bytes, fixed header included
	// ReceiveMaximum and Inflight bound the QoS 1 and 2 messages of one client
	// that wait for their acknowledgement: those it sends, those it gets.
	ReceiveMaximum    int `key:"receive_maximum" default:"1024" min:"1" max:"65535"`
	Inflight          int `key:"inflight" default:"1024" min:"1" max:"65535"`
	TopicAliasMaximum int `key:"topic_alias_maximum" default:"32" min:"0" max:"65535"` // either way; 0 is none
	// MaxKeepAlive and MaxSessionExpiry are whole seconds; 0 is no limit.
	MaxKeepAlive     time.Duration `key:"max_keep_alive" default:"0s" min:"0s" max:"18h12m15s"`
	MaxSessionExpiry time.Duration `key:"max_session_expiry" default:"0s" min:"0s" max:"876000h"`
	// What one session may have waiting to be sent.
	MaxQueued      int         `key:"max_queued" default:"100000" min:"1" max:"100000000"`
	MaxQueuedBytes int         `key:"max_queued_bytes" default:"64 MiB" min:"64 KiB" max:"64 GiB" is:"size"`
	QueuePolicy    QueuePolicy `key:"queue_policy" default:"drop_newest" oneof:"drop_newest drop_oldest refuse"`
}

// QueuePolicy is what happens to a QoS 1 or 2 message for a session whose
// queue is full.
type QueuePolicy string

const (
	DropNewest QueuePolicy = "drop_newest" // it is dropped
	DropOldest QueuePolicy = "drop_oldest" // those that have waited longest are
	Refuse     QueuePolicy = "refuse"      // its publisher is told that it is not taken
)

// BrokerDrain is how clients are let go when they are asked to.
type BrokerDrain struct {
	// Redirect is the Server Reference for 5.0 clients; empty is none.
	Redirect string `key:"redirect" is:"dial"`
}

// BrokerAdmin is [Admin] on another port, so that a machine can have both
// programs as they come.
type BrokerAdmin struct {
	Address string `key:"address" default:"127.0.0.1:9191" is:"listen"` // empty is off
}
