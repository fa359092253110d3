package broker

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// crowd are members of a shared subscription that go on over lost connections,
// and what they have got.
type crowd struct {
	t       *testing.T
	mu      sync.Mutex
	got     map[string]int // times, by payload
	by      map[string]int // messages, by member
	last    map[string]int // number, by member and topic
	unsort  int
	running sync.WaitGroup
	over    chan struct{}
}

func newCrowd(t *testing.T) *crowd {
	c := &crowd{t: t, got: make(map[string]int), by: make(map[string]int), last: make(map[string]int), over: make(chan struct{})}
	t.Cleanup(c.end)
	return c
}

func (c *crowd) end() {
	c.mu.Lock()
	select {
	case <-c.over:
	default:
		close(c.over)
	}
	c.mu.Unlock()
	c.running.Wait()
}

// member is one of a crowd.
type member struct {
	actor
	c     *crowd
	place sync.Mutex
	held  map[uint16]bool
}

// member joins a node and stays until the crowd is over, also where it moves.
func (c *crowd) member(n *node, id string, qos byte, filter string) *member {
	m := &member{c: c, held: make(map[uint16]bool)}
	m.actor = actor{n: n, mu: &m.place, over: c.over, o: mqtt.ConnectOptions{Version: mqtt.V5, ClientID: id, Properties: expiring(3600)}}
	ready := make(chan struct{})
	c.running.Go(func() { m.run(qos, filter, sync.OnceFunc(func() { close(ready) })) })
	<-ready
	return m
}

// move lets the member connect to another node, while its old connection is up.
func (m *member) move(n *node) {
	m.place.Lock()
	defer m.place.Unlock()
	m.n = n
}

func (m *member) run(qos byte, filter string, ready func()) {
	subscribed := false
	for !m.ended() {
		if _, ok := m.session(); !ok {
			continue
		}
		conn := m.conn
		stop := make(chan struct{})
		var watch sync.WaitGroup
		watch.Go(func() {
			select {
			case <-m.over:
			case <-stop:
			}
			conn.Close()
		})
		if !subscribed {
			_, _ = m.conn.Write(mqtt.AppendSubscribe(nil, mqtt.V5, mqtt.Subscribe{PacketID: 1,
				Subscriptions: mqtt.Subscriptions(nil).Append(mqtt.Subscription{Filter: []byte(filter), QoS: qos})}))
		}
		for up := true; up; {
			switch t, p := m.packet(); t {
			case mqtt.TypeSuback:
				a, _, _ := mqtt.ParseSuback(p, mqtt.V5)
				if a.Codes[0] == qos {
					subscribed = true
					ready()
				} else {
					up = false
				}
			case mqtt.TypePublish:
				x, _, _ := mqtt.ParsePublish(p, mqtt.V5)
				m.take(x)
			case mqtt.TypePubrel:
				a, _, _ := mqtt.ParseAck(p, mqtt.V5)
				delete(m.held, a.PacketID)
				m.ack(mqtt.TypePubcomp, a.PacketID)
			default:
				up = false
			}
		}
		close(stop)
		watch.Wait()
	}
}

func (m *member) take(x mqtt.Publish) {
	if x.QoS == 2 && m.held[x.PacketID] {
		m.ack(mqtt.TypePubrec, x.PacketID)
		return
	}
	m.c.mu.Lock()
	m.c.got[string(x.Payload)]++
	m.c.by[m.o.ClientID]++
	number, _ := strconv.Atoi(string(x.Payload))
	at := m.o.ClientID + " " + string(x.Topic)
	if number < m.c.last[at] {
		m.c.unsort++
	}
	m.c.last[at] = number
	m.c.mu.Unlock()
	switch x.QoS {
	case 1:
		m.ack(mqtt.TypePuback, x.PacketID)
	case 2:
		m.held[x.PacketID] = true
		m.ack(mqtt.TypePubrec, x.PacketID)
	}
}

