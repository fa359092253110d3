package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mqttlb/mqttlb/pkg/affinity"
	"github.com/mqttlb/mqttlb/pkg/backend"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
	"github.com/mqttlb/mqttlb/pkg/pp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is far above what anything here takes; it only ends a hung test.
const patience = 20 * time.Second

// rig is a server on a real socket, in front of small working backends.
type rig struct {
	t        *testing.T
	server   *Server
	pool     *Pool
	backends []*backend.Backend
	addr     string
	log      *logBuffer
	ends     chan End
	base     []int64 // what each backend counts without our clients

	mu         sync.Mutex
	failed     []string // backends reported by DialFailed
	early      []string // "backend/client id" reported by ClosedEarly
	answered   []string // backends reported by Answered
	handshakes []Handshake
	opened     []Start
}

// setup changes the options of a rig before it starts.
type setup func(*Options, *PoolOptions)

// newRig starts a server whose pool has the backends at these addresses, in
// this order on the walk of every key: the balance is least connections and
// each backend carries more than the one before it.
func newRig(t *testing.T, addresses []string, setups ...setup) *rig {
	t.Helper()
	r := build(t, addresses, setups...)
	l := mustListen(t)
	r.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(context.Background(), l) }()
	t.Cleanup(func() {
		r.close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return r
}

// build makes a rig that has no socket: its clients come through pipe. It has
// to be closed.
func build(t *testing.T, addresses []string, setups ...setup) *rig {
	t.Helper()
	r := &rig{t: t, log: &logBuffer{}, ends: make(chan End, 4096)}
	for i, a := range addresses {
		b := backend.New(backend.Spec{Pool: "pool", Name: "b" + strconv.Itoa(i+1), Address: a})
		b.SetHealth(true, "")
		for range i * 1000 {
			b.Acquire()
		}
		r.backends = append(r.backends, b)
	}
	table, err := affinity.Build(r.backends, affinity.Options{Balance: affinity.LeastConnections})
	if err != nil {
		t.Fatal(err)
	}
	po := PoolOptions{
		Table: table, HashKeys: []HashKey{HashClientID},
		Dial: func(ctx context.Context, b *backend.Backend) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", b.Address)
		},
		DialTimeout: patience, ConnackTimeout: patience, Attempts: 5,
		Reports: Reports{
			DialFailed: func(b *backend.Backend, _ error) { r.note(&r.failed, b.Name) },
			ClosedEarly: func(b *backend.Backend, id []byte) {
				r.note(&r.early, b.Name+"/"+string(id))
			},
			Answered: func(b *backend.Backend) { r.note(&r.answered, b.Name) },
		},
	}
	o := Options{
		Name: "test", ConnectTimeout: patience, Observer: observer{r},
		Log: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, s := range setups {
		s(&o, &po)
	}
	r.pool = NewPool("pool", po)
	if o.Pool == nil && o.Routes == nil {
		o.Pool = r.pool
	}
	r.server = New(o)
	for _, b := range r.backends {
		r.base = append(r.base, b.Connections())
	}
	return r
}

// close shuts the server down and looks whether all was given back.
func (r *rig) close() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), shutdownMargin)
	defer cancel()
	_ = r.server.Shutdown(ctx)
	for i, b := range r.backends {
		if n := b.Connections() - r.base[i]; n != 0 {
			r.t.Errorf("backend %s still counts %d connections", b.Name, n)
		}
	}
	if n := r.server.Connections(); n != 0 {
		r.t.Errorf("the server still counts %d connections", n)
	}
}

// pipe connects a client without a socket: each of its writes returns when all
// of it was read, so what is written next is a read of its own. from is the
// address that the server sees.
func (r *rig) pipe(from string) *peer {
	r.t.Helper()
	client, server := duplexPipe()
	r.server.accept(context.Background(), pipeEnd{server, from})
	return newPeer(r.t, client)
}

type pipeEnd struct {
	*duplex
	from string
}

func (p pipeEnd) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(p.from))
}

// duplex is net.Pipe with directions that end one by one.
type duplex struct {
	net.Conn // what is read
	w        net.Conn
}

func duplexPipe() (a, b *duplex) {
	x1, x2 := net.Pipe()
	y1, y2 := net.Pipe()
	return &duplex{x1, y1}, &duplex{y2, x2}
}

func (d *duplex) Write(b []byte) (int, error)        { return d.w.Write(b) }
func (d *duplex) CloseWrite() error                  { return d.w.Close() }
func (d *duplex) Close() error                       { d.w.Close(); return d.Conn.Close() }
func (d *duplex) SetWriteDeadline(t time.Time) error { return d.w.SetWriteDeadline(t) }
func (d *duplex) SetDeadline(t time.Time) error {
	_ = d.w.SetDeadline(t)
	return d.Conn.SetDeadline(t)
}

