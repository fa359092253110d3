package rig

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
)

// Client says how mosquitto_pub and mosquitto_sub, the real clients, reach a
// listener. Addr is needed.
type Client struct {
	Addr               string // host:port; with TLS the certificate must name the host
	ID                 string // default: made up by the client
	Version            string // "31", "311" or "5"; default "311"
	QoS                int
	Username, Password string
	CA                 string // file; with it the client speaks TLS
	Cert, Key          string // files: the client's own certificate
	Args               []string
}

// Flags are the command line flags that both clients understand.
func (c Client) Flags() []string {
	host, port, err := net.SplitHostPort(c.Addr)
	if err != nil {
		host = c.Addr // the client says what is wrong with it
	}
	flags := []string{"-h", host, "-p", port}
	add := func(flag, value string) {
		if value != "" {
			flags = append(flags, flag, value)
		}
	}
	add("--cafile", c.CA)
	add("--cert", c.Cert)
	add("--key", c.Key)
	add("-i", c.ID)
	add("-u", c.Username)
	add("-P", c.Password)
	if c.Version != "" {
		add("-V", "mqttv"+c.Version)
	}
	if c.QoS > 0 {
		add("-q", strconv.Itoa(c.QoS))
	}
	return append(flags, c.Args...)
}

// Publish publishes one message and waits until the QoS is fulfilled.
func (c Client) Publish(ctx context.Context, topic, payload string) error {
	args := append(c.Flags(), "-t", topic, "-m", payload)
	if out, err := exec.CommandContext(ctx, "mosquitto_pub", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("mosquitto_pub to %s: %w: %s", c.Addr, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Message is what a subscriber received.
type Message struct {
	Topic    string
	Payload  string
	QoS      int
	Retained bool
}

// Subscriber is a running mosquitto_sub. It connects again by itself when it
// loses its connection.
type Subscriber struct {
	*Process
	next int // the line of its output that Next reads from
}

// messageMark begins a line that is a message; the others tell of packets.
const messageMark = "message: "

// Subscribe starts a subscriber and returns when its SUBACK is there.
func (c Client) Subscribe(ctx context.Context, filter string) (*Subscriber, error) {
	format := messageMark + "%q %r %x %t" // payload in hex, so any bytes fit in a line
	p, err := StartSubscriber(append(c.Flags(), "-t", filter, "-F", format))
	if err != nil {
		return nil, err
	}
	if _, err := p.Log().WaitFor(ctx, 0, "Subscribed (mid: "); err != nil {
		p.Stop()
		return nil, fmt.Errorf("mosquitto_sub at %s: %w", c.Addr, err)
	}
	return &Subscriber{Process: p}, nil
}

// StartSubscriber starts mosquitto_sub with its debug lines on, and with each
// line of its output sent at once.
func StartSubscriber(args []string) (*Process, error) {
	return Start(Command{
		Name: "mosquitto_sub",
		Path: "stdbuf",
		Args: append([]string{"-oL", "mosquitto_sub", "-d"}, args...),
	})
}

// Next waits for the next message. One goroutine may call it at a time.
func (s *Subscriber) Next(ctx context.Context) (Message, error) {
	line, n, err := s.Log().Wait(ctx, s.next, func(l string) bool { return strings.HasPrefix(l, messageMark) })
	if err != nil {
		return Message{}, fmt.Errorf("waiting for a message: %w; the last lines are\n%s", err, s.Log().Tail(10))
	}
	s.next = n + 1
	return parseMessage(strings.TrimPrefix(line, messageMark))
}

func parseMessage(s string) (m Message, err error) {
	part := strings.SplitN(s, " ", 4)
	if len(part) != 4 {
		return m, fmt.Errorf("no message: %q", s)
	}
	if m.QoS, err = strconv.Atoi(part[0]); err != nil {
		return m, err
	}
	payload, err := hex.DecodeString(part[2])
	m.Retained, m.Payload, m.Topic = part[1] == "1", string(payload), part[3]
	return m, err
}