func (c *crowd) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.got)
}

// have waits until all messages up to count are there, and gives how many came
// more than once.
func (c *crowd) have(count int) (repeated int) {
	c.t.Helper()
	for deadline := time.Now().Add(2 * patience); c.count() < count; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			c.mu.Lock()
			var missing []int
			for i := range count {
				if c.got[strconv.Itoa(i)] == 0 && len(missing) < 20 {
					missing = append(missing, i)
				}
			}
			c.t.Errorf("%d of %d came; missing %v", len(c.got), count, missing)
			c.mu.Unlock()
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, times := range c.got {
		if times > 1 {
			repeated++
		}
	}
	return repeated
}

// stream publishes numbered messages, at most so many unacknowledged at a time.
func (n *node) stream(topic string, qos byte, from, count int) {
	n.t.Helper()
	eventually(n.t, n.name+" takes clients", n.b.quorum)
	p, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: fmt.Sprint("stream", topic, from), CleanStart: true})
	const window = 50
	acked := mqtt.TypePuback
	if qos == 2 {
		acked = mqtt.TypePubcomp
	}
	done := 0
	for sent := 0; done < count; {
		for ; sent < count && sent-done < window; sent++ {
			p.sendPublish(qos, uint16(sent%60000+1), topic, strconv.Itoa(from+sent))
		}
		t, b := p.any()
		switch t {
		case mqtt.TypePubrec:
			a, _, _ := mqtt.ParseAck(b, p.v)
			p.sendAck(mqtt.TypePubrel, a.PacketID)
		case acked:
			done++
		default:
			n.t.Errorf("%s after %d", t, done)
			return
		}
	}
	p.disconnect()
}

// dealerOf gives the place of the node that deals.
func dealerOf(t *testing.T, nodes ...*node) (at int) {
	t.Helper()
	eventually(t, "one node deals", func() bool {
		count := 0
		for i, n := range nodes {
			n.b.dealer.mu.Lock()
			if n.b.dealer.on {
				at = i
				count++
			}
			n.b.dealer.mu.Unlock()
		}
		return count == 1
	})
	return at
}

func TestASharedSubscriptionUsesItsMembersOnAllNodes(t *testing.T) {
	places(t, func(t *testing.T, n [3]*node) {
		for qos := byte(1); qos <= 2; qos++ {
			c := newCrowd(t)
			filter := fmt.Sprintf("$share/g/all/%d", qos)
			for i, n := range n {
				c.member(n, fmt.Sprint("m", qos, i), qos, filter)
			}
			const count = 5000
			n[1].stream(filter[len("$share/g/"):], qos, 0, count)
			if repeated := c.have(count); repeated > 0 {
				t.Errorf("QoS %d: %d came more than once", qos, repeated)
			}
			for i := range n {
				if c.by[fmt.Sprint("m", qos, i)] < count/20 {
					t.Errorf("QoS %d: shared as %v", qos, c.by)
				}
			}
			if c.unsort > 0 {
				t.Errorf("QoS %d: %d out of order", qos, c.unsort)
			}
			c.end()
		}
	})
}

func TestQoS0ReachesOneMemberOnAllNodes(t *testing.T) {
	places(t, func(t *testing.T, n [3]*node) {
		c := newCrowd(t)
		for i, n := range n {
			c.member(n, fmt.Sprint("m", i), 1, "$share/g/zero")
		}
		const count = 300
		p := publisher(n[0])
		for i := range count {
			p.sendPublish(0, 0, "zero", strconv.Itoa(i))
		}
		if repeated := c.have(count); repeated > 0 {
			t.Errorf("%d came more than once", repeated)
		}
	})
}

