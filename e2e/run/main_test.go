package main

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/mqttlb/mqttlb/e2e/rig"
)

func TestWrongChoicesAreNamed(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"a port that is none", []string{"-tls-port", "70000"}, "TLS_PORT=70000"},
		{"brokers past the last port", []string{"-broker-port", "65535"}, "BROKER_PORT=65536"},
		{"one port for two", []string{"-port", "9091"}, "PORT and ADMIN_PORT both want port 9091"},
		{"a port among the brokers'", []string{"-port", "18832"}, "PORT and BROKER_PORT both want port 18832"},
		{"a certificate without its key", []string{"-cert", "c.pem"}, "CERT and KEY"},
		{"an unknown flag", []string{"-prot", "1"}, "-prot"},
		{"a stray word", []string{"1883"}, `"1883"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := parseFlags(tc.args); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q in it", err, tc.want)
			}
		})
	}
}

func TestABusyPortIsNamedWithItsHolderAndAnother(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).Port
	o, err := parseFlags([]string{"-port", strconv.Itoa(taken)})
	if err != nil {
		t.Fatal(err)
	}
	err = checkPorts(o.ports()[:1])
	var busy busyPorts
	if !errors.As(err, &busy) || len(busy) != 1 {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{
		"port " + strconv.Itoa(taken) + " (mqttlb, plain)",
		"held by process ",
		"make run PORT=" + strconv.Itoa(busy[0].free) + "\n",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in\n%s", want, err)
		}
	}
	if err := tryListen(busy[0].free); err != nil {
		t.Errorf("suggested a port that is not free: %v", err)
	}
}

func TestNoPortIsSuggestedThatAnotherPartWants(t *testing.T) {
	ports, err := rig.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	p := port{ports[0], "one", "PORT"}
	next := port{ports[0] + 1, "the next", "TLS_PORT"}
	if got := freeAbove(p, []port{p, next}); got == next.number || got == 0 {
		t.Errorf("suggested %d, which %s wants", got, next.makeVar)
	}
}

func TestCommandsCanBeTyped(t *testing.T) {
	got := shellLine("mosquitto_sub", []string{"--cafile", "/a b/it's.pem", "-t", "demo/#", "-m", "", "-h", "127.0.0.1"})
	want := `mosquitto_sub --cafile '/a b/it'\''s.pem' -t 'demo/#' -m '' -h 127.0.0.1`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
