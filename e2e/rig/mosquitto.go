package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// startTimeout bounds the start of a broker, should the context not.
const startTimeout = 60 * time.Second

// MosquittoOptions says how a broker is set up. With Dir alone it is a plain
// broker on a free port, open to everyone.
type MosquittoOptions struct {
	Dir            string            // takes the configuration and the log; needed
	Name           string            // for people and file names; default "mosquitto"
	Port           int               // default: a free one
	MaxConnections int               // 0: no bound
	Users          map[string]string // user name to password; with any, nobody else may connect
	TLS            *MosquittoTLS     // nil: plain TCP
	Extra          []string          // further lines of mosquitto.conf
}

// MosquittoTLS is the TLS side of a broker's listener.
type MosquittoTLS struct {
	Cert, Key string // files
	ClientCA  string // file; with it, every client must show a certificate
}

// Mosquitto is one broker. It may be stopped or killed and started again on
// the same port; it keeps no session and no message over that.
type Mosquitto struct {
	*Process // since the last start
	Port     int
	command  Command
}

// StartMosquitto starts a broker and returns when it accepts connections.
func StartMosquitto(ctx context.Context, o MosquittoOptions) (*Mosquitto, error) {
	o.Name = orDefault(o.Name, "mosquitto")
	if o.Port == 0 {
		p, err := FreePort()
		if err != nil {
			return nil, err
		}
		o.Port = p
	}
	if err := writePasswords(ctx, o); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Name, err)
	}
	config := filepath.Join(o.Dir, o.Name+".conf")
	if err := os.WriteFile(config, []byte(o.config()), 0o600); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Name, err)
	}
	m := &Mosquitto{Port: o.Port, command: Command{
		Name:    o.Name,
		Path:    "mosquitto",
		Args:    []string{"-c", config},
		LogFile: filepath.Join(o.Dir, o.Name+".log"),
	}}
	if err := m.Start(ctx); err != nil {
		return nil, err
	}
	return m, nil
}

// config is mosquitto.conf. All kinds of log lines are on: tests wait for them.
func (o MosquittoOptions) config() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	// Started by root it would become the user mosquitto, who can't read
	// folders and keys that are root's alone. Others stay who they are.
	line("user root")
	line("persistence false")
	line("log_dest stderr")
	line("log_type all")
	line("sys_interval 1")
	line("max_queued_messages 100000")
	line("listener %d 127.0.0.1", o.Port)
	if o.MaxConnections > 0 {
		line("max_connections %d", o.MaxConnections)
	}
	line("allow_anonymous %t", len(o.Users) == 0)
	if len(o.Users) > 0 {
		line("password_file %s", o.passwordFile())
	}
	if t := o.TLS; t != nil {
		line("certfile %s", t.Cert)
		line("keyfile %s", t.Key)
		if t.ClientCA != "" {
			line("cafile %s", t.ClientCA)
			line("require_certificate true")
		}
	}
	for _, extra := range o.Extra {
		line("%s", extra)
	}
	return b.String()
}

func (o MosquittoOptions) passwordFile() string { return filepath.Join(o.Dir, o.Name+".passwd") }

// writePasswords makes the password file with mosquitto's own tool.
func writePasswords(ctx context.Context, o MosquittoOptions) error {
	if len(o.Users) == 0 {
		return nil
	}
	tool, err := findCommand("mosquitto_passwd")
	if err != nil {
		return err
	}
	if err := os.WriteFile(o.passwordFile(), nil, 0o600); err != nil {
		return err
	}
	for user, password := range o.Users {
		if out, err := exec.CommandContext(ctx, tool, "-b", o.passwordFile(), user, password).CombinedOutput(); err != nil {
			return fmt.Errorf("mosquitto_passwd: %w: %s", err, out)
		}
	}
	return nil
}

// Start starts the broker again after Stop or Kill, with a new log, and
// returns when it accepts connections.
func (m *Mosquitto) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	p, err := Start(m.command)
	if err != nil {
		return err
	}
	// Its listeners are open when it writes this.
	if _, err := p.Log().WaitFor(ctx, 0, " running"); err != nil {
		p.Kill()
		return fmt.Errorf("%s does not start: %w", m.command.Name, err)
	}
	m.Process = p
	return nil
}

// Addr is the listener's host:port.
func (m *Mosquitto) Addr() string { return Local(m.Port) }
