package main

import (
	"context"
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
		{"brokers past the last port", []string{"-brokers", "mosquitto", "-broker-port", "65535"}, "BROKER_PORT=65536"},
		{"brokers of no known kind", []string{"-brokers", "emqx"}, "BROKERS=emqx: it is broker or mosquitto"},
		{"our brokers past the last port", []string{"-broker-port", "65510"}, "BROKER_PORT=65540"},
		{"a port among those of our brokers", []string{"-admin-port", "18852"}, "ADMIN_PORT and BROKER_PORT both want port 18852"},
		{"one port for two", []string{"-port", "9091"}, "PORT and ADMIN_PORT both want port 9091"},
		{"a port among the brokers'", []string{"-brokers", "mosquitto", "-port", "18832"}, "PORT and BROKER_PORT both want port 18832"},
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

// The ports of the brokers move together, so all of them must be free.
func TestABrokerPortIsSuggestedWithAllThatHangOnIt(t *testing.T) {
	o, err := parseFlags(nil)
	if err != nil {
		t.Fatal(err)
	}
	first := freeAbove(o.ports()[3], o.ports())
	if first == 0 {
		t.Fatal("nothing is suggested")
	}
	l, err := net.Listen("tcp", rig.Local(first+healthAbove+1)) // one of those that come along
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if again := freeAbove(o.ports()[3], o.ports()); again <= first {
		t.Errorf("%d is suggested although a port that comes with it is taken; before it was %d", again, first)
	}
}

func TestEachKindOfBrokerAsksForItsOwnPortsAndPackages(t *testing.T) {
	for _, tc := range []struct {
		args     []string
		ports    int
		packages int
	}{
		{nil, 15, 1},
		{[]string{"-brokers", "broker"}, 15, 1},
		{[]string{"-brokers", "mosquitto"}, 6, 2},
	} {
		o, err := parseFlags(tc.args)
		if err != nil {
			t.Fatal(err)
		}
		if got := o.ports(); len(got) != tc.ports {
			t.Errorf("%q: ports %v, want %d", tc.args, got, tc.ports)
		}
		if got := o.packages(); len(got) != tc.packages {
			t.Errorf("%q: packages %v, want %d", tc.args, got, tc.packages)
		}
	}
}

// What `make run` starts works, by the commands that it prints, and ends as a
// whole at Ctrl-C; it starts again on what the broker has kept.
func TestARunWorksAndEndsCleanly(t *testing.T) {
	if err := rig.Install(t.Context(), rig.RunPackages...); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{ours, mosquitto} {
		dir := t.TempDir()
		for range map[string]int{ours: 2, mosquitto: 1}[kind] {
			free, err := rig.FreePorts(4)
			if err != nil {
				t.Fatal(err)
			}
			args := []string{"-brokers", kind, "-dir", dir,
				"-port", strconv.Itoa(free[0]), "-tls-port", strconv.Itoa(free[1]), "-admin-port", strconv.Itoa(free[2]), "-broker-port"}
			o, err := parseFlags(append(args, strconv.Itoa(free[3])))
			if err != nil {
				t.Fatal(err)
			}
			o, err = parseFlags(append(args, strconv.Itoa(freeAbove(o.ports()[3], o.ports()))))
			if err != nil {
				t.Fatal(err)
			}
			ctx, interrupt := context.WithCancel(t.Context())
			out := &screen{until: "Ctrl-C ends", seen: interrupt}
			if err := run(ctx, o, out); err != nil {
				t.Fatalf("%s: %v\n%s", kind, err, out.text.String())
			}
			for _, want := range []string{"It works", "mosquitto_sub -h 127.0.0.1 -p " + strconv.Itoa(free[0]), "All stopped."} {
				if !strings.Contains(out.text.String(), want) {
					t.Errorf("%s: %q is not in\n%s", kind, want, out.text.String())
				}
			}
			if err := checkPorts(o.ports()); err != nil {
				t.Errorf("%s has left something behind: %v", kind, err)
			}
		}
	}
}

// screen presses Ctrl-C when it reads a text.
type screen struct {
	text  strings.Builder
	until string
	seen  func()
}

func (s *screen) Write(p []byte) (int, error) {
	s.text.Write(p)
	if strings.Contains(s.text.String(), s.until) {
		s.seen()
	}
	return len(p), nil
}

func TestCommandsCanBeTyped(t *testing.T) {
	got := shellLine("mosquitto_sub", []string{"--cafile", "/a b/it's.pem", "-t", "demo/#", "-m", "", "-h", "127.0.0.1"})
	want := `mosquitto_sub --cafile '/a b/it'\''s.pem' -t 'demo/#' -m '' -h 127.0.0.1`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
