package e2e

import (
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/e2e/rig/rigtest"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// fake is a broker whose answer to CONNECT is told to it. It begins well.
type fake struct {
	addr   string
	answer atomic.Pointer[behaviour]
	served atomic.Int64
}

// behaviour is what a fake does with a connection once CONNECT has come; it is
// closed behind it.
type behaviour func(c net.Conn)

var (
	accepted = []byte{byte(mqtt.TypeConnack) << 4, 2, 0, 0}

	wellBehaved behaviour = says(accepted)
	silent      behaviour = drain
	closing     behaviour = func(net.Conn) {}
	late        behaviour = func(c net.Conn) { // until the client is gone, which is sooner than the 10 s of the case
		drain(c)
		c.Write(accepted)
	}
)

// says answers with the bytes and stays until the client leaves.
func says(b []byte) behaviour {
	return func(c net.Conn) {
		c.Write(b)
		drain(c)
	}
}

func drain(c net.Conn) { io.Copy(io.Discard, c) }

func startFake(t *testing.T) *fake {
	t.Helper()
	l, err := net.Listen("tcp", freeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{addr: l.Addr().String()}
	f.answer.Store(&wellBehaved)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.served.Add(1)
			running.Go(func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(patience))
				buf := make([]byte, 512) // a CONNECT comes in one piece here
				if n, _ := c.Read(buf); n > 0 {
					(*f.answer.Load())(c)
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return f
}

// C017: what accepts TCP connections is no broker yet.
func TestABackendThatAnswersTCPButNotMQTTIsDown(t *testing.T) {
	connack := func(code byte) behaviour { return says([]byte{byte(mqtt.TypeConnack) << 4, 2, 0, code}) }
	cases := []struct {
		name   string
		does   behaviour
		reason string // "" for: it stays up
	}{
		{"a-silent", silent, "timeout"},
		{"b-closes", closing, "closed"},
		{"c-unavailable", connack(3), "server_unavailable"},
		{"c-busy-of-5", says([]byte{byte(mqtt.TypeConnack) << 4, 3, 0, byte(mqtt.ServerUnavailable), 0}), "protocol"},
		{"d-late", late, "timeout"},
		{"e-pingresp-first", says(append([]byte{byte(mqtt.TypePingresp) << 4, 0}, accepted...)), "protocol"},
		{"f-not-authorised", connack(5), ""},
	}
	fakes := map[string]*fake{}
	var backends []string
	for _, c := range cases {
		fakes[c.name] = startFake(t)
		backends = append(backends, fmt.Sprintf("      - {name: %s, address: %q}\n", c.name, fakes[c.name].addr))
	}
	broker := brokers(t, 1)[0]
	addr := freeAddr(t)
	const interval, fall = 500 * time.Millisecond, 3
	l := readyLB(t, fmt.Sprintf(`
listeners:
  - {name: plain, address: %q, pool: brokers}
pools:
  - name: brokers
    backends:
%s      - {name: %s, address: %q}
    health: {interval: %v, fast_interval: 200ms, timeout: 400ms, fall: %d}
`, addr, strings.Join(backends, ""), broker.Name, broker.Addr(), interval, fall))
	for _, c := range cases {
		if state, reason := l.report(t).backend("brokers", c.name); state != "up" {
			t.Fatalf("%s is %s at first: %s", c.name, state, reason)
		}
	}

	from, turned := l.Log().Len(), time.Now()
	for _, c := range cases {
		fakes[c.name].answer.Store(&c.does)
	}
	for _, c := range cases {
		if c.reason == "" {
			continue
		}
		l.awaitLine(t, from, `msg="backend is down"`, "backend="+c.name+" ", "reason="+c.reason+" ")
		state, reason := l.report(t).backend("brokers", c.name)
		if state != "down" || !strings.HasPrefix(reason, c.reason+": ") {
			t.Errorf("/readyz shows %s as %s, %q; want down, %s: …", c.name, state, reason, c.reason)
		}
		if n := l.metric(t, "mqttlb_check_failures_total", "backend="+c.name, "reason="+c.reason); n < fall {
			t.Errorf("%v failed checks of %s counted, want %d at least", n, c.name, fall)
		}
	}
	// A loaded machine gets some grace.
	if took := time.Since(turned); took > fall*interval+5*time.Second {
		t.Errorf("down after %v, want within fall x interval, %v", took, fall*interval)
	}

	// (f) answers, so it is alive: it knows checks have no account with it.
	checked := fakes["f-not-authorised"].served.Load()
	await(t, "checks that are refused with 0x05", func() bool { return fakes["f-not-authorised"].served.Load() > checked+2*fall })
	if state, reason := l.report(t).backend("brokers", "f-not-authorised"); state != "up" {
		t.Errorf("a broker that answers 0x05 is %s: %s", state, reason)
	}

	// New clients go to the next on the ring that is up.
	for _, id := range ids(20) {
		order := l.explain(t, id)
		want := broker.Name
		for _, name := range order {
			if name == broker.Name || name == "f-not-authorised" {
				want = name
				break
			}
		}
		_, ack, err := way{addr: addr}.connect(t, mqtt.ConnectOptions{ClientID: id, CleanStart: true})
		if err != nil {
			t.Errorf("%s: %v", id, err)
			continue
		}
		if answer := map[bool]string{true: broker.Name, false: "f-not-authorised"}[ack.Accepted()]; answer != want {
			t.Errorf("%s was answered 0x%02x by %s, want %s of %v", id, ack.Code, answer, want, order)
		}
	}
}

// What a check says to a broker is what a polite client says, and its session
// ends there.
func TestMQTTChecksLeaveNothingBehind(t *testing.T) {
	broker := brokers(t, 1)[0]
	readyLB(t, fmt.Sprintf(`
listeners:
  - {name: plain, address: %q, pool: brokers}
pools:
  - {name: brokers, backends: %s, health: {interval: 100ms}}
`, freeAddr(t), flow(broker)))

	const checks = 20
	goodbye := regexp.MustCompile(`: Client (\S+) disconnected\.$`)
	var log []string
	await(t, "checks to end", func() bool {
		log = broker.Log().Since(0)
		n := 0
		for _, line := range log {
			if goodbye.MatchString(line) {
				n++
			}
		}
		return n >= checks
	})
	came, left := map[string]int{}, map[string]int{}
	for _, line := range log {
		if m := arrival.FindStringSubmatch(line); m != nil {
			came[m[1]]++
			if !strings.Contains(line, "c1") {
				t.Errorf("a check without a clean session: %s", line)
			}
		}
		if m := goodbye.FindStringSubmatch(line); m != nil {
			left[m[1]]++
		}
	}
	for id, n := range left {
		if n != 1 || came[id] != 1 || !isCheck(id) {
			t.Errorf("%s came %d times and left %d times; want a fresh Client Identifier for each check", id, came[id], n)
		}
	}
	if len(came) > len(left)+1 { // one may be under way
		t.Errorf("%d checks came, %d left", len(came), len(left))
	}
	if i := indexLine(log, "error", "Error", "closed its connection", "Will message"); i >= 0 && !strings.Contains(log[i], "No will message") {
		t.Errorf("mosquitto: %s", log[i])
	}
}

func TestTCPChecksConnectAndNoMore(t *testing.T) {
	broker := brokers(t, 1)[0]
	l := readyLB(t, fmt.Sprintf(`
listeners:
  - {name: plain, address: %q, pool: brokers}
pools:
  - {name: brokers, backends: %s, health: {type: tcp, interval: 100ms, fast_interval: 100ms}}
`, freeAddr(t), flow(broker)))
	await(t, "checks", func() bool { return countLines(broker.Log().Since(0), "New connection from") > 5 })
	if i := indexLine(broker.Log().Since(0), "rror", "New client connected"); i >= 0 {
		t.Errorf("mosquitto: %s", broker.Log().Since(0)[i])
	}
	broker.Kill()
	if reason := l.awaitState(t, "brokers", broker.Name, "down"); !strings.HasPrefix(reason, "refused: ") {
		t.Errorf("down for %q, want refused", reason)
	}
	if err := broker.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.awaitState(t, "brokers", broker.Name, "up")
}

// A broker that hangs keeps its sockets: nothing but a check tells.
func TestOnMarkedDownDecidesOverTheConnectionsOfABackendThatHangs(t *testing.T) {
	broker := brokers(t, 1)[0]
	keep, closes := freeAddr(t), freeAddr(t)
	l := readyLB(t, fmt.Sprintf(`
listeners:
  - {name: keep, address: %q, pool: keep}
  - {name: close, address: %q, pool: close}
pools:
  - {name: keep, backends: %s, health: &checks {interval: 200ms, fast_interval: 100ms, timeout: 200ms}}
  - {name: close, backends: %s, health: *checks, on_marked_down: close}
`, keep, closes, flow(broker), flow(broker)))
	kept, closed := way{addr: keep}.join(t, "kept"), way{addr: closes}.join(t, "closed")

	if err := broker.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { broker.Signal(syscall.SIGCONT) })
	if err := closed.end(); err != nil {
		t.Errorf("on_marked_down: close ended the connection with %v, want FIN", err)
	}
	closed.Close()
	l.awaitLine(t, 0, `msg="connection ended"`, "client_id=closed", "by=mqttlb", "why=marked_down")
	for _, pool := range []string{"keep", "close"} {
		if reason := l.awaitState(t, pool, broker.Name, "down"); !strings.HasPrefix(reason, "timeout: ") {
			t.Errorf("%s: down for %q, want timeout", pool, reason)
		}
	}

	if err := broker.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	l.awaitState(t, "keep", broker.Name, "up")
	if err := kept.ping(); err != nil {
		t.Errorf("on_marked_down: keep: %v", err)
	}
}

// With health.topic a check is a whole client: what it publishes must come back.
func TestTheTopicCheckWantsItsMessageBack(t *testing.T) {
	open := brokers(t, 1)[0]
	guarded := rigtest.Mosquitto(t, rig.MosquittoOptions{Name: "guarded", Users: map[string]string{"check": "right-password"}})
	deaf := startFake(t) // CONNACK, and then nothing
	l := readyLB(t, fmt.Sprintf(`
listeners:
  - {name: plain, address: %q, pool: open}
  - {name: guarded, address: %q, pool: guarded}
  - {name: locked-out, address: %q, pool: locked-out}
pools:
  - name: open
    backends:
      - {name: broker, address: %q}
      - {name: deaf, address: %q}
    health: {topic: mqttlb/check, interval: 200ms, timeout: 1s}
  - {name: guarded, backends: %s, health: {topic: mqttlb/check, username: check, password: right-password}}
  - {name: locked-out, backends: %s, health: {topic: mqttlb/check, username: check, password: wrong-password}}
`, freeAddr(t), freeAddr(t), freeAddr(t), open.Addr(), deaf.addr, flow(guarded), flow(guarded)))
	for _, want := range []struct{ pool, backend, state, reason string }{
		{"open", "broker", "up", ""},
		{"open", "deaf", "down", "timeout: "},
		{"guarded", "guarded", "up", ""},
		{"locked-out", "guarded", "down", "connack_refused: "},
	} {
		if reason := l.awaitState(t, want.pool, want.backend, want.state); !strings.HasPrefix(reason, want.reason) {
			t.Errorf("%s/%s is %s for %q, want %q", want.pool, want.backend, want.state, reason, want.reason)
		}
	}
	await(t, "round trips", func() bool { return countLines(open.Log().Since(0), "Sending PUBLISH to mqttlbcheck") > 3 })
	if log := open.Log().Since(0); indexLine(log, "rror", "closed its connection") >= 0 {
		t.Errorf("mosquitto:\n%s", strings.Join(log, "\n"))
	}
	if i := indexLine(l.Log().Since(0), "right-password", "wrong-password"); i >= 0 {
		t.Errorf("a password in the log: %s", l.Log().Since(0)[i])
	}
}
