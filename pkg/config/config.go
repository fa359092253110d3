// Package config reads, completes and checks the configurations of mqttlb and
// of the broker, and gives them as plain structs: [Config] and [Broker].
//
// It is the only package that knows the file formats, the environment and
// viper. What it hands out is whole: every default is filled in, every name
// that points somewhere points at something, and every file that is named
// can be read. Whoever takes a [Config] or a [Broker] checks nothing a second
// time.
//
// What is wrong is told all at once, as [Problems]: for each the file and
// line, the full path of the key, what is the matter and how to mend it.
// The structs below are the schema. Their tags say what a file may hold:
//
//	key       the word in the file
//	default   what counts when the key is absent
//	required  the key has no default; a list needs at least one item
//	min, max  the bounds, both included, in the unit of the value
//	oneof     the words that are allowed, separated by spaces
//	is        the kind of text, one of the names in text.go
//	hint      what else to say when a number is out of bounds
package config

import (
	_ "embed"
	"log/slog"
	"net/netip"
	"time"
)

//go:embed default.yaml
var defaultFile []byte

// Config is one whole, checked configuration of mqttlb.
type Config struct {
	Listeners []Listener `key:"listeners" required:"true"`
	Pools     []Pool     `key:"pools" required:"true"`
	Admin     Admin      `key:"admin"`
	// HealthEndpoint is where others ask whether this mqttlb is ready.
	HealthEndpoint HealthEndpoint `key:"health_endpoint"`
	Log            Log            `key:"log"`
	// ShutdownTimeout bounds the time between the signal to stop and the end
	// of the process; connections still alive then are closed.
	ShutdownTimeout time.Duration `key:"shutdown_timeout" default:"10s" min:"0s" max:"1h"`

	src *source
}

func (*Config) program() program {
	return program{name: "mqttlb", prefix: "MQTTLB_", reserved: brokerPrefix, builtin: defaultFile}
}

func (cfg *Config) locate(s *source) { cfg.src = s }

// Problem locates a problem that shows up after loading, such as an address
// that is in use, at the key's place in the file. The key is a full path, such
// as listeners[0].tls.certificates[1].key.
func (cfg *Config) Problem(key, what, mend string) Problem { return cfg.src.problem(key, what, mend) }

// Listener is one address that clients connect to.
type Listener struct {
	Name    string `key:"name" required:"true" is:"name"`
	Address string `key:"address" required:"true" is:"listen"`
	// Pool takes the connections that no route takes. Empty only when there
	// are routes; what matches none of them is closed then.
	Pool     string   `key:"pool"`
	Routes   []Route  `key:"routes"`
	Protocol Protocol `key:"protocol" default:"mqtt" oneof:"mqtt tcp"`
	TLS      TLS      `key:"tls"`
	// AcceptProxy is nil where no PROXY protocol header is taken. Otherwise
	// each connection must come from one of its prefixes and begin with one.
	AcceptProxy *AcceptProxy `key:"accept_proxy"`
	Limits      Limits       `key:"limits"`
	// IdleTimeout closes a connection whose client has sent no byte for so
	// long and has no Keep Alive: it is 0, or its CONNECT is not seen. Zero is
	// no timeout.
	IdleTimeout time.Duration `key:"idle_timeout" default:"0s" min:"0s" max:"168h"`
}

// SeesConnect says whether the listener reads the client's CONNECT, and with
// it the Client Identifier.
func (l *Listener) SeesConnect() bool {
	return l.Protocol == ProtocolMQTT && l.TLS.Mode != TLSPassthrough
}

// Protocol is what a listener expects of its clients.
type Protocol string

const (
	ProtocolMQTT Protocol = "mqtt" // waits for CONNECT, or in passthrough for the ClientHello
	ProtocolTCP  Protocol = "tcp"  // any protocol; the backend is dialled at once
)

// Route sends connections to a pool by what their ClientHello says. Each list
// that is not empty must match; the first route that matches wins.
type Route struct {
	// SNI holds lower-case server names. "*.example.com" stands for exactly
	// one label in front of example.com, as in certificates.
	SNI  []string `key:"sni" is:"sni"`
	ALPN []string `key:"alpn" is:"alpn"`
	Pool string   `key:"pool" required:"true"`
}

// TLS is what a listener does with TLS. All but Mode matters in mode
// terminate only.
type TLS struct {
	Mode         TLSMode       `key:"mode" default:"off" oneof:"off terminate passthrough"`
	Certificates []Certificate `key:"certificates"`
	Verify       Verify        `key:"verify" default:"none" oneof:"none optional required"`
	// ClientCA is a PEM file with the authorities that client certificates
	// are verified against. Set whenever Verify is not none.
	ClientCA   string   `key:"client_ca" is:"file"`
	MinVersion string   `key:"min_version" default:"1.2" oneof:"1.2 1.3"`
	ALPN       []string `key:"alpn" is:"alpn"` // in order of preference; empty ignores what clients offer
}

