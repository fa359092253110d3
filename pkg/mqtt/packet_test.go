package mqtt

import (
	"errors"
	"testing"
)

func TestParseFixedHeader(t *testing.T) {
	for _, tt := range []struct {
		b         string
		typ       PacketType
		flags     byte
		remaining int
		n         int
	}{
		{"c000", TypePingreq, 0, 0, 2},
		{"3d7f", TypePublish, 0x0d, 127, 2},
		{"308001", TypePublish, 0, 128, 3},
		{"30ff7f", TypePublish, 0, 16383, 3},
		{"30808001", TypePublish, 0, 16384, 4},
		{"30ffffff7f", TypePublish, 0, MaxRemainingLength, 5},
		{"8a05", TypeSubscribe, 0x0a, 5, 2}, // a duplicate, in 3.1
		{"f000", TypeAuth, 0, 0, 2},
	} {
		b := unhex(t, tt.b)
		for k := range b {
			if _, _, _, _, err := ParseFixedHeader(b[:k]); err != ErrShort {
				t.Errorf("%s: %d bytes: %v, want ErrShort", tt.b, k, err)
			}
		}
		typ, flags, remaining, n, err := ParseFixedHeader(append(b, 0xFF))
		if typ != tt.typ || flags != tt.flags || remaining != tt.remaining || n != tt.n || err != nil {
			t.Errorf("%s: %s %x %d %d %v", tt.b, typ, flags, remaining, n, err)
		}
	}
}

func TestParseFixedHeaderRefuses(t *testing.T) {
	for _, s := range []string{"00", "0f01", "30ffffff80", "30ffffffff01"} {
		_, _, _, _, err := ParseFixedHeader(unhex(t, s))
		if e, ok := errors.AsType[*PacketError](err); !ok || e.Reason != MalformedPacket {
			t.Errorf("%s: %v, want a malformed packet", s, err)
		}
	}
}

func TestPacketTypeNames(t *testing.T) {
	for typ, want := range map[PacketType]string{
		TypeConnect: "CONNECT", TypePublish: "PUBLISH", TypeAuth: "AUTH", 0: "reserved packet type 0", 16: "packet type 16",
	} {
		if got := typ.String(); got != want {
			t.Errorf("%d is %q, want %q", byte(typ), got, want)
		}
	}
}

func TestVarintIsReadAsWritten(t *testing.T) {
	for _, v := range []int{0, 1, 127, 128, 16383, 16384, 2097151, 2097152, maxVarint} {
		b := appendVarint(nil, v)
		if len(b) != varintSize(v) {
			t.Errorf("%d takes %d bytes, not %d", v, len(b), varintSize(v))
		}
		if got, n, st := readVarint(b); got != v || n != len(b) || st != varintDone {
			t.Errorf("%d is read as %d of %d bytes, state %d", v, got, n, st)
		}
		for k := range b {
			if least, _, st := readVarint(b[:k]); st != varintShort || least > v {
				t.Errorf("%d cut at %d: at least %d, state %d", v, k, least, st)
			}
		}
	}
}
