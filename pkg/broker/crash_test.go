package broker

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// actor is a correct client that goes on over crashes: it reconnects until done.
type actor struct {
	n    *node
	mu   *sync.Mutex // guards n.addr
	o    mqtt.ConnectOptions
	conn net.Conn
	buf  []byte
	over chan struct{}
}

// session connects and gives whether it worked, and was there before.
func (a *actor) session() (present, ok bool) {
	a.mu.Lock()
	addr := a.n.addr
	a.mu.Unlock()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return false, false
	}
	a.conn, a.buf = c, nil
	_ = c.SetDeadline(time.Now().Add(patience))
	_, _ = c.Write(mqtt.AppendConnect(nil, a.o))
	t, p := a.packet()
	if t != mqtt.TypeConnack {
		c.Close()
		return false, false
	}
	ack, _, err := mqtt.ParseConnack(p, a.o.Version)
	return ack.SessionPresent, err == nil && ack.Accepted()
}

func (a *actor) packet() (mqtt.PacketType, []byte) {
	d := device{Conn: a.conn, buf: a.buf}
	t, p := d.any()
	a.buf = d.buf
	return t, p
}

func (a *actor) ended() bool {
	select {
	case <-a.over:
		return true
	default:
		return false
	}
}

func (a *actor) ack(t mqtt.PacketType, id uint16) {
	_, _ = a.conn.Write(mqtt.AppendAck(nil, a.o.Version, mqtt.Ack{Type: t, PacketID: id}))
}

// publisher sends numbered messages, one after another, each until it is
// acknowledged. QoS 2 takes the same packet identifier every time.
func (a *actor) publisher(topic string, qos byte) (acknowledged int) {
	const id = 7
	released := false // PUBREC has come
	for number := 0; !a.ended(); {
		if _, ok := a.session(); !ok {
			continue
		}
		dup := true
		for up := true; up && !a.ended(); {
			if released {
				a.ack(mqtt.TypePubrel, id)
			} else {
				_, _ = a.conn.Write(mqtt.AppendPublish(nil, a.o.Version, mqtt.Publish{
					Dup: dup, QoS: qos, PacketID: id, Topic: []byte(topic), Payload: []byte(strconv.Itoa(number))}))
			}
			switch t, _ := a.packet(); t {
			case mqtt.TypePubrec:
				released = true
			case mqtt.TypePuback, mqtt.TypePubcomp:
				released, dup = false, false
				number++
				acknowledged = number
			default:
				up = false
			}
		}
		a.conn.Close()
	}
	return acknowledged
}

// subscriber counts what comes, by the rules of a client that keeps its state.
type subscriber struct {
	actor
	mu   sync.Mutex
	got  map[string]int // times, by topic and payload
	held map[uint16]bool
}

func (s *subscriber) run(filter string, ready func()) {
	subscribed := false
	for !s.ended() {
		present, ok := s.session()
		if !ok {
			continue
		}
		if subscribed && !present {
			s.n.t.Error("the session is lost")
		}
		if !subscribed {
			_, _ = s.conn.Write(mqtt.AppendSubscribe(nil, s.o.Version, mqtt.Subscribe{PacketID: 1,
				Subscriptions: mqtt.Subscriptions(nil).Append(mqtt.Subscription{Filter: []byte(filter), QoS: 2})}))
		}
		for up := true; up; {
			t, p := s.packet()
			switch t {
			case mqtt.TypeSuback:
				subscribed = true
				ready()
			case mqtt.TypePublish:
				m, _, _ := mqtt.ParsePublish(p, s.o.Version)
				s.take(m)
			case mqtt.TypePubrel:
				a, _, _ := mqtt.ParseAck(p, s.o.Version)
				delete(s.held, a.PacketID)
				s.actor.ack(mqtt.TypePubcomp, a.PacketID)
			default:
				up = false
			}
		}
		s.conn.Close()
	}
}

func (s *subscriber) take(m mqtt.Publish) {
	if m.QoS == 2 && s.held[m.PacketID] {
		s.actor.ack(mqtt.TypePubrec, m.PacketID)
		return
	}
	s.mu.Lock()
	s.got[fmt.Sprintf("%s %s", m.Topic, m.Payload)]++
	s.mu.Unlock()
	if m.QoS == 2 {
		s.held[m.PacketID] = true
		s.actor.ack(mqtt.TypePubrec, m.PacketID)
		return
	}
	s.actor.ack(mqtt.TypePuback, m.PacketID)
}

func (s *subscriber) times(topic string, number int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got[fmt.Sprintf("%s %d", topic, number)]
}

// However often the broker is killed, nothing that was acknowledged is lost, and
// QoS 2 comes once.
func TestCrashesLoseNothingAndRepeatNoQoS2(t *testing.T) {
	const crashes, publishers = 12, 4
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	n := newNode(t)
	var addr sync.Mutex
	over := make(chan struct{})
	client := func(v mqtt.Version, id string) actor {
		o := mqtt.ConnectOptions{Version: v, ClientID: id}
		if v == mqtt.V5 {
			o.Properties = expiring(3600)
		}
		return actor{n: n, mu: &addr, o: o, over: over}
	}
	var running, ready sync.WaitGroup
	var subs []*subscriber
	for i, v := range []mqtt.Version{mqtt.V311, mqtt.V5} {
		s := &subscriber{actor: client(v, "sub"+strconv.Itoa(i)), got: make(map[string]int), held: make(map[uint16]bool)}
		s.over = make(chan struct{})
		subs = append(subs, s)
		ready.Add(1)
		running.Go(func() { s.run("crash/#", sync.OnceFunc(ready.Done)) })
	}
	ready.Wait()
	var publishing sync.WaitGroup
	acknowledged := make([]int, publishers)
	qos := func(i int) byte { return byte(1 + i%2) }
	topic := func(i int) string { return fmt.Sprintf("crash/%d/%d", qos(i), i) }
	for i := range publishers {
		a := client([]mqtt.Version{mqtt.V5, mqtt.V311}[i/2], "pub"+strconv.Itoa(i))
		publishing.Go(func() { acknowledged[i] = a.publisher(topic(i), qos(i)) })
	}
	for range crashes {
		time.Sleep(time.Duration(random.IntN(80)) * time.Millisecond)
		if random.IntN(2) == 0 { // some only after a takeover or a lost connection
			n.b.mu.Lock()
			for l := range n.b.links {
				if random.IntN(2) == 0 {
					l.socket.Close()
				}
			}
			n.b.mu.Unlock()
			time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
		}
		n.crash()
		addr.Lock()
		n.start()
		addr.Unlock()
	}
	time.Sleep(50 * time.Millisecond)
	close(over)
	n.b.mu.Lock()
	for l := range n.b.links {
		l.socket.Close()
	}
	n.b.mu.Unlock()
	publishing.Wait()
	for i, count := range acknowledged {
		t.Logf("%s: %d acknowledged", topic(i), count)
		for _, s := range subs {
			for number := range count {
				eventually(t, fmt.Sprintf("%s has %s %d", s.o.ClientID, topic(i), number), func() bool { return s.times(topic(i), number) > 0 })
				if times := s.times(topic(i), number); qos(i) == 2 && times != 1 {
					t.Errorf("%s has %s %d times: %d", s.o.ClientID, topic(i), number, times)
				}
			}
		}
	}
	for _, s := range subs {
		close(s.over)
	}
	n.stop()
	running.Wait()
}
