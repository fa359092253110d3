package rig

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// BrokerOptions says how the companion broker is set up. With Binary and Dir
// alone it is one plain listener on a free port.
type BrokerOptions struct {
	Binary    string           // needed
	Dir       string           // takes the configuration and the log; needed
	Name      string           // of the node and the files; default "broker"
	Data      string           // folder of its state; default NAME-data in Dir
	Listeners []BrokerListener // default: one
	Admin     int              // admin port; default: a free one
	Extra     string           // further keys of broker.yaml

	// Of a node of a cluster; see [StartCluster].
	Host      string // the address that it listens on; default 127.0.0.1
	Health    int    // port of the TCP health check; default: none
	Namespace string // the network namespace that it runs in; default: this one
}

// BrokerListener is one address that clients connect to.
type BrokerListener struct {
	Name  string        // default "plain"
	Port  int           // default: a free one
	TLS   *MosquittoTLS // nil: plain TCP
	Proxy bool          // connections must begin with a PROXY header, from this machine
}

// Broker is a running broker. It may be stopped or killed and started again on
// the same ports, and then has what it kept on disk.
type Broker struct {
	*Process  // since the last start
	Options   BrokerOptions
	Config    string // file
	launched  time.Time
	starting  time.Duration
	listeners map[string]string
}

// StartBroker starts `broker run` and returns when its /readyz says ready.
func StartBroker(ctx context.Context, o BrokerOptions) (*Broker, error) {
	b, err := newBroker(o)
	if err != nil {
		return nil, err
	}
	return b, b.Start(ctx)
}

// newBroker writes the configuration of a broker and starts nothing.
func newBroker(o BrokerOptions) (*Broker, error) {
	b := &Broker{listeners: map[string]string{}}
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	b.Options, b.Config = o, filepath.Join(o.Dir, o.Name+".yaml")
	for _, l := range o.Listeners {
		b.listeners[l.Name] = o.at(l.Port)
	}
	if err := os.WriteFile(b.Config, []byte(o.config()), 0o600); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Name, err)
	}
	return b, nil
}

// at is the broker's address with a port.
func (o BrokerOptions) at(port int) string { return net.JoinHostPort(o.Host, strconv.Itoa(port)) }

func (o BrokerOptions) complete() (BrokerOptions, error) {
	o.Name = orDefault(o.Name, "broker")
	o.Host = orDefault(o.Host, "127.0.0.1")
	o.Data = orDefault(o.Data, filepath.Join(o.Dir, o.Name+"-data"))
	if len(o.Listeners) == 0 {
		o.Listeners = []BrokerListener{{}}
	}
	free, err := FreePorts(len(o.Listeners) + 1)
	if err != nil {
		return o, err
	}
	o.Listeners = append([]BrokerListener(nil), o.Listeners...)
	for i := range o.Listeners {
		l := &o.Listeners[i]
		l.Name = orDefault(l.Name, "plain")
		if l.Port == 0 {
			l.Port = free[i]
		}
	}
	if o.Admin == 0 {
		o.Admin = free[len(free)-1]
	}
	return o, nil
}

// config is broker.yaml.
func (o BrokerOptions) config() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("node: {name: %s}", o.Name)
	line("data: %q", o.Data)
	line("admin: {address: %q}", o.at(o.Admin))
	if o.Health != 0 {
		line("health_endpoint: {tcp: %q}", o.at(o.Health))
	}
	line("listeners:")
	for _, l := range o.Listeners {
		line("  - name: %s", l.Name)
		line("    address: %q", o.at(l.Port))
		if l.Proxy {
			line("    accept_proxy: {from: [127.0.0.0/8]}")
		}
		if t := l.TLS; t != nil {
			line("    tls:")
			line("      mode: terminate")
			line("      certificates: [{cert: %q, key: %q}]", t.Cert, t.Key)
			if t.ClientCA != "" {
				line("      verify: required")
				line("      client_ca: %q", t.ClientCA)
			}
		}
	}
	b.WriteString(o.Extra)
	return b.String()
}

// Start starts the broker again after Stop or Kill, with a new log, and
// returns when it is ready: all that it kept is loaded.
func (b *Broker) Start(ctx context.Context) error {
	if err := b.Launch(); err != nil {
		return err
	}
	return b.Ready(ctx)
}

// Launch is Start that does not wait: a node of a cluster is not ready before
// others are there.
func (b *Broker) Launch() error {
	path, args := b.Options.Binary, []string{"run", "-c", b.Config}
	if n := b.Options.Namespace; n != "" { // nsenter becomes the broker
		path, args = "nsenter", append([]string{"--net=" + namespaceFile(n), path}, args...)
	}
	p, err := Start(Command{
		Name:    b.Options.Name,
		Path:    path,
		Args:    args,
		LogFile: filepath.Join(b.Options.Dir, b.Options.Name+".log"),
		Grace:   20 * time.Second, // above its own shutdown_timeout
	})
	if err != nil {
		return err
	}
	b.Process, b.launched = p, time.Now()
	return nil
}

// Ready waits until a broker that was launched says that it is ready; one that
// does not get there is killed.
func (b *Broker) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := waitReady(ctx, b.Process, b.Admin()); err != nil {
		b.Kill()
		return fmt.Errorf("%s does not get ready: %w; the last lines of its log are\n%s", b.Options.Name, err, b.Log().Tail(20))
	}
	b.starting = time.Since(b.launched)
	return nil
}

// StartTook is how long the last start took, from the fork until it was ready.
func (b *Broker) StartTook() time.Duration { return b.starting }

// Addr is the host:port of the first listener.
func (b *Broker) Addr() string { return b.Options.at(b.Options.Listeners[0].Port) }

// Listener is the host:port of a listener by its name.
func (b *Broker) Listener(name string) string { return b.listeners[name] }

// Admin is the host:port of /metrics and /readyz.
func (b *Broker) Admin() string { return b.Options.at(b.Options.Admin) }

// HealthCheck is the host:port of the TCP health check.
func (b *Broker) HealthCheck() string { return b.Options.at(b.Options.Health) }
