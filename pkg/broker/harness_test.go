package broker

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// node is a broker on a socket, on a store that tests can slow down.
type node struct {
	t      *testing.T
	b      *Broker
	store  *cluster.Memory
	addr   string
	listen Listener
	stop   func()
	crash  func() // as if the process were killed
	ends   chan End
	dead   *atomic.Bool // its process

	// Of a node of a cluster:
	cluster *cluster.MemoryCluster
	name    string
	peers   *cluster.MemoryPeers
}

// newCluster gives nodes that share one store.
func newCluster(t *testing.T, size int, setups ...func(*Options)) []*node {
	t.Helper()
	c := cluster.NewMemoryCluster(cluster.MemoryOptions{})
	t.Cleanup(func() { c.Close() })
	nodes := make([]*node, size)
	for i := range nodes {
		n := &node{t: t, store: c.Memory, cluster: c, name: string(rune('a' + i))}
		nodes[i] = n
		n.join(size, setups...)
		t.Cleanup(func() { n.stop() })
	}
	for _, n := range nodes {
		n.sees(size)
	}
	return nodes
}

// sees waits until the node sees so many nodes.
func (n *node) sees(count int) {
	n.t.Helper()
	eventually(n.t, n.name+" sees the others", func() bool { return len(n.b.view.Load().Nodes) == count })
}

// join starts a node of a cluster; after stop or crash it is a restart.
func (n *node) join(size int, setups ...func(*Options)) {
	n.t.Helper()
	peers := n.cluster.Join(n.name, size)
	n.peers = peers
	n.start(append([]func(*Options){func(o *Options) { o.Peers, o.AnnounceNode = peers, true }}, setups...)...)
	stop, crash := n.stop, n.crash
	leave := sync.OnceFunc(func() { n.cluster.Leave(peers) })
	n.stop = func() {
		leave()
		stop()
	}
	n.crash = func() { // nothing of its end is heard by others
		n.dead.Store(true)
		leave()
		crash()
	}
}

// places are the three nodes that a test's clients connect to: one thrice, or
// three of a cluster.
func places(t *testing.T, f func(*testing.T, [3]*node)) {
	t.Run("one node", func(t *testing.T) {
		n := newNode(t)
		f(t, [3]*node{n, n, n})
	})
	t.Run("three nodes", func(t *testing.T) { f(t, [3]*node(newCluster(t, 3))) })
}

// ends is an Observer that keeps what happened.
type ends chan End

func (ends) Appended(time.Duration, error) {}
func (c ends) Ended(e End) {
	select {
	case c <- e:
	default:
	}
}

// mortal is a store that a broker loses when it dies: from then on nothing that
// it does has any effect.
type mortal struct {
	cluster.Store
	dead *atomic.Bool
}

func (m mortal) Append(msg *cluster.Message, done func(cluster.Pos, error)) {
	if m.dead.Load() {
		go done(cluster.Pos{}, cluster.ErrClosed)
		return
	}
	m.Store.Append(msg, done)
}

func (m mortal) SetRetained(msg *cluster.Message, done func(cluster.Revision, error)) {
	if m.dead.Load() {
		go done(cluster.None, cluster.ErrClosed)
		return
	}
	m.Store.SetRetained(msg, done)
}

func (m mortal) Trim(ctx context.Context, shard int, seq uint64) error {
	if m.dead.Load() {
		return cluster.ErrClosed
	}
	return m.Store.Trim(ctx, shard, seq)
}

func (m mortal) Records(b cluster.Bucket) cluster.Records {
	return mortalRecords{m.Store.Records(b), m.dead}
}

type mortalRecords struct {
	cluster.Records
	dead *atomic.Bool
}

func (m mortalRecords) Put(key string, value []byte, expected cluster.Revision, done func(cluster.Revision, error)) {
	if m.dead.Load() {
		go done(cluster.None, cluster.ErrClosed)
		return
	}
	m.Records.Put(key, value, expected, done)
}

func (m mortalRecords) Delete(key string, expected cluster.Revision, done func(error)) {
	if m.dead.Load() {
		go done(cluster.ErrClosed)
		return
	}
	m.Records.Delete(key, expected, done)
}

func newNode(t *testing.T, setups ...func(*Options)) *node {
	t.Helper()
	n := &node{t: t, store: cluster.NewMemory(cluster.MemoryOptions{})}
	t.Cleanup(func() { n.store.Close() })
	n.start(setups...)
	t.Cleanup(func() { n.stop() })
	return n
}