// Members come, go and move between nodes while messages flow.
func TestASharedSubscriptionGoesOnWhileItsMembersMove(t *testing.T) {
	places(t, func(t *testing.T, n [3]*node) {
		c := newCrowd(t)
		var members []*member
		for i, n := range n {
			members = append(members, c.member(n, fmt.Sprint("m", i), 2, "$share/g/move/#"))
		}
		const count = 3000
		var flow sync.WaitGroup
		flow.Go(func() { n[0].stream("move/1", 1, 0, count) })
		flow.Go(func() { n[1].stream("move/2", 2, count, count) })
		for i := 0; c.count() < 2*count && i < 60; i++ {
			before := c.count()
			m := members[i%3]
			to := n[(i/3+i)%3]
			switch i % 4 {
			case 0: // its connection is lost
				m.move(to)
				for _, n := range n {
					n.cutOff(m.o.ClientID)
				}
			case 1, 2: // another connection takes over
				o := m.o
				o.Properties = expiring(3600)
				d := to.dial(mqtt.V5)
				d.send(mqtt.AppendConnect(nil, o))
				d.any() // its CONNACK, unless the member was quicker
				m.move(to)
				d.Close()
			case 3: // one who has no session comes and goes
				d, _ := to.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "guest", CleanStart: true})
				d.subscribe(0, "x")
				d.Close()
			}
			for deadline := time.Now().Add(5 * time.Second); c.count() == before && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			}
		}
		flow.Wait()
		c.have(2 * count)
		c.mu.Lock()
		defer c.mu.Unlock()
		for i := count; i < 2*count; i++ {
			if times := c.got[strconv.Itoa(i)]; times > 1 {
				t.Errorf("QoS 2 message %d came %d times", i, times)
			}
		}
	})
}

// cutOff closes a client's connection.
func (n *node) cutOff(id string) {
	if cl := n.b.lookup(id); cl != nil {
		cl.mu.Lock()
		if cl.link != nil {
			cl.link.socket.Close()
		}
		cl.mu.Unlock()
	}
}

func TestASharedSubscriptionOutlivesItsNodes(t *testing.T) {
	for _, dealer := range []bool{true, false} {
		name := "a node that is dealt to"
		if dealer {
			name = "the dealer"
		}
		t.Run(name, func(t *testing.T) {
			n := newCluster(t, 3)
			c := newCrowd(t)
			var members []*member
			for i, n := range n {
				members = append(members, c.member(n, fmt.Sprint("m", i), 2, "$share/g/die/#"))
			}
			dies := dealerOf(t, n...)
			if !dealer {
				dies = (dies + 1) % 3
			}
			stays := n[(dies+1)%3]
			const count = 3000
			var flow sync.WaitGroup
			flow.Go(func() { stays.stream("die/1", 1, 0, count) })
			flow.Go(func() { stays.stream("die/2", 2, count, count) })
			eventually(t, "it flows", func() bool { return c.count() > 200 })
			n[dies].crash()
			members[dies].move(n[(dies+2)%3])
			flow.Wait()
			repeated := c.have(2 * count)
			c.mu.Lock()
			defer c.mu.Unlock()
			for i := count; i < 2*count; i++ {
				if times := c.got[strconv.Itoa(i)]; times > 1 {
					t.Errorf("QoS 2 message %d came %d times", i, times)
				}
			}
			if repeated > 2*memberWindow {
				t.Errorf("%d came more than once", repeated)
			}
		})
	}
}

