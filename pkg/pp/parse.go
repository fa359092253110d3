package pp

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/pires/go-proxyproto"
)

const (
	signatureV1 = "PROXY "
	signatureV2 = "\r\n\r\n\x00\r\nQUIT\n"

	fixedV2 = 16 // signature, version and command, transport, length
)

// What byte 14 of a version 2 header can say, of family and transport, that
// this package serves.
const (
	unspec     = 0x00
	tcp4       = 0x11
	tcp6       = 0x21
	unixStream = 0x31
)

// addressSize is the number of address bytes behind the fixed part.
var addressSize = map[byte]int{
	unspec:     0,
	tcp4:       2*4 + 2*2,
	tcp6:       2*16 + 2*2,
	unixStream: 2 * 108,
}

// Parse reads the header at the front of b and says how many bytes it takes;
// what lies behind them is not looked at.
//
// While b only begins a header the error is ErrShort: call again with the same
// bytes and more. Every other error is final, and comes with the first byte
// that cannot be right, or with the CRLF for the addresses of version 1:
// ErrNoHeader, ErrMalformed, or ErrTooLarge for a header
// of more than max bytes, which is judged by the announced length, before the
// rest is there. max 0 stands for MaxHeader.
func Parse(b []byte, max int) (h Header, n int, err error) {
	if max <= 0 {
		max = MaxHeader
	}
	switch {
	case len(b) == 0:
		return Header{}, 0, ErrShort
	case b[0] == signatureV2[0]:
		h, n, err = parseV2(b, max)
	default:
		h, n, err = parseV1(b, min(max, MaxV1))
	}
	if err != nil {
		return Header{}, 0, err
	}
	return h, n, nil
}

// parseV1 reads a line (PP 2.1). Its words are judged byte by byte, its
// addresses and ports when the CRLF is there, as the specification asks.
func parseV1(b []byte, limit int) (Header, int, error) {
	n, err := lineV1(b, limit)
	if err != nil {
		return Header{}, 0, err
	}
	h := Header{Version: 1, Command: Proxy}
	h.Source, h.Destination, err = addresses(b[:n])
	return h, n, err
}

// wordsV1 may follow the signature. The CR is UNKNOWN's alone: the others
// cannot do without addresses.
var wordsV1 = []string{"TCP4 ", "TCP6 ", "UNKNOWN ", "UNKNOWN\r"}

// lineV1 gives the length of the line, its CRLF included.
func lineV1(b []byte, limit int) (int, error) {
	for i, c := range b[:min(len(b), limit)] {
		word := i - len(signatureV1)
		switch {
		case word < 0:
			if c != signatureV1[i] {
				return 0, noHeader(b, i)
			}
		case word < len("UNKNOWN "):
			got := string(b[len(signatureV1) : i+1])
			if !slices.ContainsFunc(wordsV1, func(w string) bool {
				return strings.HasPrefix(w, got) || strings.HasPrefix(got, w)
			}) {
				return 0, fmt.Errorf("%w: protocol %q is none of TCP4, TCP6 and UNKNOWN", ErrMalformed, got)
			}
		}
		switch {
		case i == 0:
		case b[i-1] == '\r' && c == '\n':
			return i + 1, nil
		case b[i-1] == '\r', c == '\n':
			return 0, fmt.Errorf("%w: byte %d: CR and LF do not stand alone", ErrMalformed, i+1)
		case word > len("TCP4") && b[len(signatureV1)] == 'T' && !strings.ContainsRune("0123456789abcdefABCDEF:. \r", rune(c)):
			return 0, fmt.Errorf("%w: byte %d is %q, not of an address or a port", ErrMalformed, i+1, c)
		}
	}
	if len(b) >= limit {
		return 0, fmt.Errorf("%w: no CRLF within %d bytes", ErrTooLarge, limit)
	}
	return 0, ErrShort
}

