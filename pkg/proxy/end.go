package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// Stage is how far a connection came.
type Stage string

const (
	StageAccept    Stage = "accept"
	StageHeader    Stage = "proxy_header"
	StageHandshake Stage = "handshake"
	StageConnect   Stage = "connect" // CONNECT, or the ClientHello of passthrough
	StageAdmit     Stage = "admit"
	StageRoute     Stage = "route"
	StageDial      Stage = "dial"
	StageConnack   Stage = "connack"
	StageRelay     Stage = "relay"
)

// Side is who ended a connection.
type Side string

const (
	ByClient  Side = "client"
	ByBackend Side = "backend"
	ByMqttlb  Side = "mqttlb"
)

// Why is the reason of an end: one of this closed list, which metrics and logs
// share.
type Why string

const (
	Closed             Why = "closed"              // FIN, or close_notify
	Reset              Why = "reset"               // RST
	Timeout            Why = "timeout"             // the budget of its stage ran out
	Vanished           Why = "unresponsive"        // acknowledged nothing for too long
	Idle               Why = "idle"                // the client was silent too long
	HalfClosed         Why = "half_close_timeout"  // one direction over, the other silent
	NoBytes            Why = "no_bytes"            // left before its first byte: a health checker
	UntrustedPeer      Why = "untrusted_peer"      // accept_proxy does not list it
	BadHeader          Why = "bad_proxy_header"    //
	TLSFailed          Why = "tls_failed"          //
	NotTLS             Why = "not_tls"             //
	BadCertificate     Why = "bad_certificate"     // the client's does not verify
	NoCertificate      Why = "client_cert_missing" // the client has none, and must
	NotMQTT            Why = "not_mqtt"            // no CONNECT at all
	Malformed          Why = "malformed"           // 0x81
	ProtocolError      Why = "protocol_error"      // 0x82
	UnsupportedVersion Why = "unsupported_version" // 0x84
	IdentifierRejected Why = "identifier_rejected" // 0x85
	TooLarge           Why = "too_large"           // 0x95
	Limit              Why = "limit"               // listener's limits.connections
	AddressLimit       Why = "address_limit"       // limits.per_ip.connections
	AddressRate        Why = "address_rate"        // limits.per_ip.rate
	NoRoute            Why = "no_route"            // no route matches and there is no default pool
	NoBackend          Why = "no_backend"          // none of the pool is up
	BackendsFull       Why = "backends_full"       // all that are up hold max_connections
	Unreachable        Why = "unreachable"         // each backend tried could not be reached
	NoResources        Why = "no_resources"        // we lack descriptors, local ports or buffers for a dial
	ClosedEarly        Why = "closed_early"        // the backend closed before its first byte, twice
	NoConnack          Why = "connack_timeout"     //
	BadConnack         Why = "bad_connack"         // the backend's first packet is no answer to CONNECT
	Refused            Why = "refused"             // the backend's CONNACK says no
	MarkedDown         Why = "marked_down"         // on_marked_down: close
	ShuttingDown       Why = "shutdown"            //
	Failed             Why = "error"               // anything else; the log has it
)

// Start is a connection whose way to its backend is open.
type Start struct {
	ID       uint64
	Listener string
	Pool     string
	Backend  string
	Attempt  int // 1 for the first backend tried
	// Peer is the socket's address, Source the client's as a trusted PROXY
	// header says; they are the same without one.
	Peer, Source netip.AddrPort
	ClientID     string
	Version      mqtt.Version
	TLSVersion   uint16 // 0 without TLS of ours
	Resumed      bool
	SNI          string
	CertCN       string // common name of the client certificate
	SetUp        time.Duration
}

// End is the one record of a finished connection.
type End struct {
	Start
	Stage                   Stage
	By                      Side
	Why                     Why
	Answer                  mqtt.Reason // what a refused client was told; Success when nothing
	Err                     error
	Duration                time.Duration
	FromClient, FromBackend uint64 // bytes; neither PROXY headers nor a TLS handshake of ours are counted
	Opened                  bool   // Opened was observed
}

// Handshake is a TLS handshake that is over, well or not.
type Handshake struct {
	Listener string
	Resumed  bool
	Took     time.Duration
	Failure  Why // empty when it went well
}

// Observer is told of connections as they go. Its methods are called from the
// connections' own goroutines and must not block.
type Observer interface {
	Handshaken(Handshake)
	Opened(Start)
	Ended(End)
}

type noObserver struct{}

func (noObserver) Handshaken(Handshake) {}
func (noObserver) Opened(Start)         {}
func (noObserver) Ended(End)            {}