// start begins a broker on the node's store; after stop it is a restart.
func (n *node) start(setups ...func(*Options)) {
	n.t.Helper()
	dead := new(atomic.Bool)
	n.dead = dead
	n.ends = make(chan End, 1000)
	o := Options{Store: mortal{n.store, dead}, Limits: DefaultLimits(), Observer: ends(n.ends), Checkpoint: 20 * time.Millisecond, Log: slog.New(slog.NewTextHandler(logTo{n.t, dead}, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	for _, s := range setups {
		s(&o)
	}
	n.b = New(o)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.b.Start(ctx); err != nil {
		n.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		n.t.Fatal(err)
	}
	n.addr = l.Addr().String()
	served := make(chan error, 1)
	n.listen.Name = "test"
	b := n.b
	go func() { served <- b.Serve(context.Background(), l, n.listen) }()
	stopped := false
	n.crash = func() { n.kill(b, dead) }
	n.stop = func() {
		if stopped {
			return
		}
		stopped = true
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := b.Shutdown(ctx); err != nil {
			n.t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != nil {
			n.t.Errorf("serve: %v", err)
		}
	}
}

// kill makes crash of what stop does: the store is out of reach first, then the
// sockets are cut.
func (n *node) kill(b *Broker, dead *atomic.Bool) {
	dead.Store(true)
	b.mu.Lock()
	for l := range b.links {
		l.socket.Close()
	}
	b.mu.Unlock()
	n.stop()
}

type logTo struct {
	t    *testing.T
	dead *atomic.Bool
}

func (l logTo) Write(p []byte) (int, error) {
	if !l.dead.Load() {
		l.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

// device is a client that speaks bytes.
type device struct {
	t *testing.T
	net.Conn
	v   mqtt.Version
	buf []byte
}

func (n *node) dial(v mqtt.Version) *device {
	n.t.Helper()
	c, err := net.Dial("tcp", n.addr)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return &device{t: n.t, Conn: c, v: v}
}

// connect connects a device and gives its CONNACK.
func (n *node) connect(o mqtt.ConnectOptions) (*device, mqtt.Connack) {
	n.t.Helper()
	d := n.dial(o.Version)
	d.send(mqtt.AppendConnect(nil, o))
	ack, _, err := mqtt.ParseConnack(d.next(mqtt.TypeConnack), o.Version)
	if err != nil {
		n.t.Fatal(err)
	}
	return d, ack
}

func (d *device) send(b []byte) {
	d.t.Helper()
	if _, err := d.Write(b); err != nil {
		d.t.Errorf("send: %v", err)
	}
}

// any reads the next packet, whatever it is; nil at the end of the connection.
func (d *device) any() (mqtt.PacketType, []byte) {
	for {
		if t, _, remaining, n, err := mqtt.ParseFixedHeader(d.buf); err == nil && len(d.buf) >= n+remaining {
			p := d.buf[: n+remaining : n+remaining]
			d.buf = d.buf[n+remaining:]
			return t, p
		}
		more := make([]byte, 4096)
		n, err := d.Read(more)
		if err != nil {
			return 0, nil
		}
		d.buf = append(d.buf, more[:n]...)
	}
}

// next reads a packet that has to be of this type.
func (d *device) next(want mqtt.PacketType) []byte {
	d.t.Helper()
	t, p := d.any()
	if t != want {
		d.t.Fatalf("got %s % x, want %s", t, p, want)
	}
	return p
}

func (d *device) publish() mqtt.Publish {
	d.t.Helper()
	p, _, err := mqtt.ParsePublish(d.next(mqtt.TypePublish), d.v)
	if err != nil {
		d.t.Fatal(err)
	}
	return p
}

func (d *device) ack(t mqtt.PacketType) mqtt.Ack {
	d.t.Helper()
	a, _, err := mqtt.ParseAck(d.next(t), d.v)
	if err != nil {
		d.t.Fatal(err)
	}
	return a
}

func (d *device) sendAck(t mqtt.PacketType, id uint16) {
	d.t.Helper()
	d.send(mqtt.AppendAck(nil, d.v, mqtt.Ack{Type: t, PacketID: id}))
}

func (d *device) subscribe(qos byte, filters ...string) {
	d.t.Helper()
	s := mqtt.Subscribe{PacketID: 1}
	for _, f := range filters {
		s.Subscriptions = s.Subscriptions.Append(mqtt.Subscription{Filter: []byte(f), QoS: qos})
	}
	d.send(mqtt.AppendSubscribe(nil, d.v, s))
	a, _, err := mqtt.ParseSuback(d.next(mqtt.TypeSuback), d.v)
	if err != nil {
		d.t.Fatal(err)
	}
	for i, c := range a.Codes {
		if c != qos {
			d.t.Errorf("filter %s: code 0x%02x", filters[i], c)
		}
	}
}

func (d *device) sendPublish(qos byte, id uint16, topic, payload string) {
	d.t.Helper()
	d.send(mqtt.AppendPublish(nil, d.v, mqtt.Publish{QoS: qos, PacketID: id, Topic: []byte(topic), Payload: []byte(payload)}))
}

// quiet says that nothing is on its way to the client, as far as the broker
// knows by now.
func (d *device) quiet() {
	d.t.Helper()
	d.send(mqtt.AppendPingreq(nil))
	d.next(mqtt.TypePingresp)
}

// gone waits for the end of the connection, closes it and gives the reason of the
// DISCONNECT before it; Success for none.
func (d *device) gone() (told mqtt.Reason) {
	d.t.Helper()
	for {
		t, p := d.any()
		switch t {
		case 0:
			d.Close()
			return told
		case mqtt.TypeDisconnect:
			m, _, err := mqtt.ParseDisconnect(p, d.v, mqtt.FromServer)
			if err != nil {
				d.t.Errorf("DISCONNECT: %v", err)
			}
			told = m.Reason
		}
	}
}

// eventually waits for what is about to become true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// records are how many a bucket has, but for that of shared subscriptions.
func (n *node) records(b cluster.Bucket) (count int) {
	ctx, cancel := context.WithCancel(context.Background())
	_ = n.store.Records(b).Watch(ctx, func(r cluster.Record) {
		if !r.Gone {
			count++
		}
	}, cancel)
	return count
}

// expiring are CONNECT properties.
func expiring(seconds uint32) mqtt.Properties {
	return mqtt.Properties(nil).AppendUint(mqtt.PropSessionExpiryInterval, seconds)
}

func (d *device) disconnect() {
	d.t.Helper()
	d.send(mqtt.AppendDisconnect(nil, d.v, mqtt.Success))
	d.gone()
}
