package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// The story of ten crashes: publishers that repeat what was not acknowledged,
// as the protocol has it, and subscribers with sessions that stay. A crash
// comes in the middle of the traffic, when a count of acknowledgements is
// reached; in the last round there is none.
const (
	crashes       = 10
	perRound      = 4000 // acknowledgements between two crashes
	crashWriters  = 10
	crashReaders  = 50
	perWriter     = (crashes + 1) * perRound / crashWriters
	writersWindow = 256
	crashDeadline = 2 * time.Minute
	// leastRate is what has to be acknowledged in a second between two crashes, the
	// clients' coming back included. The writers are as many as it takes for the
	// broker, and not the wait for its answers, to be the bound.
	leastRate = 2000
)

func TestTenCrashesLoseNothingAcknowledgedAndRepeatNothingOfQoS2(t *testing.T) {
	// Without the race detector, which would have four times the time pass.
	b := startBroker(t, rig.BrokerOptions{Binary: must(rig.BuildBroker())(t), Extra: "durability: always\nlog: {level: warn}\n"})
	s := &crashStory{t: t, addr: b.Addr()}
	for i := range crashWriters {
		s.writers = append(s.writers, &crashWriter{crashClient: newCrashClient(s, "writer", i), topic: fmt.Sprintf("crash/%d/", i)})
	}
	missing := 0
	for i := range crashReaders {
		r := &crashReader{
			crashClient: newCrashClient(s, "reader", i),
			filter:      fmt.Sprintf("crash/%d/+", i%crashWriters),
			qos:         byte(1 + i/crashWriters%2), // 1 and 2 on every filter
			held:        map[uint16]bool{},
		}
		s.readers = append(s.readers, r)
		missing += perWriter
	}
	s.missing.Store(int64(missing))
	s.complete = make(chan struct{})

	begun, traffic := time.Now(), time.Duration(0)
	for round := range crashes + 1 {
		traffic += s.round(round, func() { crash(t, b) })
		if t.Failed() {
			break
		}
		if round < crashes {
			restart(t, b)
		}
	}
	rate := float64(s.acked.Load()) / traffic.Seconds()
	t.Logf("%d messages, %d deliveries, %d crashes in %v; %.0f messages/s between crashes",
		s.acked.Load(), crashReaders*perWriter, crashes, time.Since(begun).Round(time.Millisecond), rate)
	if rate < leastRate {
		t.Errorf("%.0f messages/s, want %d at least: the crashes are to hit a broker that works", rate, leastRate)
	}
	for _, r := range s.readers {
		r.judge()
	}
}

type crashStory struct {
	t       *testing.T
	addr    string
	writers []*crashWriter
	readers []*crashReader

	acked    atomic.Int64 // messages whose QoS is fulfilled
	goal     int64        // of acked, in this round
	reached  chan struct{}
	missing  atomic.Int64 // deliveries, repeats apart
	complete chan struct{}
}

// round has all clients connect and go on where they were, until the goal is
// reached and the broker killed; the last until all is delivered.
func (s *crashStory) round(n int, kill func()) (took time.Duration) {
	s.goal, s.reached = int64((n+1)*perRound), make(chan struct{})
	var clients sync.WaitGroup
	for _, r := range s.readers {
		if n == 0 { // subscriptions first
			if err := r.connect(); err != nil {
				s.t.Fatal(err)
			}
			clients.Go(r.work)
		} else {
			clients.Go(func() { r.resume(r.work) })
		}
	}
	begun := time.Now()
	for _, w := range s.writers {
		clients.Go(func() { w.resume(w.work) })
	}
	limit := time.NewTimer(crashDeadline)
	defer limit.Stop()
	end := s.reached
	if n == crashes {
		end = s.complete
	}
	select {
	case <-end:
	case <-limit.C:
		s.t.Errorf("round %d: %d of %d acknowledged, %d deliveries missing after %v", n, s.acked.Load(), s.goal, s.missing.Load(), crashDeadline)
	}
	took = time.Since(begun)
	if n < crashes {
		kill()
	} else {
		for _, c := range append(clientsOf(s.writers), clientsOf(s.readers)...) {
			c.leave()
		}
	}
	clients.Wait()
	return took
}

func clientsOf[T interface{ client() *crashClient }](all []T) (clients []*crashClient) {
	for _, c := range all {
		clients = append(clients, c.client())
	}
	return clients
}

func (s *crashStory) acknowledged() {
	if s.acked.Add(1) == s.goal {
		close(s.reached)
	}
}

// crashClient has a session that outlives its connections; every other one
// speaks 5.0.
type crashClient struct {
	s     *crashStory
	id    string
	v     mqtt.Version
	known bool // the broker has the session

	mu   sync.Mutex
	conn net.Conn
	r    *bufio.Reader
	out  []byte
}

func newCrashClient(s *crashStory, kind string, i int) crashClient {
	v := mqtt.V311
	if i%2 == 1 {
		v = mqtt.V5
	}
	return crashClient{s: s, id: fmt.Sprintf("%s-%d", kind, i), v: v}
}

func (c *crashClient) client() *crashClient { return c }

