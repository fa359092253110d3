package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/mqttlb/mqttlb/e2e/rig"
)

// What can stand behind mqttlb.
const (
	ours      = "broker"    // three of our own, a cluster that keeps its data in dir
	mosquitto = "mosquitto" // three, bridged
)

// options are what the user may choose. `make run` passes its variables on as
// flags; the ports' names in makeVar are those variables.
type options struct {
	port, tlsPort, adminPort int
	kind                     string // of the brokers: ours or mosquitto
	brokerPort               int    // of the first broker; the others follow
	cert, key, ca            string // files; empty: made
	dir                      string // takes all that is written; absolute
}

// helpError is the help that was asked for.
type helpError string

func (h helpError) Error() string { return strings.TrimSpace(string(h)) }

func parseFlags(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	var usage strings.Builder
	flags.SetOutput(&usage)
	flags.IntVar(&o.port, "port", 1883, "mqttlb's plain MQTT `port`")
	flags.IntVar(&o.tlsPort, "tls-port", 8883, "mqttlb's MQTT over TLS `port`")
	flags.IntVar(&o.adminPort, "admin-port", 9091, "mqttlb's admin `port`")
	flags.StringVar(&o.kind, "brokers", ours, "what stands behind mqttlb: broker are three of our own, a cluster; mosquitto are three of those, bridged")
	flags.IntVar(&o.brokerPort, "broker-port", 18831, "`port` of the first broker; those of others follow, and our own have more 10, 20 and 30 above")
	flags.StringVar(&o.cert, "cert", "", "`file` of the certificate of the TLS port; made if there is none")
	flags.StringVar(&o.key, "key", "", "`file` of its key")
	flags.StringVar(&o.ca, "ca", "", "`file` of the authority that clients verify it by; default: the certificate itself")
	flags.StringVar(&o.dir, "dir", "run", "`folder` for configuration, certificates, logs and the broker's data")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return o, helpError(usage.String())
	} else if err != nil {
		return o, errors.New(strings.TrimSpace(usage.String()))
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return o.check()
}

// check judges the choices together and completes them.
func (o options) check() (options, error) {
	if o.kind != ours && o.kind != mosquitto {
		return o, fmt.Errorf("BROKERS=%s: it is %s or %s", o.kind, ours, mosquitto)
	}
	wantedBy := map[int]string{}
	for _, p := range o.ports() {
		if p.number < 1 || p.number > 65535 {
			return o, fmt.Errorf("%s=%d: a port is between 1 and 65535", p.makeVar, p.number)
		}
		if other, ok := wantedBy[p.number]; ok {
			return o, fmt.Errorf("%s and %s both want port %d; brokers take BROKER_PORT and the two above it, our own also those 10, 20 and 30 above", other, p.makeVar, p.number)
		}
		wantedBy[p.number] = p.makeVar
	}
	if (o.cert == "") != (o.key == "") {
		return o, errors.New("CERT and KEY go together: name both files, or neither")
	}
	if o.ca == "" {
		o.ca = o.cert
	}
	for _, path := range []*string{&o.dir, &o.cert, &o.key, &o.ca} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return o, err
		}
		*path = abs
	}
	return o, nil
}

// port is one that must be free.
type port struct {
	number  int
	use     string // for people
	makeVar string // the variable that chooses another
}

func (o options) ports() []port {
	ports := []port{
		{o.port, "mqttlb, plain", "PORT"},
		{o.tlsPort, "mqttlb, TLS", "TLS_PORT"},
		{o.adminPort, "mqttlb, admin", "ADMIN_PORT"},
	}
	for i, name := range o.brokerNames() {
		ports = append(ports, port{o.brokerPort + i, name, "BROKER_PORT"})
		if o.kind == ours {
			ports = append(ports,
				port{o.brokerPort + adminAbove + i, name + ", admin", "BROKER_PORT"},
				port{o.brokerPort + healthAbove + i, name + ", health check", "BROKER_PORT"},
				port{o.brokerPort + nodesAbove + i, name + ", other nodes", "BROKER_PORT"})
		}
	}
	return ports
}

func (o options) brokerNames() []string {
	if o.kind == mosquitto {
		return []string{"mosquitto-1", "mosquitto-2", "mosquitto-3"}
	}
	return []string{"broker-1", "broker-2", "broker-3"}
}

// packages are the Debian packages that are needed.
func (o options) packages() []string {
	if o.kind == mosquitto {
		return rig.RunPackages
	}
	return []string{"mosquitto-clients"}
}

// config is mqttlb's configuration.
func (o options) config() string {
	var b strings.Builder
	b.WriteString("# Written by `make run`.\n")
	line(&b, "listeners:")
	line(&b, "  - name: plain")
	line(&b, "    address: %s", rig.Local(o.port))
	line(&b, "    pool: brokers")
	line(&b, "  - name: tls")
	line(&b, "    address: %s", rig.Local(o.tlsPort))
	line(&b, "    pool: brokers")
	line(&b, "    tls:")
	line(&b, "      mode: terminate")
	line(&b, "      certificates:")
	line(&b, "        - {cert: %q, key: %q}", o.cert, o.key)
	line(&b, "pools:")
	line(&b, "  - name: brokers")
	line(&b, "    backends:")
	for i, name := range o.brokerNames() {
		if o.kind == ours {
			line(&b, "      - {name: %s, address: %q, health_port: %d}", name, rig.Local(o.brokerPort+i), o.brokerPort+healthAbove+i)
		} else {
			line(&b, "      - {name: %s, address: %q}", name, rig.Local(o.brokerPort+i))
		}
	}
	if o.kind == ours {
		// The brokers' health.tcp: open while a node is among the majority.
		line(&b, "    health: {type: tcp, interval: 1s}")
	} else {
		line(&b, "    health: {type: mqtt}")
	}
	line(&b, "admin: {address: %q}", rig.Local(o.adminPort))
	return b.String()
}

func line(w io.Writer, format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
