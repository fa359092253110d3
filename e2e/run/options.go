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

const brokerCount = 3

// options are what the user may choose. `make run` passes its variables on as
// flags; the ports' names in makeVar are those variables.
type options struct {
	port, tlsPort, adminPort int
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
	flags.IntVar(&o.brokerPort, "broker-port", 18831, "`port` of the first of the three brokers, whose ports follow each other")
	flags.StringVar(&o.cert, "cert", "", "`file` of the certificate of the TLS port; made if there is none")
	flags.StringVar(&o.key, "key", "", "`file` of its key")
	flags.StringVar(&o.ca, "ca", "", "`file` of the authority that clients verify it by; default: the certificate itself")
	flags.StringVar(&o.dir, "dir", "run", "`folder` for configuration, certificates and logs")
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
	wantedBy := map[int]string{}
	for _, p := range o.ports() {
		if p.number < 1 || p.number > 65535 {
			return o, fmt.Errorf("%s=%d: a port is between 1 and 65535", p.makeVar, p.number)
		}
		if other, ok := wantedBy[p.number]; ok {
			return o, fmt.Errorf("%s and %s both want port %d; the brokers take BROKER_PORT and the two above it", other, p.makeVar, p.number)
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
	for i, b := range o.brokers() {
		ports = append(ports, port{o.brokerPort + i, b.Name, "BROKER_PORT"})
	}
	return ports
}

func (o options) brokers() []rig.MosquittoOptions {
	var brokers []rig.MosquittoOptions
	for i := range brokerCount {
		brokers = append(brokers, rig.MosquittoOptions{
			Dir:  o.dir,
			Name: fmt.Sprintf("mosquitto-%d", i+1),
			Port: o.brokerPort + i,
		})
	}
	return brokers
}

// config is mqttlb's configuration.
func (o options) config() string {
	var b strings.Builder
	b.WriteString("# Written by `make run`.\n")
	line(&b, "listeners:")
	line(&b, "  - name: plain")
	line(&b, "    address: %s", rig.Local(o.port))
	line(&b, "    pool: mosquitto")
	line(&b, "  - name: tls")
	line(&b, "    address: %s", rig.Local(o.tlsPort))
	line(&b, "    pool: mosquitto")
	line(&b, "    tls:")
	line(&b, "      mode: terminate")
	line(&b, "      certificates:")
	line(&b, "        - {cert: %q, key: %q}", o.cert, o.key)
	line(&b, "pools:")
	line(&b, "  - name: mosquitto")
	line(&b, "    backends:")
	for _, m := range o.brokers() {
		line(&b, "      - {name: %s, address: %q}", m.Name, rig.Local(m.Port))
	}
	line(&b, "    health: {type: mqtt}")
	line(&b, "admin: {address: %q}", rig.Local(o.adminPort))
	return b.String()
}

func line(w io.Writer, format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
