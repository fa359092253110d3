package listen

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// MaxHello bounds a ClientHello as it is on the wire, record headers included.
// A post-quantum hello is about 2 KB; the bound leaves room for one of 10 KB
// in records of one byte, where each byte costs six. crypto/tls takes no
// handshake message over 64 KiB either.
const MaxHello = 64 << 10

const (
	recordHeader  = 5       // type, version (2), length (2): RFC 8446 §5.1
	maxRecord     = 1 << 14 // plaintext of one record: RFC 8446 §5.1
	messageHeader = 4       // type, length (3): RFC 8446 §4

	recordHandshake    = 0x16
	messageClientHello = 0x01

	// maxServerName is the longest DNS name; OpenSSL takes no longer one either.
	maxServerName = 255
)

var (
	// ErrShort says that the bytes so far begin a ClientHello: read more.
	ErrShort = errors.New("ClientHello is not whole yet")
	// ErrNotTLS is a stream that does not begin with a TLS handshake record.
	ErrNotTLS = errors.New("not TLS")
	// ErrBadHello is a TLS stream that does not begin with a well-formed
	// ClientHello.
	ErrBadHello = errors.New("malformed ClientHello")
)

// Hello is what a connection that stays encrypted tells of itself. All of it is
// the client's word.
type Hello struct {
	// ServerName is the SNI in lower case, at most 255 printable ASCII
	// characters (RFC 6066 §3); empty when the client sent none. Under
	// Encrypted ClientHello it is the outer, public name.
	ServerName string
	// ALPN lists the application protocols in the client's order (RFC 7301).
	ALPN []string
}

// ParseHello reads the ClientHello at the start of b, over however many records
// the client has spread it (RFC 8446 §5.1, RFC 5246 §6.2.1). n is where the
// record ends that completes it; what follows, such as early data, is not
// looked at. Nothing of h aliases b.
//
// It gives [ErrShort] while more bytes can still make b a ClientHello of
// limit bytes at most. Any other error is final and comes as early as the bytes
// allow: [ErrNotTLS], [ErrBadHello] or [ErrTooLarge].
func ParseHello(b []byte, limit int) (h Hello, n int, err error) {
	n, err = helloEnd(b, limit)
	if err != nil {
		return Hello{}, 0, err
	}
	h, err = decodeHello(b[:n])
	if err != nil {
		return Hello{}, 0, err
	}
	return h, n, nil
}

// helloEnd follows records until the first handshake message is complete and
// says where its last record ends. Beside ErrShort it says where that is at the
// earliest: all that is missing may come in one record.
func helloEnd(b []byte, limit int) (int, error) {
	var head [messageHeader]byte // the message's own header may be spread over four records
	have, want := 0, messageHeader
	for at := 0; ; {
		length, err := recordLength(b, at)
		if err != nil {
			return 0, err
		}
		end := at + recordHeader + length
		payload := b[at+recordHeader : min(end, len(b))]
		if have < messageHeader {
			copy(head[have:], payload)
			switch got := have + len(payload); {
			case got > 0 && head[0] != messageClientHello:
				return 0, fmt.Errorf("%w: the first handshake message has type %d, a ClientHello has 1", ErrBadHello, head[0])
			case got >= messageHeader:
				want = messageHeader + int(head[1])<<16 + int(head[2])<<8 + int(head[3])
			}
		}
		have += length
		// The rest needs one more header per record: not to be waited for
		// when it cannot fit.
		rest := max(0, want-have)
		least := end + rest + recordHeader*((rest+maxRecord-1)/maxRecord)
		switch {
		case least > limit:
			return 0, fmt.Errorf("ClientHello of at least %d bytes is %w (%d bytes)", least, ErrTooLarge, limit)
		case end > len(b):
			return least, ErrShort
		case rest == 0:
			return end, nil
		}
		at = end
	}
}