func TestASharedSubscriptionGoesOnWhenANodeIsCutOff(t *testing.T) {
	n := newCluster(t, 3)
	c := newCrowd(t)
	var members []*member
	for i, n := range n {
		members = append(members, c.member(n, fmt.Sprint("m", i), 2, "$share/g/cut/#"))
	}
	const count = 2000
	cut := dealerOf(t, n...)
	rest := []*node{n[(cut+1)%3], n[(cut+2)%3]}
	var flow sync.WaitGroup
	flow.Go(func() { rest[0].stream("cut", 2, 0, count) })
	eventually(t, "it flows", func() bool { return c.count() > 100 })
	for _, r := range rest {
		n[cut].cluster.Cut(n[cut].name, r.name, true)
	}
	members[cut].move(rest[1])
	dealerOf(t, rest...)
	flow.Wait()
	for _, r := range rest {
		n[cut].cluster.Cut(n[cut].name, r.name, false)
	}
	if repeated := c.have(count); repeated > 0 {
		t.Errorf("%d came more than once", repeated)
	}
	members[cut].move(n[cut])
	n[cut].cutOff(members[cut].o.ClientID)
	rest[1].cutOff(members[cut].o.ClientID)
	n[cut].stream("cut", 2, count, 300)
	if repeated := c.have(count + 300); repeated > 0 {
		t.Errorf("%d came more than once", repeated)
	}
}

// All nodes are killed at once, again and again; what is under way stays with the
// sessions, and what their clients have of QoS 2 does not come again.
func TestASharedSubscriptionOutlivesACrashOfAll(t *testing.T) {
	places(t, func(t *testing.T, n [3]*node) {
		nodes := n[:]
		if n[0] == n[1] {
			nodes = n[:1]
		}
		c := newCrowd(t)
		var members []*member
		for i, n := range n {
			members = append(members, c.member(n, fmt.Sprint("m", i), 2, "$share/g/crash"))
		}
		sent := 0
		for range 4 {
			nodes[0].stream("crash", 2, sent, 300)
			sent += 300
			for _, n := range nodes {
				for _, m := range members {
					if m.n == n {
						m.place.Lock()
					}
				}
			}
			for _, n := range nodes {
				n.crash()
			}
			for _, n := range nodes {
				if n.cluster != nil {
					n.join(3)
				} else {
					n.start()
				}
			}
			for _, m := range members {
				m.place.Unlock()
			}
		}
		if repeated := c.have(sent); repeated > 0 {
			t.Errorf("%d of %d came more than once", repeated, sent)
		}
	})
}

// A node that takes nothing, and is not lost, holds up its own members only.
func TestANodeThatDoesNotAnswerHoldsUpNoOther(t *testing.T) {
	n := newCluster(t, 3)
	c := newCrowd(t)
	for i, n := range n {
		c.member(n, fmt.Sprint("m", i), 2, "$share/g/slow")
	}
	slow := n[(dealerOf(t, n...)+1)%3]
	slow.b.hands.taking.Lock()
	release := sync.OnceFunc(slow.b.hands.taking.Unlock)
	defer release()
	const count = 2000
	slow.stream("slow", 2, 0, count)
	eventually(t, "the others go on", func() bool { return c.count() >= count-memberWindow })
	if got := c.count(); got == count {
		t.Error("the node has taken something")
	}
	release()
	if repeated := c.have(count); repeated > 0 {
		t.Errorf("%d came more than once", repeated)
	}
}

// With nobody connected the messages stay in the log, and come in order.
func TestASharedSubscriptionWaitsForItsMembers(t *testing.T) {
	places(t, func(t *testing.T, n [3]*node) {
		o := mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "c"}
		d, _ := n[0].connect(o)
		d.subscribe(1, "$share/g/wait")
		d.disconnect()
		const count = 3 * mostPending
		n[1].stream("wait", 1, 0, count)
		n[0].b.trim(t.Context())
		d, _ = n[2].connect(o)
		for i := range count {
			m := d.publish()
			if string(m.Payload) != strconv.Itoa(i) {
				t.Fatalf("message %d is %s", i, m.Payload)
			}
			d.sendAck(mqtt.TypePuback, m.PacketID)
		}
		eventually(t, "the log is empty", func() bool {
			for _, n := range n {
				n.b.flush()
				n.b.saveShares()
				n.b.trim(t.Context())
			}
			first, last, _ := n[0].store.Bounds(t.Context(), 0)
			return first > last
		})
	})
}
