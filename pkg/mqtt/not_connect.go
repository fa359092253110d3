package mqtt

import (
	"fmt"
	"slices"
	"strings"
)

// guesses are the first bytes of what else comes to an MQTT port, and how to
// mend it.
var guesses = [...]struct{ first, is string }{
	{"\x16\x03", "TLS: the client speaks TLS to a port without it, or twice"},
	{"\r\n\r\n\x00\r\nQUIT\n", guessProxy},
	{"PROXY ", guessProxy},
	{"GET ", guessHTTP}, {"HEAD ", guessHTTP}, {"POST ", guessHTTP}, {"PUT ", guessHTTP}, {"DELETE ", guessHTTP},
	{"CONNECT ", guessHTTP}, {"OPTIONS ", guessHTTP}, {"TRACE ", guessHTTP}, {"PATCH ", guessHTTP}, {"PRI ", guessHTTP},
	{"SSH-", "SSH"},
}

const (
	guessProxy = "a PROXY protocol header, but accept_proxy is off here or has taken one already"
	guessHTTP  = "HTTP"
)

// notConnect says what b, whose first byte is not that of a CONNECT, may be.
func notConnect(b []byte) *ConnectError {
	var looks []string
	for _, g := range guesses {
		n := min(len(b), len(g.first))
		if g.first[:n] == string(b[:n]) && !slices.Contains(looks, g.is) {
			looks = append(looks, g.is)
		}
	}
	first := fmt.Sprintf("first byte 0x%02x", b[0])
	if b[0] > ' ' && b[0] < 0x7F {
		first += fmt.Sprintf(" (%q)", string(b[:1]))
	}
	t := PacketType(b[0] >> 4)
	switch {
	case len(looks) > 0:
		return &ConnectError{0, ProtocolError, fmt.Sprintf("not a CONNECT: %s, looks like %s", first, strings.Join(looks, ", or "))}
	case t == TypeConnect:
		return &ConnectError{0, MalformedPacket, fmt.Sprintf("%s: reserved bits of the fixed header are set [MQTT-2.1.3-1] (3.1.1 [MQTT-2.2.2-2])", first)}
	case t != 0:
		return &ConnectError{0, ProtocolError, fmt.Sprintf("not a CONNECT: %s, as of a %s; the first packet has to be CONNECT [MQTT-3.1.0-1]", first, t)}
	default:
		return &ConnectError{0, ProtocolError, fmt.Sprintf("not a CONNECT: %s", first)}
	}
}