// TLSMode is where the TLS of a listener's clients ends.
type TLSMode string

const (
	TLSOff         TLSMode = "off"
	TLSTerminate   TLSMode = "terminate"
	TLSPassthrough TLSMode = "passthrough"
)

// Verify is what a listener asks of client certificates.
type Verify string

const (
	VerifyNone     Verify = "none"
	VerifyOptional Verify = "optional" // one that is sent must be valid
	VerifyRequired Verify = "required"
)

// Certificate is a pair of PEM files.
type Certificate struct {
	Cert string `key:"cert" required:"true" is:"file"` // leaf first, then intermediates
	Key  string `key:"key" required:"true" is:"file"`
}

// AcceptProxy says who must send a PROXY protocol header and what of it is
// believed.
type AcceptProxy struct {
	From []netip.Prefix `key:"from" required:"true" is:"prefix"`
	// TrustIdentity forwards the TLVs about the client's TLS and certificate
	// that an upstream sent. Where this listener ends TLS they never are.
	TrustIdentity bool `key:"trust_identity" default:"false"`
}

// Limits bounds what clients of a listener can take.
type Limits struct {
	Connections int   `key:"connections" default:"0" min:"0" max:"10000000"` // held at once; 0 is no bound
	PerIP       PerIP `key:"per_ip"`
	// ConnectTimeout runs from accept to whole CONNECT (or ClientHello), TLS
	// handshake and PROXY header included.
	ConnectTimeout time.Duration `key:"connect_timeout" default:"10s" min:"100ms" max:"10m"`
	// MaxConnectSize is the longest CONNECT packet in bytes, fixed header
	// included. The default has room for any one field at its longest.
	MaxConnectSize int `key:"max_connect_size" default:"128 KiB" min:"64 B" max:"16 MiB" is:"size"`
}

// PerIP bounds what clients of one address can take. An IPv6 client counts by
// its /64. With accept_proxy it is the client's address that counts.
type PerIP struct {
	Connections int            `key:"connections" default:"0" min:"0" max:"10000000"` // held at once; 0 is no bound
	Rate        float64        `key:"rate" default:"0" max:"1000000"`                 // new ones a second; 0 is no bound
	Exempt      []netip.Prefix `key:"exempt" is:"prefix"`
}

// Pool is a set of backends that serve the same clients.
type Pool struct {
	Name    string  `key:"name" required:"true" is:"name"`
	Balance Balance `key:"balance" default:"ring" oneof:"ring least_connections round_robin random"`
	// HashKey lists what places a client on the ring; the first that the
	// listener can know counts. Never empty with balance ring: absent, it is
	// client_id for listeners that see CONNECT, source_ip for those that don't,
	// and both in this order for a pool that serves either kind.
	HashKey []HashKey `key:"hash_key" oneof:"client_id source_ip sni"`
	// LoadFactor bounds a backend's connections to so many times the mean of
	// the pool; the clients above spill to the next on the ring. 0 is off.
	LoadFactor float64   `key:"load_factor" default:"0" max:"100"`
	Backends   []Backend `key:"backends" required:"true"`
	SendProxy  SendProxy `key:"send_proxy" default:"off" oneof:"off v1 v2"`
	ProxyTLVs  []TLV     `key:"proxy_tlvs" default:"ssl alpn authority unique_id crc32c" oneof:"ssl alpn authority unique_id crc32c"`
	// TLS is nil where backends are spoken to in the clear.
	TLS          *BackendTLS  `key:"tls"`
	Health       Health       `key:"health"`
	OnMarkedDown OnMarkedDown `key:"on_marked_down" default:"keep" oneof:"keep close"`
	Dial         Dial         `key:"dial"`
}

// Balance is how a pool chooses a backend.
type Balance string

const (
	BalanceRing             Balance = "ring"
	BalanceLeastConnections Balance = "least_connections"
	BalanceRoundRobin       Balance = "round_robin"
	BalanceRandom           Balance = "random"
)

// HashKey is a fact about a connection that the ring can place it by.
type HashKey string

const (
	HashClientID HashKey = "client_id"
	HashSourceIP HashKey = "source_ip"
	HashSNI      HashKey = "sni"
)

// SendProxy is the version of the PROXY protocol header that backends get.
type SendProxy string

const (
	SendProxyOff SendProxy = "off"
	SendProxyV1  SendProxy = "v1"
	SendProxyV2  SendProxy = "v2"
)

// TLV is one of the extra fields that a version 2 header can carry.
type TLV string

const (
	TLVSSL       TLV = "ssl"
	TLVALPN      TLV = "alpn"
	TLVAuthority TLV = "authority"
	TLVUniqueID  TLV = "unique_id"
	TLVCRC32C    TLV = "crc32c"
)

