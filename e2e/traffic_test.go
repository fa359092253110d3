package e2e

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// traffic is publishers that repeat what was not acknowledged, as the protocol
// has it, and subscribers with sessions that stay, while what they are connected
// to is killed, stopped or cut off. Each connects again by itself, and readers
// judge what they receive as it comes.
type traffic struct {
	t *testing.T
	o trafficOptions

	writers []*writer
	readers []*reader

	acked     atomic.Int64 // messages whose QoS is fulfilled
	delivered atomic.Int64 // messages to readers, repeats apart
	faults    atomic.Int64
	rate      atomic.Int64  // as in the options, until it is changed
	ending    chan struct{} // closed: nothing new is published
	over      chan struct{} // closed: all connections end
	writing   sync.WaitGroup
	clients   sync.WaitGroup
	finish    sync.Once

	begun   time.Time
	lastAck atomic.Int64 // since begun
	longest atomic.Int64 // time without one

	breaksMu sync.Mutex
	breaks   map[string]int // how connections have ended
}

type trafficOptions struct {
	name             string // begins topics and Client Identifiers
	addr             string
	writers, readers int
	window           int // of each writer; default 64
	rate             int // messages a second of all writers; 0: as fast as they are acknowledged
	// silence is how long a client hears nothing before it asks with PINGREQ, and
	// then how long before it takes the connection for dead. 0: for ever; then a
	// connection ends only when its broker does.
	silence time.Duration
}

const (
	trafficDeadline = 2 * time.Minute // for what is waited for
	// mostFaults are told; more tell nothing new.
	mostFaults = 20
)

// startTraffic has the readers subscribed and the writers begin.
func startTraffic(t *testing.T, o trafficOptions) *traffic {
	t.Helper()
	o.window = cmp.Or(o.window, 64)
	s := &traffic{t: t, o: o, ending: make(chan struct{}), over: make(chan struct{}), breaks: map[string]int{}}
	s.rate.Store(int64(o.rate))
	for i := range o.writers {
		s.writers = append(s.writers, &writer{trafficClient: newTrafficClient(s, "writer", i), topic: fmt.Sprintf("%s/%d/", o.name, i)})
	}
	for i := range o.readers {
		s.readers = append(s.readers, &reader{
			trafficClient: newTrafficClient(s, "reader", i),
			from:          s.writers[i%o.writers],
			qos:           byte(1 + i/o.writers%2), // 1 and 2 of every writer
			held:          map[uint16]bool{},
		})
	}
	t.Cleanup(s.end) // whatever has become of the test
	for _, r := range s.readers {
		if err := r.subscribe(); err != nil {
			t.Fatal(err)
		}
	}
	s.begun = time.Now()
	for _, r := range s.readers {
		s.clients.Go(func() { r.live(r.work) })
	}
	for _, w := range s.writers {
		s.writing.Go(func() { w.live(w.work) })
	}
	return s
}

// acknowledged waits for so many acknowledgements more.
func (s *traffic) acknowledged(more int) {
	s.t.Helper()
	goal := s.acked.Load() + int64(more)
	s.wait(fmt.Sprintf("%d more acknowledgements", more), func() bool { return s.acked.Load() >= goal })
}

func (s *traffic) wait(what string, done func() bool) {
	s.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(trafficDeadline)
	defer late.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-late.C:
			s.t.Fatalf("waited %v in vain for %s: %d acknowledged, %d delivered; connections ended: %v", trafficDeadline, what, s.acked.Load(), s.delivered.Load(), s.howTheyEnded())
		}
		if s.faults.Load() > mostFaults {
			s.t.Fatalf("gave up on waiting for %s", what)
		}
	}
}

// stall is the longest time without an acknowledgement since it was asked last.
func (s *traffic) stall() time.Duration {
	now := int64(time.Since(s.begun))
	worst := max(s.longest.Swap(0), now-s.lastAck.Load())
	return time.Duration(worst).Round(10 * time.Millisecond)
}