// parseV2 reads a binary header (PP 2.2).
func parseV2(b []byte, max int) (Header, int, error) {
	for i := range min(len(b), len(signatureV2)) {
		if b[i] != signatureV2[i] {
			return Header{}, 0, noHeader(b, i)
		}
	}
	if len(b) < 13 {
		return Header{}, 0, ErrShort
	}
	h := Header{Version: 2, Command: Command(b[12] & 0x0F)}
	if version := b[12] >> 4; version != 2 {
		return Header{}, 0, fmt.Errorf("%w: version %d of the binary header is unknown", ErrMalformed, version)
	}
	if h.Command > Proxy {
		return Header{}, 0, fmt.Errorf("%w: command %d is neither LOCAL nor PROXY", ErrMalformed, h.Command)
	}
	if len(b) < 14 {
		return Header{}, 0, ErrShort
	}
	var start int // of the TLVs
	if h.Command == Proxy {
		size, ok := addressSize[b[13]]
		if !ok {
			return Header{}, 0, notServed(b[13])
		}
		start = fixedV2 + size
	}
	if len(b) < fixedV2 {
		return Header{}, 0, ErrShort
	}
	n := fixedV2 + int(binary.BigEndian.Uint16(b[14:]))
	switch {
	case n < start:
		return Header{}, 0, fmt.Errorf("%w: %d bytes cannot hold the addresses of transport 0x%02X", ErrMalformed, n, b[13])
	case n > max:
		return Header{}, 0, fmt.Errorf("%w: it announces %d bytes in all, the limit is %d", ErrTooLarge, n, max)
	case len(b) < n:
		return Header{}, 0, ErrShort
	case h.Command == Local:
		// "Discard the protocol block including the family which is ignored":
		// clouds send dummy addresses, and lengths that fit no family.
		return h, n, nil
	}
	var err error
	if h.TLVs, err = readTLVs(b[:n], start); err != nil {
		return Header{}, 0, err
	}
	if b[13] == tcp4 || b[13] == tcp6 {
		// The library gets the addresses without the TLVs, under a length of
		// their own: its limit, a package variable, then never meets ours.
		fixed := slices.Clone(b[:start])
		binary.BigEndian.PutUint16(fixed[14:], uint16(start-fixedV2))
		h.Source, h.Destination, err = addresses(fixed)
	}
	return h, n, err
}

func notServed(transport byte) error {
	switch transport {
	case 0x12, 0x22, 0x32:
		return fmt.Errorf("%w: transport 0x%02X is a datagram one, and only streams are served", ErrMalformed, transport)
	default:
		return fmt.Errorf("%w: transport 0x%02X is not defined", ErrMalformed, transport)
	}
}

// addresses has the library decode a header which is whole; without addresses
// in it both answers are invalid.
func addresses(header []byte) (src, dst netip.AddrPort, err error) {
	// The buffer holds all of it: the library refuses a version 1 line that
	// needs a second read.
	lib, err := proxyproto.Read(bufio.NewReaderSize(bytes.NewReader(header), len(header)))
	if err != nil {
		return src, dst, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if s, d, ok := lib.TCPAddrs(); ok {
		src, dst = unmapped(s), unmapped(d)
	}
	return src, dst, nil
}

func unmapped(a *net.TCPAddr) netip.AddrPort {
	ap := a.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// noHeader says which byte is wrong, and what the peer seems to speak.
func noHeader(b []byte, at int) error {
	hint := "nothing that is known here"
	switch c := b[0]; {
	case at > 0:
		return fmt.Errorf("%w: byte %d is 0x%02X", ErrNoHeader, at+1, b[at])
	case c == 0x10:
		hint = "an MQTT CONNECT"
	case c == 0x16:
		hint = "a TLS ClientHello"
	case c >= 'A' && c <= 'Z':
		hint = "HTTP or another text protocol"
	}
	return fmt.Errorf("%w: it starts with 0x%02X, which is %s; have the sender send the header, or take its address out of accept_proxy.from", ErrNoHeader, b[0], hint)
}