func (pipeEnd) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1883} }

func (r *rig) note(to *[]string, s string) { noteIn(r, to, s) }

func noteIn[T any](r *rig, to *[]T, v T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*to = append(*to, v)
}

func noted[T any](r *rig, from *[]T) []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(*from)
}

// reported checks what the pool's reports said of its backends.
func (r *rig) reported(failed, early, answered []string) {
	r.t.Helper()
	for _, x := range []struct {
		what      string
		got, want []string
	}{{"DialFailed", noted(r, &r.failed), failed}, {"ClosedEarly", noted(r, &r.early), early}, {"Answered", noted(r, &r.answered), answered}} {
		if !slices.Equal(x.got, x.want) {
			r.t.Errorf("%s told of %q, want %q", x.what, x.got, x.want)
		}
	}
}

// end waits for the next connection to be over.
func (r *rig) end() End {
	r.t.Helper()
	select {
	case e := <-r.ends:
		return e
	case <-time.After(patience):
		r.t.Fatal("no connection ended")
		return End{}
	}
}

// dial connects a client.
func (r *rig) dial() *peer {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	return newPeer(r.t, c)
}

// ended waits for the next connection to be over and checks how it was.
func (r *rig) ended(stage Stage, by Side, why Why) End {
	r.t.Helper()
	e := r.end()
	if e.Stage != stage || e.By != by || e.Why != why {
		r.t.Errorf("ended at %s by %s: %s (%v); want %s, %s, %s", e.Stage, e.By, e.Why, e.Err, stage, by, why)
	}
	return e
}

type observer struct{ *rig }

func (o observer) Handshaken(h Handshake) { noteIn(o.rig, &o.handshakes, h) }
func (o observer) Opened(s Start)         { noteIn(o.rig, &o.opened, s) }
func (o observer) Ended(e End)            { o.ends <- e }

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func mustListen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// eventually waits for what no event tells of.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in %v: %s", patience, what)
		}
	}
}

// unloaded takes off the load that orders the backends of a rig.
func unloaded(_ *Options, po *PoolOptions) {
	for _, b := range po.Table.Backends() {
		for b.Connections() > 0 {
			b.Release()
		}
	}
}

// peer is a connection that a test speaks through, on either side.
type peer struct {
	t testing.TB
	net.Conn
}

func newPeer(t testing.TB, c net.Conn) *peer {
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return &peer{t, c}
}

// overTLS puts TLS on top of a connection.
func (p *peer) overTLS(cfg *tls.Config) *peer {
	p.t.Helper()
	c := tls.Client(p.Conn, cfg)
	if err := c.Handshake(); err != nil {
		p.t.Errorf("handshake: %v", err)
	}
	return &peer{p.t, c}
}

func (p *peer) send(b []byte) {
	p.t.Helper()
	if _, err := p.Write(b); err != nil {
		p.t.Errorf("send: %v", err)
	}
}

// expect reads exactly these bytes.
func (p *peer) expect(want []byte) {
	p.t.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(p, got)
	if err != nil || !bytes.Equal(got, want) {
		p.t.Errorf("got % x (%v), want % x", got[:n], err, want)
	}
}

// rest reads until the other side ends, and says how: nil for FIN.
func (p *peer) rest() ([]byte, error) { return io.ReadAll(p) }

// expectEOF reads nothing and FIN.
func (p *peer) expectEOF() {
	p.t.Helper()
	if b, err := p.rest(); err != nil || len(b) > 0 {
		p.t.Errorf("got % x, %v; want nothing and FIN", b, err)
	}
}

// closeWrite sends FIN, after close_notify under TLS.
func (p *peer) closeWrite() {
	p.t.Helper()
	if t, ok := p.Conn.(*tls.Conn); ok {
		if err := t.CloseWrite(); err != nil {
			p.t.Errorf("close_notify: %v", err)
		}
		p = &peer{p.t, t.NetConn()}
	}
	if err := p.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		p.t.Errorf("close for writing: %v", err)
	}
}

// reset ends the connection by RST.
func (p *peer) reset() {
	c := p.Conn
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	_ = c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

// expectReset reads until the connection breaks, and wants a RST.
func (p *peer) expectReset() {
	p.t.Helper()
	if _, err := p.rest(); !errors.Is(err, syscall.ECONNRESET) {
		p.t.Errorf("ended with %v, want RST", err)
	}
}

// serve runs a backend: each connection is handled by h, one after the other in
// goroutines that the test waits for.
func serve(t testing.TB, h func(*peer)) (address string) {
	t.Helper()
	l := mustListen(t)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(patience))
				h(&peer{t, c})
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return l.Addr().String()
}

