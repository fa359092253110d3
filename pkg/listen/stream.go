package listen

import (
	"crypto/tls"
	"io"
	"net"
	"time"
)

// How long Abort waits for bytes on their way, and in what steps it looks.
const (
	abortPatience = time.Second
	abortStep     = time.Millisecond
)

// Stream is one side of a relayed connection: bytes, plain or through TLS,
// over a socket. Its three ways to end are what the peer will see: FIN
// (CloseWrite, with close_notify first under TLS), RST (Abort), or both
// directions gone (Close).
type Stream struct {
	net.Conn              // what Read and Write use
	Socket   *net.TCPConn // the socket below; nil when Conn is no TCP connection
}

// NewStream finds the socket below c.
func NewStream(c net.Conn) Stream {
	s := Stream{Conn: c}
	below := c
	if t, ok := c.(*tls.Conn); ok {
		below = t.NetConn()
	}
	s.Socket, _ = below.(*net.TCPConn)
	return s
}

// CloseWrite tells the peer that no more bytes come: close_notify under TLS
// (RFC 8446 §6.1), then FIN (RFC 9293 §3.6). Reading goes on.
func (s Stream) CloseWrite() error {
	if t, ok := s.Conn.(*tls.Conn); ok {
		// An error here (a handshake cut short, a peer that is gone) does not
		// matter: the FIN says the same.
		_ = t.CloseWrite()
	}
	if s.Socket != nil {
		return s.Socket.CloseWrite()
	}
	if c, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

// Gone is the reset or timeout that has ended the connection already; nil while
// it lives. A FIN ends nothing: its sender may still wait for an answer. It
// takes no bytes and never blocks. It is for streams whose own side has not
// been closed for writing, and knows nothing but on Linux.
func (s Stream) Gone() error {
	if s.Socket == nil {
		return nil
	}
	return gone(s.Socket)
}

// Abort ends the connection by RST: what a peer must see whose partner broke
// off. Bytes that were written before are given a second at most to arrive,
// because a RST makes both kernels forget them.
func (s Stream) Abort() {
	if s.Socket == nil {
		s.Conn.Close()
		return
	}
	for waited := time.Duration(0); waited < abortPatience && unsent(s.Socket) > 0; {
		step := max(abortStep, waited) // 1, 1, 2, 4 … ms
		time.Sleep(step)
		waited += step
	}
	_ = s.Socket.SetLinger(0)
	s.Socket.Close()
}

// CloseLingering closes after the peer has had its chance to read what was
// written last: FIN first, then whatever the peer still sends is read and
// thrown away, up to limit bytes and for at most the time given. A plain close
// with unread bytes would make the kernel send RST, and the peer lose the
// answer (RFC 9293 §3.6.1).
func (s Stream) CloseLingering(patience time.Duration, limit int64) {
	deadline := time.Now().Add(patience)
	_ = s.Conn.SetDeadline(deadline)
	if s.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, onlyReader{s.Conn}, limit)
	}
	s.Conn.Close()
}

// onlyReader hides WriterTo, which would make io.CopyN borrow more than it needs.
type onlyReader struct{ io.Reader }

// past is a deadline that has gone by: setting it wakes blocked calls.
var past = time.Unix(1, 0)

// Wake makes reads that are blocked, and those to come, return
// os.ErrDeadlineExceeded, and gives writes the patience to finish.
func (s Stream) Wake(patience time.Duration) {
	_ = s.Conn.SetReadDeadline(past)
	_ = s.Conn.SetWriteDeadline(time.Now().Add(patience))
}
