package listen

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"
)

// Pauses of the accept loop after an error that may pass, such as running out
// of descriptors: they double from the first to the last, as net/http does.
const (
	firstAcceptPause = 5 * time.Millisecond
	lastAcceptPause  = time.Second
)

// acceptWarnPeriod is how often the accept loop warns at most.
const acceptWarnPeriod = 10 * time.Second

// Listen opens a TCP listener on address (host:port). Accepted connections
// inherit keep-alive and TCP_USER_TIMEOUT from it; see socket options.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	lc := net.ListenConfig{
		Control: controlListener,
		// The listening socket's options are inherited: do not spend four
		// system calls a connection on setting them again.
		KeepAliveConfig: net.KeepAliveConfig{Enable: inheritedKeepAlive == 0},
		KeepAlive:       inheritedKeepAlive,
	}
	return lc.Listen(ctx, "tcp", address)
}

// Accept calls handle with each connection until l is closed, which is not an
// error. Errors that may pass are waited out, never spun on. handle must not
// block: it starts what it needs.
func Accept(l net.Listener, log *slog.Logger, handle func(net.Conn)) error {
	var pause time.Duration
	complaint := acceptComplaint{log: log.With("address", l.Addr().String())}
	defer complaint.tell()
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			complaint.tellIfDue()
			handle(c)
		case errors.Is(err, net.ErrClosed):
			return nil
		case isTemporary(err):
			pause = min(max(2*pause, firstAcceptPause), lastAcceptPause)
			complaint.note(err, pause)
			time.Sleep(pause)
		default:
			return err
		}
	}
}

// acceptComplaint writes one warning a period, the newest with a count of those
// before it that were not written: where descriptors come and go, accept fails
// between any two connections.
type acceptComplaint struct {
	log   *slog.Logger
	last  time.Time // when one was written
	held  int       // not written yet, the newest included
	err   error     // the newest
	pause time.Duration
}

func (a *acceptComplaint) note(err error, pause time.Duration) {
	a.err, a.pause = err, pause
	a.held++
	a.tellIfDue()
}

func (a *acceptComplaint) tellIfDue() {
	if a.held > 0 && time.Since(a.last) >= acceptWarnPeriod {
		a.tell()
	}
}

func (a *acceptComplaint) tell() {
	if a.held == 0 {
		return
	}
	attrs := []any{"err", a.err, "pause", a.pause}
	if a.held > 1 {
		attrs = append(attrs, "repeats", a.held-1)
	}
	a.log.Warn("accept failed, pausing", attrs...)
	a.last, a.held = time.Now(), 0
}

// isTemporary asks the error itself. net.Error.Temporary is deprecated for
// general use because no one agreed on its meaning; for accept(2) it is just
// the list that is meant here (EMFILE, ENFILE, ECONNABORTED, EINTR …).
func isTemporary(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}
