package mqtt

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func unhex(tb testing.TB, s string) []byte {
	tb.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestAppendConnack(t *testing.T) {
	for _, tt := range []struct {
		name   string
		v      Version
		r      Reason
		reason string
		want   string
	}{
		{"3.1.1 accepts", V311, Success, "", "20020000"},
		{"3.1 refuses the identifier", V31, ClientIdentifierNotValid, "", "20020002"},
		{"3.1.1 unavailable", V311, ServerBusy, "", "20020003"},
		{"3.1.1 has no place for words", V311, NotAuthorized, "no", "20020005"},
		{"3.1.1 malformed is closed without", V311, MalformedPacket, "", ""},
		{"3.1.1 too large is closed without", V311, PacketTooLarge, "", ""},
		{"5.0 accepts", V5, Success, "", "2003000000"},
		{"5.0 refuses", V5, PacketTooLarge, "", "2003009500"},
		{"5.0 refuses with words", V5, QuotaExceeded, "full", "200a009707" + "1f000466756c6c"},
		{"5.0 drops words that are not UTF-8", V5, QuotaExceeded, "\xff", "2003009700"},
		{"5.0 drops words with U+0000", V5, QuotaExceeded, "a\x00", "2003009700"},
		{"5.0 drops words that are too long", V5, QuotaExceeded, strings.Repeat("x", 65536), "2003009700"},
		{"no version, no answer", 0, ProtocolError, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := AppendConnackReason([]byte{0xAA}, tt.v, tt.r, tt.reason); hex.EncodeToString(got) != "aa"+tt.want {
				t.Errorf("got %x, want aa%s", got, tt.want)
			}
		})
	}
	long := strings.Repeat("x", 65535)
	c, n, err := ParseConnack(AppendConnackReason(nil, V5, Banned, long), V5)
	if err != nil || n != 1+3+2+3+3+65535 || string(c.ReasonString) != long {
		t.Errorf("the longest words: %d bytes, n %d, %v", len(c.ReasonString), n, err)
	}
}

func TestParseConnack(t *testing.T) {
	for _, tt := range []struct {
		name string
		v    Version
		b    string
		want Connack
	}{
		{"3.1.1 accepted", V311, "2002 0000", Connack{}},
		{"3.1.1 session present", V311, "2002 0100", Connack{SessionPresent: true}},
		{"3.1.1 refused", V311, "2002 0005", Connack{Code: 5}},
		{"3.1 does not know the first byte", V31, "2002 ff00", Connack{}},
		{"5.0 accepted", V5, "2003 0000 00", Connack{Properties: Properties{}}},
		{"5.0 refused", V5, "2003 0088 00", Connack{Code: 0x88, Properties: Properties{}}},
		{"5.0 refused by a server of 3.1.1", V5, "2002 0001", Connack{Code: 1}},
		{"5.0 with properties", V5, "2011 0100 0e 13001e 12000161 1f00026f6b 2401", Connack{
			SessionPresent: true, ServerKeepAlive: 30, HasServerKeepAlive: true,
			AssignedClientID: []byte("a"), ReasonString: []byte("ok"),
			Properties: Properties("\x13\x00\x1e\x12\x00\x01a\x1f\x00\x02ok\x24\x01"),
		}},
		{"5.0 Server Keep Alive 0 is one", V5, "2006 0000 03 130000", Connack{
			HasServerKeepAlive: true, Properties: Properties("\x13\x00\x00"),
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := unhex(t, tt.b)
			for k := range b {
				if _, n, err := ParseConnack(b[:k], tt.v); err != ErrShort || k >= 2 && n != len(b) {
					t.Errorf("%d of %d bytes: n %d, %v", k, len(b), n, err)
				}
			}
			c, n, err := ParseConnack(append(b, 0x30), tt.v)
			if err != nil || n != len(b) || !reflect.DeepEqual(c, tt.want) {
				t.Errorf("n %d, %v\ngot  %+v\nwant %+v", n, err, c, tt.want)
			}
			if c.Accepted() != (c.Code == 0) {
				t.Errorf("accepted %v with code %d", c.Accepted(), c.Code)
			}
		})
	}
}

func TestConnackReasonReadsBothForms(t *testing.T) {
	for code, want := range map[byte]Reason{
		0: Success, 1: UnsupportedProtocolVersion, 2: ClientIdentifierNotValid, 3: ServerUnavailable,
		4: BadUserNameOrPassword, 5: NotAuthorized, 0x88: ServerUnavailable, 6: 6,
	} {
		if got := (Connack{Code: code}).Reason(); got != want {
			t.Errorf("%d means %s, want %s", code, got, want)
		}
	}
}

func TestParseConnackRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		v      Version
		b      string
		typ    PacketType
		reason Reason
		says   string
	}{
		{"PINGRESP first (C017)", V311, "d0", TypePingresp, ProtocolError, "where CONNACK was due"},
		{"AUTH first, which 5.0 allows", V5, "f0", TypeAuth, ProtocolError, "where CONNACK was due"},
		{"text", V311, "48", TypePuback, ProtocolError, "where CONNACK was due"},
		{"reserved packet type", V311, "00", 0, ProtocolError, "where CONNACK was due"},
		{"reserved bits of the fixed header", V311, "21", TypeConnack, MalformedPacket, "[MQTT-2.1.3-1]"},
		{"remaining length of five bytes", V5, "20ffffffff", TypeConnack, MalformedPacket, "fourth byte"},
		{"3.1.1 with the length of 5.0", V311, "2003", TypeConnack, MalformedPacket, "has to be 2"},
		{"5.0 too short", V5, "2001", TypeConnack, MalformedPacket, "too few"},
		{"5.0 remaining length longer than need be", V5, "208300 0000 00", TypeConnack, MalformedPacket, "[MQTT-1.5.5-1]"},
		{"5.0 accepted in the form of 3.1.1", V5, "20020000", TypeConnack, MalformedPacket, "property length"},
		{"5.0 refused without property length", V5, "20020087", TypeConnack, MalformedPacket, "property length"},
		{"reserved acknowledge flags", V311, "200202", TypeConnack, MalformedPacket, "0x02"},
		{"session present beside a refusal", V311, "20020105", TypeConnack, ProtocolError, "Session Present"},
		{"properties too short for the packet", V5, "2004000000", TypeConnack, MalformedPacket, "leaves 1 bytes over"},
		{"properties too long for the packet", V5, "2003000001", TypeConnack, MalformedPacket, "too few"},
		{"property of CONNECT", V5, "20050000021700", TypeConnack, MalformedPacket, "Request Problem Information"},
		{"property twice", V5, "2009 0000 06 130000 130000", TypeConnack, ProtocolError, "twice"},
		{"Maximum QoS 2", V5, "2005 0000 02 2402", TypeConnack, ProtocolError, "Maximum QoS"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, n, err := ParseConnack(unhex(t, tt.b), tt.v)
			e, ok := errors.AsType[*PacketError](err)
			if !ok {
				t.Fatalf("%+v, %v; want a *PacketError", c, err)
			}
			if n != 0 || e.Type != tt.typ || e.Reason != tt.reason || !strings.Contains(e.Detail, tt.says) {
				t.Errorf("n %d, type %s, %v; want %s, %s, %q", n, e.Type, e, tt.typ, tt.reason, tt.says)
			}
		})
	}
}

func TestParseConnackDoesNotAllocate(t *testing.T) {
	v3, v5 := unhex(t, "20020000"), unhex(t, "2011 0100 0e 13001e 12000161 1f00026f6b 2401")
	if n := testing.AllocsPerRun(100, func() {
		ParseConnack(v3, V311)
		ParseConnack(v5, V5)
		ParseConnack(v5[:9], V5)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAppendingToALargeEnoughSliceDoesNotAllocate(t *testing.T) {
	buf := make([]byte, 0, 256)
	o := ConnectOptions{Version: V5, ClientID: "probe", Username: []byte("u")}
	if n := testing.AllocsPerRun(100, func() {
		AppendConnack(buf, V311, ServerUnavailable)
		AppendConnackReason(buf, V5, QuotaExceeded, "this listener is full")
		AppendDisconnect(buf, V5, ServerShuttingDown)
		AppendConnect(buf, o)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAppendDisconnect(t *testing.T) {
	for _, tt := range []struct {
		v    Version
		r    Reason
		want string
	}{
		{V31, Success, "e000"},
		{V311, ServerShuttingDown, "e000"},
		{V5, Success, "e000"},
		{V5, ServerShuttingDown, "e0028b00"},
	} {
		if got := AppendDisconnect(nil, tt.v, tt.r); hex.EncodeToString(got) != tt.want {
			t.Errorf("%s %s: %x, want %s", tt.v, tt.r, got, tt.want)
		}
	}
}

func FuzzParseConnack(f *testing.F) {
	for _, s := range []string{
		"20020000", "20020103", "2003000000", "2003008800", "20020001", "d000", "20ffffffff",
		"2011 0100 0e 13001e 12000161 1f00026f6b 2401", "200a009707 1f000466756c6c",
	} {
		f.Add(unhex(f, s), byte(V311))
		f.Add(unhex(f, s), byte(V5))
	}
	f.Fuzz(func(t *testing.T, b []byte, v byte) {
		c, n, err := ParseConnack(b, Version(v))
		switch {
		case err == ErrShort:
			if n != 0 && n <= len(b) {
				t.Fatalf("short of %d bytes with %d", n, len(b))
			}
		case err != nil:
			if _, ok := errors.AsType[*PacketError](err); !ok || n != 0 {
				t.Fatalf("n %d, %v", n, err)
			}
		default:
			if n > len(b) || c.SessionPresent && !c.Accepted() {
				t.Fatalf("n %d of %d, %+v", n, len(b), c)
			}
			for k := range n {
				if _, m, err := ParseConnack(b[:k], Version(v)); err != ErrShort || m != 0 && m != n {
					t.Fatalf("the first %d bytes of %d: n %d, %v", k, n, m, err)
				}
			}
			if Version(v) == V5 && n != 4 { // not in the form of 3.x
				flags := byte(0)
				if c.SessionPresent {
					flags = 1
				}
				body := append([]byte{flags, c.Code}, appendSection(nil, c.Properties)...)
				if again := append(appendVarint([]byte{0x20}, len(body)), body...); !bytes.Equal(again, b[:n]) {
					t.Fatalf("read %x\nwrote %x", b[:n], again)
				}
			}
		}
	})
}
