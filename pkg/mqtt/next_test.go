package mqtt

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestNextFromClientWalksThroughWhatClientsSend(t *testing.T) {
	// CONNECT, SUBSCRIBE, PUBLISH and PINGREQ in one write (C006).
	b := readCase(t, "C006")[0].bytes
	c, n, err := ParseConnect(b, 0)
	if err != nil {
		t.Fatal(err)
	}
	b = b[n:]
	var seen []PacketType
	for len(b) > 0 {
		typ, n, err := NextFromClient(b, c.Version, 64)
		if err != nil {
			t.Fatal(err)
		}
		if _, m, err := parseAny(b[:n], c.Version, FromClient); err != nil || m != n {
			t.Fatalf("%s: n %d of %d, %v", typ, m, n, err)
		}
		seen, b = append(seen, typ), b[n:]
	}
	if len(seen) != 3 || seen[0] != TypeSubscribe || seen[1] != TypePublish || seen[2] != TypePingreq {
		t.Error(seen)
	}
}

func TestNextFromClientTellsWhatIsKnownSoFar(t *testing.T) {
	b := append([]byte{0x32, 0xC8, 0x01}, make([]byte, 200)...)
	for _, tt := range []struct {
		have int
		typ  PacketType
		n    int
		err  error
	}{
		{0, 0, 0, ErrShort},
		{1, TypePublish, 0, ErrShort},
		{2, TypePublish, 0, ErrShort},
		{3, TypePublish, 203, ErrShort},
		{202, TypePublish, 203, ErrShort},
		{203, TypePublish, 203, nil},
	} {
		if typ, n, err := NextFromClient(b[:tt.have], V311, 203); typ != tt.typ || n != tt.n || err != tt.err {
			t.Errorf("%d bytes: %s, %d, %v; want %s, %d, %v", tt.have, typ, n, err, tt.typ, tt.n, tt.err)
		}
	}
	if _, n, err := NextFromClient(append(bytes.Clone(b), 0xC0), V311, 203); n != 203 || err != nil {
		t.Errorf("with bytes behind it: %d, %v", n, err)
	}
}

func TestNextFromClientRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		v      Version
		b      string
		at     int // the byte that tells
		max    int
		reason Reason
		says   string
	}{
		{"a byte over the maximum, before its body", V5, "3007 0003612f62 6869", 2, 8, PacketTooLarge, "9 bytes is larger than the 8"},
		{"256 MiB announced", V5, "30ffffff7f", 5, 1 << 20, PacketTooLarge, "268435460 bytes"},
		{"256 MiB announced in 3.1.1", V311, "30ffffff7f", 5, 1 << 20, PacketTooLarge, "268435460 bytes"},
		{"a remaining length of five bytes", V5, "30ffffffff01", 5, 1 << 20, MalformedPacket, "fourth byte"},
		{"a second CONNECT", V5, "10", 1, 0, ProtocolError, "[MQTT-3.1.0-2]"},
		{"CONNACK", V5, "20", 1, 0, ProtocolError, "only a server"},
		{"SUBACK", V311, "90", 1, 0, ProtocolError, "only a server"},
		{"UNSUBACK", V311, "b0", 1, 0, ProtocolError, "only a server"},
		{"PINGRESP", V31, "d0", 1, 0, ProtocolError, "only a server"},
		{"reserved packet type 0", V5, "00", 1, 0, MalformedPacket, "reserved"},
		{"AUTH in 3.1.1", V311, "f0", 1, 0, MalformedPacket, "reserved in 3.1.1"},
		{"flags", V5, "80", 1, 0, MalformedPacket, "[MQTT-2.1.3-1]"},
		{"PINGREQ with a body", V311, "c001", 2, 0, MalformedPacket, "has to be 0"},
		{"a length that is not in its shortest form", V5, "c08000", 3, 0, MalformedPacket, "[MQTT-1.5.5-1]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := unhex(t, tt.b)
			if _, _, err := NextFromClient(b[:tt.at-1], tt.v, tt.max); err != ErrShort {
				t.Errorf("one byte less: %v, want ErrShort", err)
			}
			typ, n, err := NextFromClient(b[:tt.at], tt.v, tt.max)
			e, ok := errors.AsType[*PacketError](err)
			if !ok || typ != 0 || n != 0 || e.Type != PacketType(b[0]>>4) || e.Reason != tt.reason || !strings.Contains(e.Detail, tt.says) {
				t.Errorf("%s, %d, %v; want %s, %q", typ, n, err, tt.reason, tt.says)
			}
		})
	}
}