func (s *traffic) countAck() {
	s.acked.Add(1)
	now := int64(time.Since(s.begun))
	gap := now - s.lastAck.Swap(now)
	for old := s.longest.Load(); gap > old && !s.longest.CompareAndSwap(old, gap); {
		old = s.longest.Load()
	}
}

// judge has all that was published delivered, ends the traffic, and looks at what
// is only seen then.
func (s *traffic) judge() {
	s.t.Helper()
	close(s.ending)
	written := make(chan struct{})
	go func() { s.writing.Wait(); close(written) }()
	s.wait("the writers to end", func() bool {
		select {
		case <-written:
			return true
		default:
			return false
		}
	})
	expected := int64(0)
	for _, r := range s.readers {
		expected += int64(r.from.next)
	}
	begun := time.Now()
	s.wait(fmt.Sprintf("%d deliveries", expected), func() bool { return s.delivered.Load() >= expected })
	s.t.Logf("%d messages, %d deliveries, the last %v behind the last acknowledgement; connections ended: %v",
		s.acked.Load(), s.delivered.Load(), time.Since(begun).Round(10*time.Millisecond), s.howTheyEnded())
	s.end()
	repeats := 0
	for _, r := range s.readers {
		repeats += r.judge()
	}
	s.t.Logf("%d repeats at QoS 1, %.2f %%", repeats, 100*float64(repeats)/float64(expected))
}

// end ends the clients.
func (s *traffic) end() {
	s.finish.Do(func() {
		close(s.over)
		for _, w := range s.writers {
			w.leave()
		}
		for _, r := range s.readers {
			r.leave()
		}
	})
	s.writing.Wait()
	s.clients.Wait()
}

func (s *traffic) isOver() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

func (s *traffic) ends() bool {
	select {
	case <-s.ending:
		return true
	default:
		return false
	}
}

func (s *traffic) howTheyEnded() string {
	s.breaksMu.Lock()
	defer s.breaksMu.Unlock()
	return fmt.Sprint(s.breaks)
}

// trafficClient has a session that outlives its connections; every other one
// speaks 5.0.
type trafficClient struct {
	s     *traffic
	id    string
	v     mqtt.Version
	known bool // the broker has the session
	asked bool // it may have it: a CONNECT was not answered

	broken atomic.Int64 // connections, but for the last

	mu   sync.Mutex
	conn net.Conn
	r    *bufio.Reader
	out  []byte
}

func newTrafficClient(s *traffic, kind string, i int) *trafficClient {
	v := mqtt.V311
	if i%2 == 1 {
		v = mqtt.V5
	}
	return &trafficClient{s: s, id: fmt.Sprintf("%s-%s-%d", s.o.name, kind, i), v: v}
}

func (c *trafficClient) fail(format string, args ...any) {
	if c.s.faults.Add(1) <= mostFaults {
		c.s.t.Errorf("%s: %s", c.id, fmt.Sprintf(format, args...))
	}
}

// refused is an answer to CONNECT; sentAway a DISCONNECT.
type (
	refused  mqtt.Reason
	sentAway mqtt.Reason
)

func (r refused) Error() string  { return fmt.Sprintf("refused with 0x%02x", byte(r)) }
func (r sentAway) Error() string { return fmt.Sprintf("sent away with 0x%02x", byte(r)) }

// errSilent: the broker did not answer PINGREQ.
var errSilent = errors.New("no PINGRESP")