func (c *crashClient) fail(format string, args ...any) {
	c.s.t.Errorf("%s: %s", c.id, fmt.Sprintf(format, args...))
}

// open connects and reads CONNACK.
func (c *crashClient) open() error {
	conn, err := net.DialTimeout("tcp", c.s.addr, patience)
	if err != nil {
		return err
	}
	_ = conn.SetDeadline(time.Now().Add(crashDeadline + patience))
	c.mu.Lock()
	c.conn, c.r, c.out = conn, bufio.NewReaderSize(conn, 16<<10), nil
	c.mu.Unlock()
	o := mqtt.ConnectOptions{Version: c.v, ClientID: c.id}
	if c.v == mqtt.V5 {
		o.Properties = kept
	}
	if _, err := conn.Write(mqtt.AppendConnect(nil, o)); err != nil {
		return err
	}
	p, err := readPacket(c.r)
	if err != nil {
		return err
	}
	ack, _, err := mqtt.ParseConnack(p, c.v)
	if err != nil || !ack.Accepted() || ack.SessionPresent != c.known {
		return fmt.Errorf("CONNACK 0x%02x, session present %t, %w; want it present: %t", ack.Code, ack.SessionPresent, err, c.known)
	}
	c.known = true
	return nil
}

// resume connects and works. Between a restart and the next crash there is no
// reason for a connection to fail, but the crash may come before it is there.
func (c *crashClient) resume(work func()) {
	err := c.open()
	switch {
	case err == nil:
		work()
	case !c.over(err):
		c.fail("connect: %v", err)
	}
	c.close()
}

func (c *crashClient) close() {
	if c.conn != nil {
		c.conn.Close()
	}
}

// leave ends the connection at the end of the story.
func (c *crashClient) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		c.conn.Close()
	}
}

// over says whether an error is how a connection ends when the broker is
// killed, or at the end of the story.
func (c *crashClient) over(err error) bool {
	return isOver(err) || isRefused(err) || errors.Is(err, net.ErrClosed)
}

// flush writes what was gathered in out.
func (c *crashClient) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.conn.Write(c.out)
	c.out = c.out[:0]
	return err
}

func (c *crashClient) ack(t mqtt.PacketType, id uint16) {
	c.out = mqtt.AppendAck(c.out, c.v, mqtt.Ack{Type: t, PacketID: id})
}

// readPacket reads one whole packet.
func readPacket(r *bufio.Reader) ([]byte, error) {
	d := device{r: r}
	return d.packet()
}

// crashWriter publishes to two topics in turn, at QoS 1 and at QoS 2.
type crashWriter struct {
	crashClient
	topic    string // the QoS comes behind it
	next     int    // message
	lastID   uint16
	inFlight []flying // in the order in which they were sent first
}

// flying is a message that is not acknowledged yet.
type flying struct {
	n        int
	id       uint16
	received bool // PUBREC came: it must not be sent again
}

func (w *crashWriter) work() {
	for _, f := range w.inFlight { // [MQTT-4.4.0-1], [MQTT-4.6.0-1]
		if f.received {
			w.ack(mqtt.TypePubrel, f.id)
		} else {
			w.publish(f, true)
		}
	}
	err := w.flush()
	for err == nil && (w.next < perWriter || len(w.inFlight) > 0) {
		for len(w.inFlight) < writersWindow && w.next < perWriter {
			w.lastID = w.lastID%1000 + 1
			f := flying{n: w.next, id: w.lastID}
			w.inFlight = append(w.inFlight, f)
			w.publish(f, false)
			w.next++
		}
		if err = w.flush(); err == nil {
			err = w.take()
		}
	}
	if err != nil && !w.over(err) {
		w.fail("%v", err)
	}
}

// publish takes message n: even ones have QoS 1, odd ones QoS 2.
func (w *crashWriter) publish(f flying, dup bool) {
	qos := byte(1 + f.n%2)
	w.out = mqtt.AppendPublish(w.out, w.v, mqtt.Publish{
		Dup: dup, QoS: qos, PacketID: f.id,
		Topic: []byte(w.topic + strconv.Itoa(int(qos))), Payload: []byte(strconv.Itoa(f.n / 2)),
	})
}

// take reads one answer.
func (w *crashWriter) take() error {
	p, err := readPacket(w.r)
	if err != nil {
		return err
	}
	a, _, err := mqtt.ParseAck(p, w.v)
	if err != nil || a.Reason >= 0x80 && a.Reason != mqtt.PacketIdentifierNotFound {
		return fmt.Errorf("% x: %w", p, err)
	}
	for i, f := range w.inFlight {
		if f.id != a.PacketID {
			continue
		}
		switch {
		case a.Type == mqtt.TypePubrec && f.n%2 == 1:
			w.inFlight[i].received = true
			w.ack(mqtt.TypePubrel, f.id)
		case a.Type == mqtt.TypePuback && f.n%2 == 0, a.Type == mqtt.TypePubcomp && f.received:
			w.inFlight = append(w.inFlight[:i:i], w.inFlight[i+1:]...)
			w.s.acknowledged()
		default:
			return fmt.Errorf("%v of %d, which waits for another answer", a.Type, f.id)
		}
		return nil
	}
	return fmt.Errorf("%v of %d, which is not in flight", a.Type, a.PacketID)
}

