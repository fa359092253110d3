package health

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// Reason is why a check failed: one word of a closed list, fit for a metric's
// label and a log's field.
type Reason string

const (
	Refused           Reason = "refused"            // nobody listens on the port
	Unreachable       Reason = "unreachable"        // no route, or a filter forbids it
	Unresolved        Reason = "unresolved"         // the host name has no address
	Timeout           Reason = "timeout"            // no answer in time
	Reset             Reason = "reset"              // the backend reset the connection
	Closed            Reason = "closed"             // the backend closed before it answered
	ClosedEarly       Reason = "closed_early"       // passive: see Monitor.ClosedEarly
	TLS               Reason = "tls"                // handshake or certificate
	Protocol          Reason = "protocol"           // the answer is not what MQTT allows here
	ServerUnavailable Reason = "server_unavailable" // CONNACK 0x03, or 0x88 of MQTT 5
	ConnackRefused    Reason = "connack_refused"    // CONNACK with another code that counts as down
	SubscribeRefused  Reason = "subscribe_refused"  // SUBACK 0x80
	Local             Reason = "local"              // trouble on our side; never counted against the backend
	Other             Reason = "other"
)

// Reasons is the closed list, in a fixed order, for metrics that want each label
// present from the start.
func Reasons() []Reason {
	return []Reason{
		Refused, Unreachable, Unresolved, Timeout, Reset, Closed, ClosedEarly, TLS,
		Protocol, ServerUnavailable, ConnackRefused, SubscribeRefused, Local, Other,
	}
}

// Error is a failed check: the Reason to count by, and the error that tells people
// what was being done.
type Error struct {
	Reason Reason
	Err    error
}

func (e *Error) Error() string { return string(e.Reason) + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// errnos are the errors of connect, read and write that have a Reason of their
// own. ETIMEDOUT is not here: it is found by its Timeout method.
var errnos = map[syscall.Errno]Reason{
	syscall.ECONNREFUSED: Refused,

	syscall.EHOSTUNREACH: Unreachable,
	syscall.ENETUNREACH:  Unreachable,
	syscall.EHOSTDOWN:    Unreachable,
	syscall.ENETDOWN:     Unreachable,
	syscall.EACCES:       Unreachable, // a filter of this host forbids the way there
	syscall.EPERM:        Unreachable,

	syscall.ECONNRESET:   Reset,
	syscall.ECONNABORTED: Reset,
	syscall.EPIPE:        Reset,

	syscall.EMFILE:        Local,
	syscall.ENFILE:        Local,
	syscall.EADDRNOTAVAIL: Local, // connect: no local port is left
	syscall.ENOBUFS:       Local,
	syscall.ENOMEM:        Local,
}

// ReasonOf sorts any error of a dial or a check into the closed list. It gives ""
// for nil.
func ReasonOf(err error) Reason {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	// Before the timeouts: a name server that is silent is a name that did not resolve.
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return Unresolved
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		if reason, ok := errnos[errno]; ok {
			return reason
		}
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return Timeout
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return Timeout
	}
	if isTLS(err) {
		return TLS
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return Closed
	}
	return Other
}

// isTLS knows what crypto/tls marks as its own. Much of what it says is plain text, so
// whoever runs a handshake wraps the rest in an Error.
func isTLS(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	// An alert, sent or received.
	e, ok := errors.AsType[*net.OpError](err)
	return ok && (e.Op == "remote error" || e.Op == "local error")
}