// failure is why a step of the set-up, or the relay, ended a connection.
type failure struct {
	stage  Stage
	by     Side
	why    Why
	err    error
	answer mqtt.Reason  // what to tell the client; Success for nothing
	in     mqtt.Version // the version to say it in
	say    string       // the Reason String for 5.0
	most   uint32       // the client's Maximum Packet Size; 0 for none
	pass   []byte       // the backend's own refusal, to be handed on as it is
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("%s: %s", f.stage, f.why)
	}
	return fmt.Sprintf("%s: %s: %v", f.stage, f.why, f.err)
}

func (f *failure) Unwrap() error { return f.err }

// whyOf names what an error of reading or writing says of the peer.
func whyOf(err error) Why {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Closed
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Timeout
	case errors.Is(err, syscall.ETIMEDOUT), errors.Is(err, syscall.EHOSTUNREACH):
		return Vanished
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return Reset
	default:
		return Failed
	}
}

// end writes the one log line and tells the observer.
func (s *session) end(f *failure) {
	e := End{
		Start:       s.start,
		Stage:       f.stage,
		By:          f.by,
		Why:         f.why,
		Answer:      f.answer,
		Err:         f.err,
		Duration:    time.Since(s.accepted),
		FromClient:  s.fromClient.Load(),
		FromBackend: s.fromBackend.Load(),
		Opened:      s.opened,
	}
	e.Peer, e.Source = s.client.Peer, s.client.Source
	s.server.logEnd(e)
	s.server.opts.Observer.Ended(e)
}

// logEnd writes one line for a connection that was carried, and a throttled one
// for each kind of refusal; what says nothing is not worth a line.
func (s *Server) logEnd(e End) {
	switch {
	case e.Why == NoBytes:
		s.writeEnd(slog.LevelDebug, "connection ended", e, 0)
	case e.Opened:
		s.writeEnd(slog.LevelInfo, "connection ended", e, 0)
	default:
		if repeats, ok := s.throttle.allow(e); ok {
			s.writeRefusal(e, repeats)
			return
		}
		s.writeEnd(slog.LevelDebug, "connection refused", e, 0)
	}
}

// writeRefusal writes the line that stands for as many refusals more as repeats
// says.
func (s *Server) writeRefusal(e End, repeats int) {
	level := slog.LevelInfo
	if e.Why == NoResources {
		level = slog.LevelWarn // somebody has to raise a limit
	}
	s.writeEnd(level, "connection refused", e, repeats)
}

func (s *Server) writeEnd(level slog.Level, message string, e End, repeats int) {
	if !s.log.Enabled(context.Background(), level) {
		return
	}
	attrs := endAttrs(e)
	if repeats > 0 {
		attrs = append(attrs, slog.Int("repeats", repeats))
	}
	s.log.LogAttrs(context.Background(), level, message, attrs...)
}

func endAttrs(e End) []slog.Attr {
	attrs := []slog.Attr{
		slog.String("conn", connID(e.ID)),
		slog.String("stage", string(e.Stage)),
		slog.String("by", string(e.By)),
		slog.String("why", string(e.Why)),
		slog.Duration("duration", e.Duration.Round(time.Millisecond)),
		slog.String("client", e.Source.String()),
	}
	if e.Peer != e.Source {
		attrs = append(attrs, slog.String("peer", e.Peer.String()))
	}
	if e.ClientID != "" || e.Version != 0 && e.Stage != StageConnect { // an empty one is one, too
		attrs = append(attrs, slog.String("client_id", e.ClientID))
	}
	if e.Version != 0 {
		attrs = append(attrs, slog.String("mqtt", e.Version.String()))
	}
	if e.Backend != "" {
		attrs = append(attrs, slog.String("pool", e.Pool), slog.String("backend", e.Backend), slog.Int("attempt", e.Attempt))
	}
	if e.TLSVersion != 0 {
		attrs = append(attrs, slog.String("tls", tls.VersionName(e.TLSVersion)))
	}
	if e.SNI != "" {
		attrs = append(attrs, slog.String("sni", e.SNI))
	}
	if e.CertCN != "" {
		attrs = append(attrs, slog.String("cert_cn", e.CertCN))
	}
	attrs = append(attrs, slog.Uint64("from_client", e.FromClient), slog.Uint64("from_backend", e.FromBackend))
	if e.Answer != mqtt.Success {
		attrs = append(attrs, slog.String("answer", e.Answer.String()))
	}
	if e.Err != nil && !errors.Is(e.Err, io.EOF) {
		attrs = append(attrs, slog.String("err", e.Err.Error()))
	}
	return attrs
}

// connID is how logs and the UNIQUE_ID TLV write a connection's number.
func connID(id uint64) string { return fmt.Sprintf("%016x", id) }
