package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Debian's scripts in PATH become the user rabbitmq and use the system's
// folders; these are the broker's own, which run as who calls them.
const rabbitBin = "/usr/lib/rabbitmq/bin/"

// RabbitMQOptions says how a RabbitMQ is set up. With Dir alone its MQTT
// plugin listens on a free port and takes no PROXY header.
type RabbitMQOptions struct {
	Dir           string // takes all that it writes; needed
	Port          int    // MQTT; default: a free one
	ProxyProtocol bool   // every connection must begin with a PROXY header
}

// RabbitMQ is a RabbitMQ node with the MQTT plugin, an Erlang port mapper of
// its own, and no other listener. Everyone may connect without a user name
// from any address, since a PROXY header can name any.
type RabbitMQ struct {
	*Process
	Port int
	epmd *Process
	env  []string
}

// StartRabbitMQ starts a node and returns when its plugin accepts
// connections, which takes some seconds.
func StartRabbitMQ(ctx context.Context, o RabbitMQOptions) (_ *RabbitMQ, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	ports, err := FreePorts(4) // the last is that of rabbitmqctl while it runs
	if err != nil {
		return nil, err
	}
	if o.Port == 0 {
		o.Port = ports[0]
	}
	r := &RabbitMQ{Port: o.Port, env: o.env(ports[1], ports[2], ports[3])}
	if err := o.writeFiles(); err != nil {
		return nil, fmt.Errorf("rabbitmq: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("rabbitmq does not start: %w", errors.Join(err, r.Stop()))
		}
	}()

	// Erlang would start a port mapper that outlives it.
	r.epmd, err = Start(Command{
		Name: "epmd",
		Path: "epmd",
		Args: []string{"-d", "-address", "127.0.0.1", "-port", strconv.Itoa(ports[1])},
		Env:  r.env,
	})
	if err != nil {
		return nil, err
	}
	if _, err := r.epmd.Log().WaitFor(ctx, 0, "epmd running"); err != nil {
		return nil, err
	}
	r.Process, err = Start(Command{
		Name:    "rabbitmq",
		Path:    rabbitBin + "rabbitmq-server",
		Env:     r.env,
		Dir:     o.Dir,
		LogFile: filepath.Join(o.Dir, "rabbitmq.log"),
		Grace:   30 * time.Second,
	})
	if err != nil {
		return nil, err
	}
	_, err = r.Log().WaitFor(ctx, 0, "Server startup complete")
	return r, err
}

// env points everything that the scripts know at o.Dir and the given ports.
func (o RabbitMQOptions) env(epmdPort, nodePort, ctlPort int) []string {
	in := func(name string) string { return filepath.Join(o.Dir, name) }
	const loopback = "-kernel inet_dist_use_interface {127,0,0,1} -start_epmd false"
	return []string{
		"HOME=" + o.Dir, // the Erlang cookie is made here
		"RABBITMQ_NODENAME=mqttlb" + strconv.Itoa(o.Port) + "@localhost",
		"RABBITMQ_CONF_ENV_FILE=" + in("none"), // not the system's
		"RABBITMQ_CONFIG_FILE=" + in("rabbitmq.conf"),
		"RABBITMQ_ADVANCED_CONFIG_FILE=" + in("none.config"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + in("enabled_plugins"),
		"RABBITMQ_MNESIA_BASE=" + in("mnesia"),
		"RABBITMQ_LOG_BASE=" + in("log"),
		"RABBITMQ_LOGS=-",
		"RABBITMQ_PID_FILE=" + in("pid"),
		"RABBITMQ_DIST_PORT=" + strconv.Itoa(nodePort),
		"RABBITMQ_CTL_DIST_PORT_MIN=" + strconv.Itoa(ctlPort),
		"RABBITMQ_CTL_DIST_PORT_MAX=" + strconv.Itoa(ctlPort),
		"RABBITMQ_CTL_ERL_ARGS=" + loopback,
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=" + loopback,
		// The script becomes the node this way, instead of its parent, so
		// signals reach it and it dies with us.
		"RABBITMQ_ALLOW_INPUT=1",
		"RABBITMQ_SERVER_START_ARGS=-noinput",
		"ERL_EPMD_PORT=" + strconv.Itoa(epmdPort),
		"ERL_EPMD_ADDRESS=127.0.0.1",
	}
}

func (o RabbitMQOptions) writeFiles() error {
	config := fmt.Sprintf(`listeners.tcp = none
loopback_users = none
disk_free_limit.absolute = 1MB
log.console = true
log.console.level = info
mqtt.listeners.tcp.1 = 127.0.0.1:%d
mqtt.allow_anonymous = true
mqtt.proxy_protocol = %t
`, o.Port, o.ProxyProtocol)
	return errors.Join(
		os.WriteFile(filepath.Join(o.Dir, "rabbitmq.conf"), []byte(config), 0o600),
		os.WriteFile(filepath.Join(o.Dir, "enabled_plugins"), []byte("[rabbitmq_mqtt].\n"), 0o600),
	)
}

// Addr is the MQTT listener's host:port.
func (r *RabbitMQ) Addr() string { return Local(r.Port) }

// Ctl runs rabbitmqctl against the node and gives what it says on standard
// output. One call at a time.
func (r *RabbitMQ) Ctl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, rabbitBin+"rabbitmqctl", args...)
	cmd.Env = append(os.Environ(), r.env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("rabbitmqctl %s: %w: %s%s", strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return string(out), nil
}

// MQTTConnections gives the peer host of each MQTT connection by Client
// Identifier, as the broker believes it.
func (r *RabbitMQ) MQTTConnections(ctx context.Context) (map[string]string, error) {
	out, err := r.Ctl(ctx, "-q", "--no-table-headers", "list_mqtt_connections", "client_id", "peer_host")
	if err != nil {
		return nil, err
	}
	hosts := map[string]string{}
	for line := range strings.Lines(out) {
		if id, host, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			hosts[id] = host
		}
	}
	return hosts, nil
}

// Stop ends the node and its port mapper. It is safe to repeat.
func (r *RabbitMQ) Stop() error {
	var errs []error
	for _, p := range []*Process{r.Process, r.epmd} {
		if p != nil {
			errs = append(errs, p.Stop())
		}
	}
	return errors.Join(errs...)
}