// crashReader checks what it receives as it comes.
type crashReader struct {
	crashClient
	filter string
	qos    byte
	held   map[uint16]bool // received at QoS 2, and PUBREL has not come [MQTT-4.3.3-2]
	topics [3]crashTopic   // by the QoS of their messages
}

// crashTopic is how far a reader is with a topic.
type crashTopic struct {
	seen    int // messages 0 to seen-1
	last    int
	repeats int // deliveries of a message that was seen before
	jumps   int // how often the repeats began
}

// connect makes the session and its subscription.
func (r *crashReader) connect() error {
	if err := r.open(); err != nil {
		return fmt.Errorf("%s: %w", r.id, err)
	}
	sub := mqtt.Subscribe{PacketID: 1}
	sub.Subscriptions = sub.Subscriptions.Append(mqtt.Subscription{Filter: []byte(r.filter), QoS: r.qos})
	if _, err := r.conn.Write(mqtt.AppendSubscribe(nil, r.v, sub)); err != nil {
		return err
	}
	p, err := readPacket(r.r)
	if err != nil {
		return err
	}
	if a, _, err := mqtt.ParseSuback(p, r.v); err != nil || a.Codes[0] != r.qos {
		return fmt.Errorf("%s: SUBACK % x: %w", r.id, p, err)
	}
	return nil
}

func (r *crashReader) work() {
	for {
		p, err := readPacket(r.r)
		if err == nil {
			err = r.take(p)
		}
		if err == nil && r.r.Buffered() == 0 {
			err = r.flush()
		}
		if err != nil {
			if !r.over(err) {
				r.fail("%v", err)
			}
			return
		}
	}
}

func (r *crashReader) take(p []byte) error {
	switch mqtt.PacketType(p[0] >> 4) {
	case mqtt.TypePublish:
		m, _, err := mqtt.ParsePublish(p, r.v)
		if err != nil {
			return err
		}
		if m.QoS == 2 {
			if !r.held[m.PacketID] {
				r.deliver(m)
			}
			r.held[m.PacketID] = true
			r.ack(mqtt.TypePubrec, m.PacketID)
			return nil
		}
		r.deliver(m)
		r.ack(mqtt.TypePuback, m.PacketID)
	case mqtt.TypePubrel:
		a, _, err := mqtt.ParseAck(p, r.v)
		if err != nil {
			return err
		}
		delete(r.held, a.PacketID)
		r.ack(mqtt.TypePubcomp, a.PacketID)
	default:
		return fmt.Errorf("unexpected % x", p)
	}
	return nil
}

// deliver judges a message by what came before it on its topic: it is the next
// one, or at QoS 1 a repeat.
func (r *crashReader) deliver(m mqtt.Publish) {
	qos, n, err := parseCrashMessage(m)
	if err != nil {
		r.fail("%v", err)
		return
	}
	at := &r.topics[qos]
	switch {
	case m.QoS != min(qos, r.qos):
		r.fail("%s at QoS %d, subscribed at %d", m.Topic, m.QoS, r.qos)
	case n == at.seen:
		at.seen++
		if r.s.missing.Add(-1) == 0 {
			close(r.s.complete)
		}
	case n > at.seen:
		r.fail("%s: %d comes after %d: the others are lost, or late", m.Topic, n, at.seen-1)
	case m.QoS == 2:
		r.fail("%s: %d comes twice at QoS 2", m.Topic, n)
	default:
		at.repeats++
		if n != at.last+1 {
			at.jumps++
		}
	}
	at.last = n
}

func parseCrashMessage(m mqtt.Publish) (qos byte, n int, err error) {
	topic := string(m.Topic)
	level, err := strconv.Atoi(topic[strings.LastIndexByte(topic, '/')+1:])
	if err != nil || level < 1 || level > 2 {
		return 0, 0, fmt.Errorf("topic %q", topic)
	}
	n, err = strconv.Atoi(string(m.Payload))
	return byte(level), n, err
}

// mostJumps is how often repeats may begin at QoS 1. The k-th crash lets the
// broker deliver again from its last checkpoint and the writer publish again:
// two. Where the rounds are shorter than a checkpoint, what is delivered again
// may hold the k-1 repeats of the writer that the log has from the crashes
// before. That is 2+k-1 for the k-th, in all crashes(crashes+3)/2.
const mostJumps = crashes * (crashes + 3) / 2

// judge looks at what is only seen at the end. A crash may have the broker
// deliver again, and the writer publish again: order is kept where each does so
// once, from one place on.
func (r *crashReader) judge() {
	for qos, at := range r.topics[1:] {
		if at.seen != perWriter/2 {
			r.fail("%d of %d messages of QoS %d", at.seen, perWriter/2, qos+1)
		}
		if at.jumps > mostJumps {
			r.fail("%d repeats of QoS %d in %d runs, want no more than %d after %d crashes", at.repeats, qos+1, at.jumps, mostJumps, crashes)
		}
	}
}
