package broker

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// Stage is how far a connection came, in mqttlb's words.
type Stage string

const (
	StageHeader    Stage = "proxy_header"
	StageHandshake Stage = "handshake"
	StageConnect   Stage = "connect"
	StageAdmit     Stage = "admit"
	StageSession   Stage = "session"
)

// Side is who ended a connection.
type Side string

const (
	ByClient Side = "client"
	ByBroker Side = "broker"
)

// Why is the reason of an end: one of this closed list.
type Why string

const (
	Disconnected Why = "disconnect" // the client's DISCONNECT
	Closed       Why = "closed"     // FIN without one
	Reset        Why = "reset"      // RST
	Silent       Why = "keep_alive" // one and a half times the Keep Alive
	Timeout      Why = "timeout"    // the budget up to CONNECT
	NoBytes      Why = "no_bytes"   // left before its first byte
	BadPacket    Why = "bad_packet" // the protocol was broken; Answer says how
	Refused      Why = "refused"    // CONNECT was answered with a reason
	TakenOver    Why = "taken_over" // by another connection of the same Client Identifier
	TLSFailed    Why = "tls_failed" // also a bad client certificate
	BadHeader    Why = "bad_header" // no PROXY header, a wrong one, or from someone not trusted
	SentAway     Why = "sent_away"  // shutdown; a store that does not answer or is full, a session without room (3.x)
	Failed       Why = "error"      // anything else; the log has it
)

// End is the one record of a finished connection.
type End struct {
	Listener string
	ClientID string
	Version  mqtt.Version
	Stage    Stage
	By       Side
	Why      Why
	Answer   mqtt.Reason // what a 5.0 client was told; Success for nothing
	Err      error
	Duration time.Duration
	In, Out  uint64 // packets

	opened  bool
	answer  mqtt.Reason
	why     Why
	release func() // gives back what limits have counted
}

func (e *End) at(s Stage) { e.Stage = s }

// over ends the connection's hold on its session after the reader has stopped.
func (l *link) over(err error) {
	cl := l.cl
	cl.mu.Lock()
	defer cl.mu.Unlock()
	var bad *mqtt.PacketError
	switch {
	case errors.As(err, &bad):
		l.bye(bad.Reason, BadPacket) // [MQTT-4.13.1-1]
	case errors.Is(err, os.ErrDeadlineExceeded):
		l.bye(mqtt.KeepAliveTimeout, Silent)
	default:
		l.hangUp()
	}
	if cl.link != l {
		return // taken over
	}
	now := time.Now()
	leaving := l.b.leaving()
	if !leaving {
		l.c.Lost(now) // no more than a formality after DISCONNECT
	}
	cl.link = nil
	cl.setOnline(false)
	cl.giveBack(false)
	cl.ses.Unload()
	cl.schedule(now)
	cl.settle()
}

// leaving says that the broker shuts down: its clients' sessions are left as if
// they were connected, and wills are not published.
func (b *Broker) leaving() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.draining
}

// schedule does what an offline session owes by now, and sets a timer for the
// rest; cl.mu is held.
func (cl *client) schedule(now time.Time) {
	if cl.ses == nil || cl.link != nil {
		return
	}
	will, over := cl.ses.Due(now)
	cl.owe(will)
	if over {
		cl.end()
		return
	}
	at := cl.ses.Deadline()
	if at.IsZero() {
		return
	}
	wait := max(time.Until(at), time.Millisecond)
	if cl.timer == nil {
		cl.timer = time.AfterFunc(wait, cl.wake)
		return
	}
	cl.timer.Reset(wait)
}

func (cl *client) wake() {
	if !cl.b.stay() {
		return
	}
	defer cl.b.serving.Done()
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.schedule(time.Now())
}

// finish tells of the end, when all of the connection is done with.
func (l *link) finish(err error) {
	l.conn.Release()
	if l.end.release != nil {
		l.end.release()
	}
	e := l.end
	if l.cl != nil {
		l.cl.mu.Lock()
		e.why, e.answer = l.why, l.told
		l.cl.mu.Unlock()
	}
	e.Listener, e.Version, e.Duration = l.listener, l.version, time.Since(l.accepted)
	e.In, e.Out = l.in.Load(), l.out.Load()
	e.Answer = e.answer
	if e.Stage == "" {
		e.Stage = StageSession
	}
	e.By, e.Why = l.explain(&e, err)
	if e.Why == Failed || e.Why == BadPacket || !e.opened {
		e.Err = err
	}
	l.b.o.Observer.Ended(e)
	l.b.logEnd(e, l.conn.Source.String())
}

func (l *link) explain(e *End, err error) (Side, Why) {
	switch {
	case errors.Is(err, errDisconnected):
		return ByClient, Disconnected
	case e.why == Silent:
		return ByClient, Silent
	case e.why != "":
		return ByBroker, e.why
	case e.Stage == StageAdmit: // also before its first byte
		return ByBroker, Refused
	case l.conn.Silent() && !errors.Is(err, os.ErrDeadlineExceeded):
		return ByClient, NoBytes
	case e.Stage == StageHeader:
		return ByBroker, BadHeader
	case e.Stage == StageHandshake:
		return ByBroker, TLSFailed
	case e.Stage == StageConnect && e.answer != mqtt.Success:
		return ByBroker, BadPacket
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ByClient, Timeout
	case l.b.leaving():
		return ByBroker, SentAway
	case isHangUp(err):
		return ByClient, Closed
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return ByClient, Reset
	default:
		return ByBroker, Failed
	}
}

func (b *Broker) logEnd(e End, client string) {
	level := slog.LevelInfo
	if e.Why == NoBytes {
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{
		slog.String("listener", e.Listener), slog.String("stage", string(e.Stage)),
		slog.String("by", string(e.By)), slog.String("why", string(e.Why)),
		slog.Duration("duration", e.Duration.Round(time.Millisecond)), slog.String("client", client),
		slog.String("client_id", e.ClientID), slog.Uint64("in", e.In), slog.Uint64("out", e.Out),
	}
	if e.Answer != mqtt.Success {
		attrs = append(attrs, slog.String("answer", e.Answer.String()))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("err", e.Err.Error()))
	}
	b.log.LogAttrs(context.Background(), level, "connection ended", attrs...)
}