// recordLength judges as much as there is of the record header at b[at:].
func recordLength(b []byte, at int) (int, error) {
	header := b[at:min(at+recordHeader, len(b))]
	switch {
	case len(header) > 0 && header[0] != recordHandshake:
		if at == 0 {
			return 0, fmt.Errorf("%w: %s", ErrNotTLS, guess(b))
		}
		return 0, fmt.Errorf("%w: a record of type %d at byte %d, before the message is whole", ErrBadHello, header[0], at)
	case len(header) > 1 && header[1] != 3:
		// The minor version is to be ignored (RFC 8446 §5.1); the major one
		// has been 3 since SSL 3.0.
		if at == 0 {
			return 0, fmt.Errorf("%w: record version %d, TLS has 3", ErrNotTLS, header[1])
		}
		return 0, fmt.Errorf("%w: record version %d at byte %d, TLS has 3", ErrBadHello, header[1], at)
	case len(header) > 3 && int(header[3])<<8 > maxRecord:
		return 0, fmt.Errorf("%w: the record at byte %d is longer than %d bytes", ErrBadHello, at, maxRecord)
	case len(header) < recordHeader:
		return 0, ErrShort
	}
	length := int(binary.BigEndian.Uint16(header[3:]))
	switch {
	case length > maxRecord:
		return 0, fmt.Errorf("%w: the record at byte %d is longer than %d bytes", ErrBadHello, at, maxRecord)
	case length == 0: // forbidden for handshake records: RFC 8446 §5.1
		return 0, fmt.Errorf("%w: the record at byte %d is empty", ErrBadHello, at)
	}
	return length, nil
}

// strays are the other protocols that end up on a TLS port.
var strays = []struct{ start, name string }{
	{"\x10", "an MQTT CONNECT without TLS"},
	{"PROXY ", "a PROXY protocol header (v1), not expected here"},
	{"\r\n\r\n\x00\r\nQUIT\n", "a PROXY protocol header (v2), not expected here"},
	{"GET ", "HTTP without TLS"},
	{"HEAD ", "HTTP without TLS"},
	{"POST ", "HTTP without TLS"},
	{"SSH-", "SSH"},
}

// guess names what a stream seems to be, once three bytes or all that
// distinguishes it are there.
func guess(b []byte) string {
	for _, s := range strays {
		n := min(len(b), len(s.start))
		if n >= min(3, len(s.start)) && string(b[:n]) == s.start[:n] {
			return fmt.Sprintf("first byte 0x%02x, looks like %s", b[0], s.name)
		}
	}
	return fmt.Sprintf("first byte 0x%02x, a TLS handshake begins with 0x16", b[0])
}

// errDecoded ends the handshake in which crypto/tls decodes a ClientHello.
var errDecoded = errors.New("ClientHello decoded")

// decodeHello leaves the content to crypto/tls, so that passthrough and
// terminating listeners understand the same hellos.
func decodeHello(records []byte) (h Hello, err error) {
	server := tls.Server(recording{bytes.NewReader(records)}, &tls.Config{
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			h = Hello{ServerName: hello.ServerName, ALPN: hello.SupportedProtos}
			return nil, errDecoded
		},
	})
	if err := server.Handshake(); !errors.Is(err, errDecoded) {
		return Hello{}, fmt.Errorf("%w: %w", ErrBadHello, err)
	}
	if len(h.ServerName) > maxServerName {
		return Hello{}, fmt.Errorf("%w: server name of %d bytes, a DNS name has %d at most", ErrBadHello, len(h.ServerName), maxServerName)
	}
	if strings.ContainsFunc(h.ServerName, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return Hello{}, fmt.Errorf("%w: server name %q is not printable ASCII (RFC 6066 §3)", ErrBadHello, h.ServerName)
	}
	h.ServerName = strings.ToLower(h.ServerName)
	return h, nil
}

// recording plays a ClientHello to crypto/tls and drops the alert that answers.
type recording struct{ *bytes.Reader }

func (recording) Write(p []byte) (int, error)      { return len(p), nil }
func (recording) Close() error                     { return nil }
func (recording) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (recording) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (recording) SetDeadline(time.Time) error      { return nil }
func (recording) SetReadDeadline(time.Time) error  { return nil }
func (recording) SetWriteDeadline(time.Time) error { return nil }