// open connects and reads CONNACK.
func (c *trafficClient) open() error {
	conn, err := net.DialTimeout("tcp", c.s.o.addr, patience)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.conn, c.r, c.out = conn, bufio.NewReaderSize(conn, 16<<10), nil
	c.mu.Unlock()
	if c.s.isOver() {
		return net.ErrClosed
	}
	o := mqtt.ConnectOptions{Version: c.v, ClientID: c.id, KeepAlive: uint16(2 * c.s.o.silence / time.Second)}
	if c.v == mqtt.V5 {
		o.Properties = kept
	}
	_ = conn.SetDeadline(time.Now().Add(trafficDeadline))
	if c.s.o.silence > 0 {
		_ = conn.SetDeadline(time.Now().Add(2 * c.s.o.silence))
	}
	first := !c.asked
	c.asked = true
	if _, err := conn.Write(mqtt.AppendConnect(nil, o)); err != nil {
		return err
	}
	p, err := readPacket(c.r)
	if err != nil {
		return err
	}
	ack, _, err := mqtt.ParseConnack(p, c.v)
	switch {
	case err != nil:
		return fmt.Errorf("CONNACK % x: %w", p, err)
	case !ack.Accepted():
		if c.v != mqtt.V5 && ack.Code == 3 {
			return refused(mqtt.ServerUnavailable)
		}
		return refused(ack.Code)
	case c.known && !ack.SessionPresent, first && ack.SessionPresent:
		return fmt.Errorf("CONNACK says session present: %t", ack.SessionPresent)
	}
	c.known = true
	_ = conn.SetDeadline(time.Time{})
	return nil
}

// live connects and works until the end, with pauses between attempts that grow
// and differ from client to client.
func (c *trafficClient) live(work func() error) {
	least, most := 50*time.Millisecond, 2*time.Second
	if c.s.o.silence == 0 { // its broker is back in a moment
		most = 2 * least
	}
	pause := least
	for {
		var err error
		if c.conn == nil {
			err = c.open()
		}
		open := err == nil
		if open {
			pause = least
			err = work()
		}
		c.close()
		if err == nil || c.s.isOver() { // it has no more to do
			return
		}
		if open {
			c.broken.Add(1)
		}
		c.account(err)
		select {
		case <-c.s.over:
			return
		case <-time.After(pause/2 + rand.N(pause)):
			pause = min(2*pause, most)
		}
	}
}

// account counts an end that may come, and fails for any other.
func (c *trafficClient) account(err error) {
	var no refused
	var away sentAway
	how := ""
	robust := c.s.o.silence > 0
	switch {
	case isOver(err), errors.Is(err, net.ErrClosed):
		how = "closed"
	case isRefused(err):
		how = "connection refused"
	case robust && (errors.Is(err, errSilent) || errors.Is(err, os.ErrDeadlineExceeded)):
		how = "silent"
	case robust && errors.As(err, &no) && (mqtt.Reason(no) == mqtt.ServerUnavailable || mqtt.Reason(no) == mqtt.ServerBusy):
		how = no.Error()
	case robust && errors.As(err, &away) && mayBeSent(mqtt.Reason(away)):
		how = away.Error()
	default:
		c.fail("%v", err)
		return
	}
	c.s.breaksMu.Lock()
	defer c.s.breaksMu.Unlock()
	c.s.breaks[how]++
}

// mayBeSent says which DISCONNECT tells of the broker's state, and not of a
// client's fault.
func mayBeSent(r mqtt.Reason) bool {
	switch r {
	case mqtt.ServerUnavailable, mqtt.ServerBusy, mqtt.ServerShuttingDown, mqtt.UseAnotherServer, mqtt.AdministrativeAction,
		mqtt.SessionTakenOver, // by a CONNECT of its own, which a node that stood still reads late
		mqtt.KeepAliveTimeout: // likewise
		return true
	}
	return false
}

func (c *trafficClient) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// leave ends the connection at the end of the traffic.
func (c *trafficClient) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		c.conn.Close()
	}
}

// flush writes what was gathered in out.
func (c *trafficClient) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	if c.s.o.silence > 0 {
		_ = c.conn.SetWriteDeadline(time.Now().Add(2 * c.s.o.silence))
	}
	_, err := c.conn.Write(c.out)
	c.out = c.out[:0]
	return err
}

func (c *trafficClient) ack(t mqtt.PacketType, id uint16) {
	c.out = mqtt.AppendAck(c.out, c.v, mqtt.Ack{Type: t, PacketID: id})
}

