package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"os/exec"
	"strings"
	"time"
	"unicode"

	"github.com/mqttlb/mqttlb/e2e/rig"
)

// The message that the user is told to send.
const (
	tryTopic   = "demo/hello"
	tryPayload = "hello over TLS"
)

// try is the two commands that the user is told to type: the arguments of
// mosquitto_sub at the plain port and of mosquitto_pub at the TLS port.
type try struct{ sub, pub []string }

func newTry(o options) (try, error) {
	host, args, err := tlsHost(o)
	if err != nil {
		return try{}, err
	}
	plain := rig.Client{Addr: rig.Local(o.port)}
	secure := rig.Client{Addr: fmt.Sprintf("%s:%d", host, o.tlsPort), CA: o.ca, Args: args}
	return try{
		sub: append(plain.Flags(), "-t", "demo/#", "-v"),
		pub: append(secure.Flags(), "-t", tryTopic, "-m", tryPayload),
	}, nil
}

// tlsHost is the name of this machine that the certificate is for. Where it
// is for other names, the client must not compare them.
func tlsHost(o options) (host string, args []string, err error) {
	pair, err := tls.LoadX509KeyPair(o.cert, o.key)
	if err != nil {
		return "", nil, err
	}
	for _, h := range []string{"localhost", "127.0.0.1"} {
		if pair.Leaf.VerifyHostname(h) == nil {
			return h, nil, nil
		}
	}
	return "127.0.0.1", []string{"--insecure"}, nil
}

// check does what the user is told to do, and waits for the message.
func (t try) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	sub, err := rig.StartSubscriber(t.sub)
	if err != nil {
		return err
	}
	defer sub.Stop()
	if _, err := sub.Log().WaitFor(ctx, 0, "Subscribed (mid: "); err != nil {
		return fmt.Errorf("%s: %w", t.subCommand(), err)
	}
	if out, err := exec.CommandContext(ctx, "mosquitto_pub", t.pub...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", t.pubCommand(), err, out)
	}
	if _, err := sub.Log().WaitFor(ctx, 0, tryTopic+" "+tryPayload); err != nil {
		return fmt.Errorf("%s: %w", t.subCommand(), err)
	}
	return nil
}

func (t try) subCommand() string { return shellLine("mosquitto_sub", t.sub) }
func (t try) pubCommand() string { return shellLine("mosquitto_pub", t.pub) }

// shellLine is a command as it can be typed.
func shellLine(command string, args []string) string {
	for _, a := range args {
		if a == "" || strings.ContainsFunc(a, needsQuotes) {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		command += " " + a
	}
	return command
}

// needsQuotes is generous: some of these would do without.
func needsQuotes(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_./:=", r)
}

// welcome is what the user sees when all works.
func (o options) welcome(t try) string {
	var b strings.Builder
	line(&b, `
It works: a message went in by the TLS port and came out by the plain one.
Try it too. In one terminal:

    %s

and in another:

    %s

%s
ready?         http://%s/readyz
metrics        http://%[4]s/metrics
files          %s: %s

Ctrl-C ends all of it.`,
		t.subCommand(), t.pubCommand(), o.brokerLine(), rig.Local(o.adminPort), o.dir, o.files())
	return b.String()
}

// brokerLine says what stands behind mqttlb.
func (o options) brokerLine() string {
	first := rig.Local(o.brokerPort)
	if o.kind == mosquitto {
		return fmt.Sprintf("brokers        %s to %d, bridged: any two clients hear each other", first, o.brokerPort+len(o.brokerNames())-1)
	}
	return fmt.Sprintf(`brokers        %s to %d, a cluster: one of them may go at any time
how are they?  bin/broker cluster status --admin %s`, first, o.brokerPort+len(o.brokerNames())-1, rig.Local(o.brokerPort+adminAbove))
}

func (o options) files() string {
	if o.kind == mosquitto {
		return "mqttlb.yaml, certificates, logs"
	}
	return "mqttlb.yaml, certificates, logs, and in brokers what each of them has and keeps"
}
