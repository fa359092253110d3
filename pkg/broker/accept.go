package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/mqttlb/mqttlb/pkg/listen"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// Listener is what is said of one address that clients connect to.
type Listener struct {
	Name string
	// TLS is set where connections are TLS.
	TLS *tls.Config
	// Accept, if set, makes every connection begin with a PROXY header.
	Accept *listen.ProxyPolicy
	// MaxConnections bounds the connections of this listener, those being set up
	// included; zero is no bound. Some more are let in far enough to be told so.
	MaxConnections int
	// PerAddress bounds what clients of one address can take.
	PerAddress listen.Limit
	// ConnectTimeout replaces the broker's own, if it is not zero.
	ConnectTimeout time.Duration
}

// server is a Listener at work.
type server struct {
	Listener
	b         *Broker
	addresses *listen.Limiter
	slots     listen.Slots
}

// Serve accepts clients on l until ctx ends or Shutdown is called, either of
// which closes l and gives nil.
func (b *Broker) Serve(ctx context.Context, l net.Listener, o Listener) error {
	if o.TLS != nil {
		o.TLS = listen.ServerTLS(o.TLS)
	}
	if o.ConnectTimeout == 0 {
		o.ConnectTimeout = b.o.ConnectTimeout
	}
	s := &server{
		Listener: o, b: b,
		addresses: listen.NewLimiter(o.PerAddress),
		slots:     listen.Slots{Limit: o.MaxConnections},
	}
	b.mu.Lock()
	if b.draining {
		b.mu.Unlock()
		return l.Close()
	}
	b.sockets[l] = struct{}{}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		delete(b.sockets, l)
		b.mu.Unlock()
	}()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	return listen.Accept(l, b.log, s.accept)
}

func (s *server) accept(c net.Conn) {
	l := &link{b: s.b, listener: s.Name, socket: c, conn: listen.NewConn(c), accepted: time.Now()}
	entry := s.slots.Take()
	if entry == listen.FarTooMany {
		c.Close()
		l.end.at(StageAdmit)
		l.finish(errListenerFull)
		return
	}
	if !s.b.enter(l) {
		s.slots.Give()
		c.Close()
		return
	}
	l.end.release = s.slots.Give
	go func() {
		defer s.b.leave(l)
		err := s.greet(l, entry == listen.TooMany)
		if err == nil {
			err = l.read()
			l.over(err)
		}
		l.finish(err)
	}()
}

func (b *Broker) enter(l *link) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.draining {
		return false
	}
	b.links[l] = struct{}{}
	b.serving.Add(1)
	return true
}

// stay makes Shutdown wait for who calls serving.Done later; false: it has begun.
func (b *Broker) stay() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.draining {
		return false
	}
	b.serving.Add(1)
	return true
}

func (b *Broker) leave(l *link) {
	b.mu.Lock()
	delete(b.links, l)
	b.mu.Unlock()
	b.serving.Done()
}

// greet brings a connection to the point where its session is open: PROXY
// header, TLS, CONNECT, all under one budget. over: it is more than the listener
// takes, and was let in to be told so.
func (s *server) greet(l *link, over bool) error {
	_ = l.conn.Conn.SetDeadline(l.accepted.Add(s.ConnectTimeout))
	if s.Accept != nil {
		if err := l.conn.ReadHeader(s.Accept); err != nil {
			l.end.at(StageHeader)
			l.conn.Close()
			return err
		}
	}
	entry := s.addresses.Enter(l.conn.Source.Addr(), time.Now())
	if entry.Away() {
		l.end.at(StageAdmit)
		l.conn.Close()
		return errTooMany
	}
	source := l.conn.Source.Addr()
	l.end.release = func() {
		s.addresses.Leave(source)
		s.slots.Give()
	}
	if s.TLS != nil {
		if err := l.conn.Handshake(s.TLS); err != nil {
			l.end.at(StageHandshake)
			l.conn.Close()
			return err
		}
	}
	c, err := l.readConnect(int(s.b.o.Limits.MaximumPacketSize))
	if err != nil {
		return err
	}
	_ = l.conn.Conn.SetDeadline(time.Time{})
	switch {
	case over:
		return l.refuse(mqtt.QuotaExceeded, errListenerFull.Error())
	case entry == listen.TooMany:
		return l.refuse(mqtt.QuotaExceeded, errTooMany.Error())
	case entry == listen.TooFast:
		return l.refuse(mqtt.ConnectionRateExceeded, "too many new connections from this address")
	case s.b.drains():
		return l.refuse(mqtt.ServerUnavailable, "this node lets its clients go")
	}
	return l.connect(c)
}

// Ends of connections that are far over a bound.
var (
	errListenerFull = errors.New("the listener's connection limit is reached")
	errTooMany      = errors.New("too many connections from this address")
)

// readConnect reads the CONNECT, and answers one that is not acceptable. What it
// gives aliases the connection's buffer.
func (l *link) readConnect(max int) (*mqtt.Connect, error) {
	var c mqtt.Connect
	var size int
	err := l.conn.ReadWhole(max, mqtt.ErrShort, func(b []byte) (int, error) {
		var err error
		c, size, err = mqtt.ParseConnect(b, max)
		return size, err
	})
	if err == nil {
		l.version = c.Version
		l.conn.Consume(size)
		return &c, nil
	}
	l.end.at(StageConnect)
	if bad, ok := errors.AsType[*mqtt.ConnectError](err); ok {
		l.version = bad.Version
		return nil, l.refuse(bad.Reason, bad.Detail)
	}
	l.conn.Close()
	return nil, err
}

// refuse answers CONNECT with a reason, where the version has a word for it, and
// closes.
func (l *link) refuse(reason mqtt.Reason, say string) error {
	l.end.answer = reason
	if l.end.Stage == "" {
		l.end.at(StageAdmit)
	}
	answer := mqtt.AppendConnackReason(nil, l.version, reason, say)
	if len(answer) == 0 {
		l.conn.Close()
		return fmt.Errorf("%s: %s", reason, say)
	}
	_ = l.conn.Conn.SetDeadline(time.Now().Add(farewell))
	_, _ = l.conn.Conn.Write(answer)
	l.conn.CloseLingering(farewell, farewellBytes)
	return fmt.Errorf("%s: %s", reason, say)
}

// isHangUp says that the other side just left, which is normal life.
func isHangUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}