// packet reads one whole packet that is not about the connection itself.
func (c *trafficClient) packet() ([]byte, error) {
	for {
		if err := c.listen(); err != nil {
			return nil, err
		}
		p, err := readPacket(c.r)
		if err != nil {
			return nil, err
		}
		switch mqtt.PacketType(p[0] >> 4) {
		case mqtt.TypePingresp:
		case mqtt.TypeDisconnect:
			d, _, err := mqtt.ParseDisconnect(p, c.v, mqtt.FromServer)
			if err != nil {
				return nil, err
			}
			return nil, sentAway(d.Reason)
		default:
			return p, nil
		}
	}
}

// listen waits for the first byte, and asks whether anybody is there.
func (c *trafficClient) listen() error {
	if c.r.Buffered() > 0 {
		return nil
	}
	wait := c.s.o.silence
	if wait == 0 {
		wait = 2 * trafficDeadline
	}
	for asked := false; ; asked = true {
		_ = c.conn.SetReadDeadline(time.Now().Add(wait))
		_, err := c.r.Peek(1)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case asked:
			return errSilent
		}
		c.out = mqtt.AppendPingreq(c.out)
		if err := c.flush(); err != nil {
			return err
		}
	}
}

// readPacket reads one whole packet.
func readPacket(r *bufio.Reader) ([]byte, error) {
	d := device{r: r}
	return d.packet()
}

// writer publishes to two topics in turn, at QoS 1 and at QoS 2.
type writer struct {
	*trafficClient
	topic    string // the QoS comes behind it
	next     int    // message
	lastID   uint16
	inFlight []flying // in the order in which they were sent first
	due      time.Time
}

// flying is a message that is not acknowledged yet.
type flying struct {
	n        int
	id       uint16
	received bool // PUBREC came: it must not be sent again
}

// work publishes until the traffic ends and all is acknowledged.
func (w *writer) work() error {
	for _, f := range w.inFlight { // [MQTT-4.4.0-1], [MQTT-4.6.0-1]
		if f.received {
			w.ack(mqtt.TypePubrel, f.id)
		} else {
			w.publish(f, true)
		}
	}
	for {
		pause := w.fill()
		if err := w.flush(); err != nil {
			return err
		}
		if len(w.inFlight) > 0 {
			if err := w.take(); err != nil {
				return err
			}
			continue
		}
		select {
		case <-w.s.ending:
			return nil
		case <-w.s.over:
			return nil
		case <-time.After(pause):
		}
	}
}

// fill publishes what is due, as far as the window allows, and says when there is
// more.
func (w *writer) fill() (pause time.Duration) {
	now := time.Now()
	for len(w.inFlight) < w.s.o.window && !w.s.ends() {
		if rate := time.Duration(w.s.rate.Load()); rate > 0 {
			if w.due.Before(now.Add(-time.Second)) { // what was missed is not caught up with
				w.due = now
			}
			if pause = w.due.Sub(now); pause > 0 {
				return pause
			}
			w.due = w.due.Add(time.Second * time.Duration(w.s.o.writers) / rate)
		}
		w.lastID = w.lastID%1000 + 1
		f := flying{n: w.next, id: w.lastID}
		w.inFlight = append(w.inFlight, f)
		w.publish(f, false)
		w.next++
	}
	return 0
}

// publish takes message n: even ones have QoS 1, odd ones QoS 2.
func (w *writer) publish(f flying, dup bool) {
	qos := byte(1 + f.n%2)
	w.out = mqtt.AppendPublish(w.out, w.v, mqtt.Publish{
		Dup: dup, QoS: qos, PacketID: f.id,
		Topic: []byte(w.topic + strconv.Itoa(int(qos))), Payload: []byte(strconv.Itoa(f.n / 2)),
	})
}

// take reads the answers that are there, one at least.
func (w *writer) take() error {
	for {
		p, err := w.packet()
		if err == nil {
			err = w.answered(p)
		}
		if err != nil || w.r.Buffered() == 0 {
			return err
		}
	}
}