// closedPort is an address on which nobody listens.
func closedPort(t testing.TB) string {
	l := mustListen(t)
	defer l.Close()
	return l.Addr().String()
}

// readConnect reads one CONNECT and gives its bytes.
func (p *peer) readConnect() []byte {
	p.t.Helper()
	b := make([]byte, 0, 64)
	for {
		_, n, err := mqtt.ParseConnect(b, 0)
		if !errors.Is(err, mqtt.ErrShort) {
			return b
		}
		have, size := len(b), max(n, len(b)+1)
		b = slices.Grow(b, size-have)[:size]
		if k, err := io.ReadFull(p, b[have:]); err != nil {
			return b[:have+k]
		}
	}
}

// broker answers CONNECT with CONNACK 0 and hands the connection on.
func broker(t testing.TB, then func(p *peer, connect []byte)) string {
	return serve(t, func(p *peer) {
		connect := p.readConnect()
		if c, _, err := mqtt.ParseConnect(connect, 0); err == nil {
			p.send(mqtt.AppendConnack(nil, c.Version, mqtt.Success))
			then(p, connect)
		}
	})
}

// echo is a broker that sends back whatever comes behind CONNECT.
func echo(t testing.TB) string {
	return broker(t, func(p *peer, _ []byte) { _, _ = io.Copy(p, struct{ io.Reader }{p}) })
}

func connect311(id string) []byte {
	return mqtt.AppendConnect(nil, mqtt.ConnectOptions{Version: mqtt.V311, ClientID: id, CleanStart: true, KeepAlive: 60})
}

func connect5(id string) []byte {
	return mqtt.AppendConnect(nil, mqtt.ConnectOptions{Version: mqtt.V5, ClientID: id, CleanStart: true, KeepAlive: 60})
}

var connack311 = []byte{0x20, 2, 0, 0}

// readLine reads up to LF, a version 1 header for one.
func readLine(p *peer) (string, error) {
	var b []byte
	for one := make([]byte, 1); len(b) == 0 || b[len(b)-1] != '\n'; {
		if _, err := io.ReadFull(p, one); err != nil {
			return string(b), err
		}
		b = append(b, one[0])
	}
	return string(b), nil
}

func portOf(a net.Addr) int { return a.(*net.TCPAddr).Port }

// sendHeader makes the pool send PROXY headers.
func sendHeader(v HeaderVersion, t TLVs) setup {
	return func(_ *Options, po *PoolOptions) { po.Header, po.TLVs = v, t }
}

// delayDial tells of each dial and lets it go on when proceed says so.
func delayDial(dialled chan<- bool, proceed <-chan bool) setup {
	return func(_ *Options, po *PoolOptions) {
		dial := po.Dial
		po.Dial = func(ctx context.Context, b *backend.Backend) (net.Conn, error) {
			dialled <- true
			<-proceed
			return dial(ctx, b)
		}
	}
}

// readHeader takes exactly one PROXY header off the stream.
func (p *peer) readHeader() pp.Header {
	p.t.Helper()
	var b []byte
	for one := make([]byte, 1); ; {
		if _, err := io.ReadFull(p, one); err != nil {
			p.t.Errorf("read header: %v after % x", err, b)
			return pp.Header{}
		}
		b = append(b, one[0])
		h, _, err := pp.Parse(b, 0)
		if errors.Is(err, pp.ErrShort) {
			continue
		}
		if err != nil {
			p.t.Errorf("header % x: %v", b, err)
		}
		return h
	}
}

// overTLSServer does the server's part of TLS.
func (p *peer) overTLSServer() *peer {
	p.t.Helper()
	c := tls.Server(p.Conn, serverTLS())
	if err := c.Handshake(); err != nil {
		p.t.Errorf("handshake: %v", err)
	}
	return &peer{p.t, c}
}

// above gives the lines of a level above this one.
func (l *logBuffer) above(level string) (lines []string) {
	for line := range strings.Lines(l.String()) {
		if !strings.Contains(line, "level="+level) {
			lines = append(lines, line)
		}
	}
	return lines
}

// overPipes has the pool dial a backend without a socket, which h serves.
func overPipes(t *testing.T, h func(*peer)) setup {
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	return func(_ *Options, po *PoolOptions) {
		po.Dial = func(context.Context, *backend.Backend) (net.Conn, error) {
			ours, theirs := duplexPipe()
			all.Go(func() {
				defer theirs.Close()
				h(&peer{t, theirs})
			})
			return ours, nil
		}
	}
}