// Backend is one broker.
type Backend struct {
	Name           string       `key:"name" required:"true" is:"name"` // its place on the ring
	Address        string       `key:"address" required:"true" is:"dial"`
	Weight         int          `key:"weight" default:"100" min:"1" max:"1000" hint:"to take the backend out of service, set state: drain or maint"`
	MaxConnections int          `key:"max_connections" default:"0" min:"0" max:"10000000"` // 0 is no bound
	HealthPort     int          `key:"health_port" min:"1" max:"65535"`                    // 0 is that of Health
	State          BackendState `key:"state" default:"active" oneof:"active drain maint"`
}

// BackendState is what the operator asks of a backend.
type BackendState string

const (
	BackendActive BackendState = "active"
	BackendDrain  BackendState = "drain" // no new connections; checked
	BackendMaint  BackendState = "maint" // no new connections; not checked
)

// BackendTLS is how backends are spoken to over TLS. Their certificates are
// always verified.
type BackendTLS struct {
	CA         string `key:"ca" is:"file"`                 // PEM; empty is the system's authorities
	ServerName string `key:"server_name" is:"server_name"` // empty is the host of the backend's address
	Cert       string `key:"cert" is:"file"`               // both or none of Cert and Key
	Key        string `key:"key" is:"file"`
}

// Health is how backends are checked.
type Health struct {
	// Type defaults to mqtt, and to tcp for a pool none of whose listeners
	// sees CONNECT.
	Type HealthType `key:"type" oneof:"tcp mqtt none"`
	// Topic makes the mqtt check a full client: it subscribes to the topic,
	// publishes to it and waits for its own message.
	Topic        string        `key:"topic" is:"topic"`
	Port         int           `key:"port" min:"1" max:"65535"` // 0 is the backend's own
	Interval     time.Duration `key:"interval" default:"5s" min:"100ms" max:"1h"`
	FastInterval time.Duration `key:"fast_interval" default:"1s" min:"50ms" max:"1h"`
	Timeout      time.Duration `key:"timeout" default:"3s" min:"50ms" max:"10m"`
	Rise         int           `key:"rise" default:"2" min:"1" max:"100"`
	Fall         int           `key:"fall" default:"3" min:"1" max:"100"`
	Proxy        HealthProxy   `key:"proxy" default:"local" oneof:"local proxy"`
	Username     string        `key:"username"`
	Password     Secret        `key:"password"`
}

// HealthType is what a check does.
type HealthType string

const (
	HealthTCP  HealthType = "tcp"
	HealthMQTT HealthType = "mqtt"
	HealthNone HealthType = "none" // backends always count as up
)

// HealthProxy is the command of the PROXY protocol header that checks send
// where the pool sends one at all.
type HealthProxy string

const (
	HealthProxyLocal HealthProxy = "local" // LOCAL in version 2, UNKNOWN in version 1
	HealthProxyProxy HealthProxy = "proxy" // mqttlb's own address as the client's
)

// OnMarkedDown is what happens to the connections of a backend that is found
// down.
type OnMarkedDown string

const (
	MarkedDownKeep  OnMarkedDown = "keep"
	MarkedDownClose OnMarkedDown = "close"
)

// Dial bounds the way from a client's CONNECT to the backend's answer.
type Dial struct {
	Timeout        time.Duration `key:"timeout" default:"3s" min:"50ms" max:"5m"`            // of one attempt, TLS included
	Attempts       int           `key:"attempts" default:"5" min:"1" max:"100"`              // backends tried for one client
	ConnackTimeout time.Duration `key:"connack_timeout" default:"15s" min:"100ms" max:"10m"` // from CONNECT sent to CONNACK
}

// Admin is the HTTP address with metrics, health and the API. It has no
// authentication of its own and so defaults to loopback.
type Admin struct {
	Address string `key:"address" default:"127.0.0.1:9091" is:"listen"` // empty is off
}

// HealthEndpoint holds the addresses, empty for off, that answer only while
// this mqttlb is ready.
type HealthEndpoint struct {
	TCP  string `key:"tcp" is:"listen"`
	HTTP string `key:"http" is:"listen"`
}

// Log is how the program logs, always to standard error.
type Log struct {
	Level  LogLevel  `key:"level" default:"info" oneof:"debug info warn error"`
	Format LogFormat `key:"format" default:"text" oneof:"text json"`
}

// LogLevel is the least level that is logged.
type LogLevel string

// Level is the slog level of the word.
func (l LogLevel) Level() slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l)); err != nil {
		return slog.LevelInfo // the zero LogLevel
	}
	return level
}

// LogFormat is how a log line is written.
type LogFormat string

const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// Secret is text that no log, error or dump shows. Convert it to string where
// it is used.
type Secret string

const redacted = "[secret]"

func (Secret) String() string               { return redacted }
func (Secret) GoString() string             { return redacted }
func (Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