// repeats is how many runs of repeats the log may have of it. Each break lets it
// publish again, and where nodes stand still, one may bring what it held only when
// it goes on.
func (w *writer) repeats() int {
	n := int(w.broken.Load())
	if w.s.o.silence > 0 {
		n *= 2
	}
	return n
}

func (w *writer) answered(p []byte) error {
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
			w.s.countAck()
		default:
			return fmt.Errorf("%v of %d, which waits for another answer", a.Type, f.id)
		}
		return nil
	}
	return fmt.Errorf("%v of %d, which is not in flight", a.Type, a.PacketID)
}

// reader checks what it receives as it comes.
type reader struct {
	*trafficClient
	from   *writer
	qos    byte
	held   map[uint16]bool // received at QoS 2, and PUBREL has not come [MQTT-4.3.3-2]
	topics [3]heard        // by the QoS of their messages
	// again is in how many runs repeats may come at QoS 1 for the breaks of the
	// reader: each lets the broker deliver again from its last checkpoint, with
	// the repeats of the writer that the log had until then.
	again int
}

// heard is how far a reader is with a topic.
type heard struct {
	seen    int // messages 0 to seen-1
	last    int
	repeats int // deliveries of a message that was seen before
	jumps   int // how often the repeats began
}

// subscribe makes the session and its subscription.
func (r *reader) subscribe() error {
	if err := r.open(); err != nil {
		return fmt.Errorf("%s: %w", r.id, err)
	}
	sub := mqtt.Subscribe{PacketID: 1}
	sub.Subscriptions = sub.Subscriptions.Append(mqtt.Subscription{Filter: []byte(r.from.topic + "+"), QoS: r.qos})
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

func (r *reader) work() error {
	if r.broken.Load() > 0 {
		r.again += 1 + r.from.repeats()
	}
	for {
		p, err := r.packet()
		if err == nil {
			err = r.take(p)
		}
		if err == nil && r.r.Buffered() == 0 {
			err = r.flush()
		}
		if err != nil {
			return err
		}
	}
}

func (r *reader) take(p []byte) error {
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
func (r *reader) deliver(m mqtt.Publish) {
	qos, n, err := parseTraffic(m)
	if err != nil {
		r.fail("%v", err)
		return
	}
	at := &r.topics[qos]
	switch {
	case m.QoS != min(qos, r.qos):
		r.fail("%s at QoS %d, subscribed at %d", m.Topic, m.QoS, r.qos)
	case n >= at.seen:
		if n > at.seen {
			r.fail("%s: %d comes after %d: those between are lost, or late", m.Topic, n, at.seen-1)
		}
		r.s.delivered.Add(int64(n + 1 - at.seen))
		at.seen = n + 1
	case m.QoS == 2:
		r.fail("%s: %d comes twice or late at QoS 2, DUP %t, behind %d", m.Topic, n, m.Dup, at.seen-1)
	default:
		at.repeats++
		if n != at.last+1 {
			at.jumps++
		}
	}
	at.last = n
}

func parseTraffic(m mqtt.Publish) (qos byte, n int, err error) {
	topic := string(m.Topic)
	level, err := strconv.Atoi(topic[strings.LastIndexByte(topic, '/')+1:])
	if err != nil || level < 1 || level > 2 {
		return 0, 0, fmt.Errorf("topic %q", topic)
	}
	n, err = strconv.Atoi(string(m.Payload))
	return byte(level), n, err
}

// judge looks at what is only seen at the end. What breaks may have the broker
// deliver again, and the writer publish again: order is kept where each does so
// once, from one place on.
func (r *reader) judge() (repeats int) {
	most := r.again + r.from.repeats()
	for qos, at := range r.topics[1:] {
		if want := (r.from.next + 1 - qos) / 2; at.seen != want {
			r.fail("%d of %d messages of QoS %d", at.seen, want, qos+1)
		}
		if at.jumps > most {
			r.fail("%d repeats of QoS %d in %d runs, want no more than %d", at.repeats, qos+1, at.jumps, most)
		}
		repeats += at.repeats
	}
	return repeats
}
