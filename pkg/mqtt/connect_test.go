package mqtt

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// packet writes a CONNECT whose remaining length is right for its parts.
func packet(parts ...string) []byte {
	body := strings.Join(parts, "")
	return append(appendVarint([]byte{0x10}, len(body)), body...)
}

// The parts of a CONNECT, to be put together rightly and wrongly.
const (
	head31  = "\x00\x06MQIsdp\x03"
	head311 = "\x00\x04MQTT\x04"
	head5   = "\x00\x04MQTT\x05"
	alive   = "\x00\x3c"
	idA     = "\x00\x01a"
	noProps = "\x00"
)

func TestParseConnectGivesAllThatIsThere(t *testing.T) {
	i := slices.IndexFunc(readCase(t, "C005"), func(s stream) bool { return s.label == "v5-all-properties" })
	b := readCase(t, "C005")[i].bytes
	got, n, err := ParseConnect(b, 0)
	if err != nil || n != len(b) {
		t.Fatalf("n %d of %d, %v", n, len(b), err)
	}
	want := Connect{
		Level: 5, Version: V5,
		Flags: 0xee, CleanStart: true, HasWill: true, WillQoS: 1, WillRetain: true, HasUsername: true, HasPassword: true,
		KeepAlive:   60,
		ClientID:    []byte("probe-42"),
		WillTopic:   []byte("state/probe-42"),
		WillPayload: []byte("gone"),
		Username:    []byte("meter"),
		Password:    []byte("hunter"),

		Properties:     got.Properties,
		WillProperties: got.WillProperties,

		SessionExpiry: 120, ReceiveMaximum: 10, MaximumPacketSize: 16384, TopicAliasMaximum: 5,
		RequestResponseInfo: false, RequestProblemInfo: true,
		WillDelay: 5,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	props := []Property{
		{ID: PropSessionExpiryInterval, Uint: 120},
		{ID: PropReceiveMaximum, Uint: 10},
		{ID: PropMaximumPacketSize, Uint: 16384},
		{ID: PropTopicAliasMaximum, Uint: 5},
		{ID: PropRequestProblemInformation, Uint: 1},
		{ID: PropUserProperty, Key: []byte("fw"), Value: []byte("1.2")},
		{ID: PropUserProperty, Key: []byte("hw"), Value: []byte("b")},
	}
	if p := slices.Collect(got.Properties.All()); !reflect.DeepEqual(p, props) {
		t.Errorf("properties %+v\nwant %+v", p, props)
	}
	will := []Property{
		{ID: PropWillDelayInterval, Uint: 5},
		{ID: PropPayloadFormatIndicator, Uint: 1},
		{ID: PropMessageExpiryInterval, Uint: 60},
		{ID: PropContentType, Value: []byte("text/plain")},
		{ID: PropResponseTopic, Value: []byte("reply/42")},
		{ID: PropCorrelationData, Value: []byte{0xca, 0xfe}},
		{ID: PropUserProperty, Key: []byte("why"), Value: []byte("power")},
	}
	if p := slices.Collect(got.WillProperties.All()); !reflect.DeepEqual(p, will) {
		t.Errorf("will properties %+v\nwant %+v", p, will)
	}
}

func TestParseConnectDefaults(t *testing.T) {
	for _, b := range [][]byte{
		packet(head31, "\x02", alive, idA),
		packet(head311, "\x02", alive, idA),
		packet(head5, "\x02", alive, noProps, idA),
	} {
		c, _, err := ParseConnect(b, 0)
		if err != nil || c.ReceiveMaximum != 65535 || !c.RequestProblemInfo || c.RequestResponseInfo ||
			c.MaximumPacketSize != 0 || c.SessionExpiry != 0 || c.TopicAliasMaximum != 0 {
			t.Errorf("%x: %+v, %v", b, c, err)
		}
	}
}

var accepted = []struct {
	name string
	b    []byte
}{
	{"5.0 empty client id, Clean Start 0: the broker assigns one", packet(head5, "\x00", alive, noProps, "\x00\x00")},
	{"3.1.1 empty client id, Clean Session 1", packet(head311, "\x02", alive, "\x00\x00")},
	{"3.1 client id over 23 bytes", packet(head31, "\x02", alive, "\x00\x18", strings.Repeat("x", 24))},
	{"3.1 user name flag without the field", packet(head31, "\x82", alive, idA)},
	{"3.1 both flags without the fields", packet(head31, "\xc2", alive, idA)},
	{"3.1 both flags with user name only", packet(head31, "\xc2", alive, idA, "\x00\x01u")},
	{"3.1 Will QoS and Will Retain without a will", packet(head31, "\x3a", alive, idA)},
	{"5.0 password without user name", packet(head5, "\x42", alive, noProps, idA, "\x00\x01p")},
	{"binary password", packet(head311, "\xc2", alive, idA, "\x00\x01u", "\x00\x03\x00\xff\xfe")},
	{"binary will payload", packet(head311, "\x06", alive, idA, "\x00\x01w", "\x00\x02\x00\xff")},
	{"empty will payload", packet(head311, "\x06", alive, idA, "\x00\x01w", "\x00\x00")},
	{"will topic with $ and empty levels", packet(head311, "\x06", alive, idA, "\x00\x05$a//b", "\x00\x00")},
	{"discouraged characters", packet(head311, "\x02", alive, "\x00\x07\x01\x7f\ufeff\u0085")},
	{"four byte rune", packet(head311, "\x02", alive, "\x00\x04\U0001F600")},
	{"3.1.1 remaining length longer than need be", append([]byte{0x10, 0x8d, 0x00}, head311+"\x02"+alive+idA...)},
	{"Authentication Data before its method", packet(head5, "\x02", alive, "\x09\x16\x00\x01d\x15\x00\x02me", idA)},
	{"Keep Alive 0", packet(head311, "\x02", "\x00\x00", idA)},
	{"longest client id", packet(head311, "\x02", alive, "\xff\xff", strings.Repeat("x", 65535))},
}

func TestParseConnectAccepts(t *testing.T) {
	for _, tt := range accepted {
		t.Run(tt.name, func(t *testing.T) {
			if _, n, err := ParseConnect(tt.b, 0); err != nil || n != len(tt.b) {
				t.Fatalf("n %d of %d, %v", n, len(tt.b), err)
			}
			cutAtEveryByte(t, tt.b[:min(len(tt.b), 100)])
		})
	}
}

func TestParseConnectTellsWhichCredentialsCame(t *testing.T) {
	c, _, err := ParseConnect(packet(head31, "\xc2", alive, idA, "\x00\x01u"), 0)
	if err != nil || !c.HasUsername || c.HasPassword || string(c.Username) != "u" || c.Flags != 0xc2 {
		t.Errorf("3.1 with user name only: %+v, %v", c, err)
	}
	c, _, err = ParseConnect(packet(head311, "\xc2", alive, idA, "\x00\x00", "\x00\x00"), 0)
	if err != nil || !c.HasUsername || !c.HasPassword || c.Username == nil || c.Password == nil {
		t.Errorf("3.1.1 with both empty: %+v, %v", c, err)
	}
}

const (
	w = "\x00\x01w" // will topic
	m = "\x00\x01m" // will payload
)

// v5with is a CONNECT of 5.0 with the given properties.
func v5with(props string) []byte {
	return packet(head5, "\x02", alive, string(appendVarint(nil, len(props))), props, idA)
}

// v5will is a CONNECT of 5.0 with the given properties of its will.
func v5will(props string) []byte {
	return packet(head5, "\x06", alive, noProps, idA, string(appendVarint(nil, len(props))), props, w, m)
}

// Each row is refused, and not before at bytes of it are there: the byte that
// tells is the at-th. at 0 stands for the whole row.
var refused = []struct {
	name   string
	b      []byte
	at     int
	v      Version
	reason Reason
	says   string // part of Detail
}{
	// Fixed header.
	{"reserved bits of the fixed header", []byte("\x11"), 1, 0, MalformedPacket, "[MQTT-2.1.3-1]"},
	{"remaining length of five bytes", []byte("\x10\xff\xff\xff\xff\x01"), 5, 0, MalformedPacket, "fourth byte"},
	{"remaining length too short for a level", packet("\x00\x04MQTT"), 2, 0, MalformedPacket, "too short"},
	{"remaining length too short for the longer name", packet("\x00\x06MQIsd"), 4, 0, MalformedPacket, "too short"}, // it once asked for more bytes than the packet has
	{"5.0 remaining length longer than need be", append([]byte{0x10, 0x8e, 0x00}, head5+"\x02"+alive+noProps+idA...), 10, V5, MalformedPacket, "[MQTT-1.5.5-1]"},

	// Protocol name and level.
	{"name of no known length", packet("\x00\x05MQTTx\x04\x02", alive, idA), 4, 0, UnsupportedProtocolVersion, "[MQTT-3.1.2-1]"},
	{"name that is not MQTT", packet("\x00\x04MQTx\x04\x02", alive, idA), 8, 0, UnsupportedProtocolVersion, `MQTx`},
	{"name in lower case", packet("\x00\x04mqtt\x04\x02", alive, idA), 5, 0, UnsupportedProtocolVersion, "[MQTT-3.1.2-1]"},
	{"name that begins as MQIsdp", packet("\x00\x06MQIsdP\x03\x02", alive, idA), 10, 0, UnsupportedProtocolVersion, "[MQTT-3.1.2-1]"},
	{"MQTT level 3", packet("\x00\x04MQTT\x03\x02", alive, idA), 9, V311, UnsupportedProtocolVersion, "0x03"},
	{"MQTT level 0", packet("\x00\x04MQTT\x00\x02", alive, idA), 9, V311, UnsupportedProtocolVersion, "0x00"},
	{"MQTT level 6", packet("\x00\x04MQTT\x06\x02", alive, idA), 9, V5, UnsupportedProtocolVersion, "0x06"},
	{"MQTT level 6 and nothing else", packet("\x00\x04MQTT\x06"), 9, V5, UnsupportedProtocolVersion, "0x06"},
	{"MQTT level 3 with bridge bit", packet("\x00\x04MQTT\x83\x02", alive, idA), 9, V311, UnsupportedProtocolVersion, "0x83"},
	{"MQIsdp level 4", packet("\x00\x06MQIsdp\x04\x02", alive, idA), 11, V311, UnsupportedProtocolVersion, "MQIsdp"},

	// Connect flags.
	{"3.1.1 reserved flag", packet(head311, "\x03", alive, idA), 10, V311, MalformedPacket, "[MQTT-3.1.2-3]"},
	{"5.0 reserved flag", packet(head5, "\x03", alive, noProps, idA), 10, V5, MalformedPacket, "[MQTT-3.1.2-3]"},
	{"Will QoS 3", packet(head311, "\x1e", alive, idA, w, m), 10, V311, MalformedPacket, "Will QoS"},
	{"3.1 Will QoS 3 with a will", packet(head31, "\x1e", alive, idA, w, m), 12, V31, MalformedPacket, "Will QoS"},
	{"Will QoS without a will", packet(head311, "\x0a", alive, idA), 10, V311, MalformedPacket, "without a will"},
	{"Will Retain without a will", packet(head5, "\x22", alive, noProps, idA), 10, V5, MalformedPacket, "without a will"},
	{"3.1.1 password without user name", packet(head311, "\x42", alive, idA, "\x00\x01p"), 10, V311, MalformedPacket, "[MQTT-3.1.2-22]"},
	{"3.1 password without user name", packet(head31, "\x42", alive, idA, "\x00\x01p"), 12, V31, MalformedPacket, "[MQTT-3.1.2-22]"},

	// Lengths that cannot be right.
	{"no room for a client id", packet(head311, "\x02", alive), 9, V311, MalformedPacket, "too few"},
	{"no room for the properties", packet(head5, "\x02", alive, "\x00\x00"), 9, V5, MalformedPacket, "too few"},
	{"no room for the announced fields", packet(head311, "\xc6", alive, idA), 10, V311, MalformedPacket, "0xc6"},
	{"more than the announced fields can fill", packet(head311, "\x02", alive, strings.Repeat("\x00", 65538)), 12, V311, MalformedPacket, "0x02"},
	{"client id past the end", packet(head311, "\x02", alive, "\x00\x02a"), 14, V311, MalformedPacket, "Client Identifier"},
	{"client id past the end by its first length byte", packet(head311, "\x02", alive, "\x01\x02a"), 13, V311, MalformedPacket, "Client Identifier"},
	{"client id takes the user name's room", packet(head311, "\x82", alive, idA, "\x00"), 14, V311, MalformedPacket, "Client Identifier"},
	{"bytes behind the client id", packet(head311, "\x02", alive, idA, "z"), 14, V311, MalformedPacket, "leaves 1 bytes over"},
	{"bytes behind the password", packet(head311, "\xc2", alive, idA, "\x00\x01u", "\x00\x01p", "z"), 20, V311, MalformedPacket, "Password"},
	{"3.1 half a user name", packet(head31, "\x82", alive, idA, "\x00"), 17, V31, MalformedPacket, "User Name"},

	// Text.
	{"client id with U+0000", packet(head311, "\x02", alive, "\x00\x03a\x00b"), 16, V311, MalformedPacket, "[MQTT-1.5.4-2]"},
	{"client id not UTF-8", packet(head5, "\x02", alive, noProps, "\x00\x03a\xffb"), 17, V5, MalformedPacket, "[MQTT-1.5.4-1]"},
	{"client id with a surrogate", packet(head311, "\x02", alive, "\x00\x03\xed\xa0\x80"), 16, V311, MalformedPacket, "[MQTT-1.5.4-1]"},
	{"client id overlong", packet(head311, "\x02", alive, "\x00\x02\xc0\x80"), 15, V311, MalformedPacket, "[MQTT-1.5.4-1]"},
	{"client id ends within a rune", packet(head311, "\x02", alive, "\x00\x02a\xe2"), 16, V311, MalformedPacket, "[MQTT-1.5.4-1]"},
	{"user name with U+0000", packet(head311, "\x82", alive, idA, "\x00\x01\x00"), 0, V311, MalformedPacket, "User Name"},
	{"will topic not UTF-8", packet(head311, "\x06", alive, idA, "\x00\x01\xff", m), 18, V311, MalformedPacket, "Will Topic"},
	{"will topic with #", packet(head5, "\x06", alive, noProps, idA, "\x00", "\x00\x03a/#", m), 22, V5, ProtocolError, "[MQTT-3.3.2-2]"},
	{"will topic with +", packet(head311, "\x06", alive, idA, "\x00\x03+/a", m), 18, V311, ProtocolError, "[MQTT-3.3.2-2]"},
	{"will topic empty", packet(head5, "\x06", alive, noProps, idA, "\x00", "\x00\x00", "\x00\x02mm"), 19, V5, ProtocolError, "[MQTT-4.7.3-1]"},

	// Properties.
	{"properties past the end", packet(head5, "\x02", alive, "\x05", idA), 13, V5, MalformedPacket, "properties"},
	{"properties past the end by their first length byte", packet(head5, "\x02", alive, "\x80\x01", idA), 13, V5, MalformedPacket, "properties"},
	{"properties take the client id's room", packet(head5, "\x02", alive, "\x02", idA), 13, V5, MalformedPacket, "properties"},
	{"property length longer than need be", packet(head5, "\x02", alive, "\x80\x00", strings.Repeat("x", 140)), 15, V5, MalformedPacket, "[MQTT-1.5.5-1]"},
	{"property length of five bytes", packet(head5, "\x02", alive, "\xff\xff\xff\xff\x01", idA), 13, V5, MalformedPacket, "properties"},
	{"unknown property", v5with("\x7f\x00"), 14, V5, MalformedPacket, "0x7f"},
	{"property identifier of two bytes", v5with("\x91\x00\x00\x00"), 14, V5, MalformedPacket, "0x91"},
	{"property of another packet", v5with("\x13\x00\x01"), 14, V5, MalformedPacket, "Server Keep Alive"},
	{"will property in CONNECT", v5with("\x18\x00\x00\x00\x01"), 14, V5, MalformedPacket, "Will Delay Interval"},
	{"CONNECT property in the will", v5will("\x21\x00\x01"), 18, V5, MalformedPacket, "Receive Maximum"},
	{"property cut by the end of its section", v5with("\x11\x00\x00"), 14, V5, MalformedPacket, "Session Expiry Interval"},
	{"text property past the end of its section", v5with("\x15\x00\x03ab"), 16, V5, MalformedPacket, "Authentication Method"},
	{"user property value past the end of its section", v5with("\x26\x00\x01k\x00\x02v"), 19, V5, MalformedPacket, "User Property"},
	{"user property key takes the value's room", v5with("\x26\x00\x02kk\x00"), 16, V5, MalformedPacket, "User Property"},
	{"a section of one byte", v5with("\x26"), 13, V5, MalformedPacket, "property"},
	{"text property not UTF-8", v5with("\x15\x00\x01\xff"), 17, V5, MalformedPacket, "Authentication Method"},
	{"user property with U+0000", v5with("\x26\x00\x01\x00\x00\x00"), 17, V5, MalformedPacket, "User Property"},
	{"Receive Maximum 0", v5with("\x21\x00\x00"), 16, V5, ProtocolError, "Receive Maximum is 0"},
	{"Maximum Packet Size 0", v5with("\x27\x00\x00\x00\x00"), 18, V5, ProtocolError, "Maximum Packet Size is 0"},
	{"Request Problem Information 2", v5with("\x17\x02"), 15, V5, ProtocolError, "neither 0 nor 1"},
	{"Request Response Information 2", v5with("\x19\x02"), 15, V5, ProtocolError, "neither 0 nor 1"},
	{"Payload Format Indicator 2", v5will("\x01\x02"), 19, V5, ProtocolError, "neither 0 nor 1"},
	{"Authentication Data without method", v5with("\x16\x00\x01d"), 17, V5, ProtocolError, "Authentication Method"},
	{"property twice", v5with("\x22\x00\x00\x22\x00\x00"), 17, V5, ProtocolError, "twice"},
	{"will property twice", v5will("\x18\x00\x00\x00\x00\x18\x00\x00\x00\x00"), 23, V5, ProtocolError, "twice"},
	{"Response Topic with wildcard", v5will("\x08\x00\x01#"), 21, V5, ProtocolError, "Response Topic"},

	// The refusal that waits for a packet which is otherwise right.
	{"3.1.1 empty client id, Clean Session 0", packet(head311, "\x80", alive, "\x00\x00", "\x00\x01u"), 0, V311, ClientIdentifierNotValid, "[MQTT-3.1.3-8]"},
	{"3.1 empty client id, Clean Session 0", packet(head31, "\x00", alive, "\x00\x00"), 0, V31, ClientIdentifierNotValid, "3.1"},
	{"3.1 empty client id, Clean Session 1", packet(head31, "\x02", alive, "\x00\x00"), 0, V31, ClientIdentifierNotValid, "3.1"},
	{"3.1.1 empty client id, malformed behind it", packet(head311, "\x80", alive, "\x00\x00", "\x00\x01\xff"), 0, V311, MalformedPacket, "User Name"},
}

func TestParseConnectRefusesAsEarlyAsItCanTell(t *testing.T) {
	for _, tt := range refused {
		t.Run(tt.name, func(t *testing.T) {
			at := tt.at
			if at == 0 {
				at = len(tt.b)
			}
			if _, _, err := ParseConnect(tt.b[:at-1], 0); err != ErrShort {
				t.Errorf("one byte less: %v, want ErrShort", err)
			}
			for _, b := range [][]byte{tt.b[:at], tt.b} {
				_, n, err := ParseConnect(b, 0)
				e, ok := errors.AsType[*ConnectError](err)
				if !ok {
					t.Fatalf("%d bytes: %v, want a *ConnectError", len(b), err)
				}
				if n != 0 || e.Version != tt.v || e.Reason != tt.reason || !strings.Contains(e.Detail, tt.says) {
					t.Errorf("%d bytes: n %d, version %s, %v; want version %s, %s, %q", len(b), n, e.Version, e, tt.v, tt.reason, tt.says)
				}
			}
		})
	}
}

func TestParseConnectNamesWhatElseCame(t *testing.T) {
	for _, tt := range []struct{ first, says string }{
		{"G", `not a CONNECT: first byte 0x47 ("G"), looks like HTTP`},
		{"GET /mqtt HTTP/1.1\r\n", "looks like HTTP"},
		{"PRI * HTTP/2.0\r\n", "looks like HTTP"},
		{"P", "looks like a PROXY protocol header, but accept_proxy is off here or has taken one already, or HTTP"},
		{"PROXY TCP4 ", "looks like a PROXY protocol header"},
		{"POST ", "looks like HTTP"},
		{"\r\n\r\n\x00\r\nQUIT\n", "looks like a PROXY protocol header"},
		{"\x16", "looks like TLS"},
		{"\x16\x03\x01\x02\x00\x01", "looks like TLS"},
		{"\x16\x00", "reserved bits"},
		{"SSH-2.0-", "looks like SSH"},
		{"\x30\x05", "as of a PUBLISH; the first packet has to be CONNECT [MQTT-3.1.0-1]"},
		{"\xc0\x00", "as of a PINGREQ"},
		{"\x00", "not a CONNECT: first byte 0x00"},
	} {
		_, _, err := ParseConnect([]byte(tt.first), 0)
		e, ok := errors.AsType[*ConnectError](err)
		if !ok || e.Version != 0 || !strings.Contains(e.Detail, tt.says) {
			t.Errorf("%q: %v, want %q", tt.first, err, tt.says)
		}
		if got := AppendConnack(nil, e.Version, e.Reason); len(got) != 0 {
			t.Errorf("%q: is answered with %x", tt.first, got)
		}
	}
}

func TestParseConnectTooLarge(t *testing.T) {
	big := packet(head5, "\x02", alive, noProps, "\x00\xc8", strings.Repeat("x", 200))
	if _, n, err := ParseConnect(big, len(big)); err != nil || n != len(big) {
		t.Errorf("exactly the limit: n %d, %v", n, err)
	}
	level := bytes.IndexByte(big, 0x05)
	if _, _, err := ParseConnect(big[:level], len(big)-1); err != ErrShort {
		t.Errorf("before the level: %v, want ErrShort", err)
	}
	for _, b := range [][]byte{big[:level+1], big} {
		_, _, err := ParseConnect(b, len(big)-1)
		if e, ok := errors.AsType[*ConnectError](err); !ok || e.Version != V5 || e.Reason != PacketTooLarge {
			t.Errorf("%d bytes: %v, want PacketTooLarge in 5.0", len(b), err)
		}
	}
	_, _, err := ParseConnect([]byte("\x10\xff\xff\xff\x7f"+head311), 65536)
	e, ok := errors.AsType[*ConnectError](err)
	if !ok || e.Version != V311 || e.Reason != PacketTooLarge {
		t.Fatalf("256 MiB announced: %v", err)
	}
	if b := AppendConnack(nil, e.Version, e.Reason); len(b) != 0 {
		t.Errorf("a 3.1.1 client is answered %x, which has no return code for it", b)
	}
}

func TestParseConnectGivesForLogsWhatCameBeforeTheFault(t *testing.T) {
	c, _, err := ParseConnect(packet(head311, "\x06", alive, "\x00\x05dev-1", "\x00\x01#", "\x00\x00"), 0)
	if err == nil || string(c.ClientID) != "dev-1" {
		t.Errorf("client id %q, %v", c.ClientID, err)
	}
}

func TestErrorsSayWhatIsWrongInWords(t *testing.T) {
	_, _, err := ParseConnect(packet(head311, "\x42", alive, idA, "\x00\x01p"), 0)
	if want := "CONNECT: Malformed Packet (0x81): password flag without user name flag (3.1.1 [MQTT-3.1.2-22])"; err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
	_, _, err = ParseConnack([]byte{0xd0, 0}, V311)
	if want := "PINGRESP: Protocol Error (0x82): came where CONNACK was due [MQTT-3.2.0-1]"; err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}

func TestConnectErrorsHoldNoCredentials(t *testing.T) {
	for _, b := range [][]byte{
		packet(head311, "\xc2", alive, idA, "\x00\x07secret\xff", "\x00\x01p"),
		packet(head311, "\xc2", alive, idA, "\x00\x01u", "\x00\x06secret", "z"),
		packet(head5, "\x02", alive, "\x09\x16\x00\x06secret", idA),
	} {
		if _, _, err := ParseConnect(b, 0); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", b, err)
		}
	}
}

func TestAppendConnectIsParsedBack(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    ConnectOptions
		want string // hex, if told
	}{
		{"3.1.1 as small as can be", ConnectOptions{CleanStart: true}, "100c00044d5154540402" + "0000" + "0000"},
		{"3.1 bridge", ConnectOptions{Version: V31, Bridge: true, ClientID: "b"}, "100f00064d51497364708300" + "0000" + "000162"},
		{"3.1.1 with all", ConnectOptions{
			ClientID: "a", KeepAlive: 60, Username: []byte{}, Password: []byte("p"),
			Will: &Will{Topic: "w", Payload: []byte("m"), QoS: 2, Retain: true},
		}, ""},
		{"5.0 with all", ConnectOptions{
			Version: V5, ClientID: strings.Repeat("a", 300), CleanStart: true, KeepAlive: 60, Password: []byte("p"),
			Properties: Properties(nil).AppendUint(PropReceiveMaximum, 20).AppendUser("k", "v"),
			Will: &Will{Topic: "w", QoS: 1,
				Properties: Properties(nil).AppendUint(PropWillDelayInterval, 5).AppendText(PropContentType, "text")},
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := AppendConnect([]byte("before"), tt.o)
			b, ok := bytes.CutPrefix(b, []byte("before"))
			if !ok {
				t.Fatal("what stood in the slice is gone")
			}
			if tt.want != "" && hex.EncodeToString(b) != tt.want {
				t.Errorf("got %x, want %s", b, tt.want)
			}
			c, n, err := ParseConnect(b, 0)
			if err != nil || n != len(b) {
				t.Fatalf("%x: n %d of %d, %v", b, n, len(b), err)
			}
			if again := AppendConnect(nil, optionsOf(c)); !bytes.Equal(again, b) {
				t.Errorf("written %x\nread and written %x", b, again)
			}
		})
	}
}

// optionsOf gives the options that write c.
func optionsOf(c Connect) ConnectOptions {
	o := ConnectOptions{
		Version: c.Version, Bridge: c.Bridge, ClientID: string(c.ClientID), CleanStart: c.CleanStart,
		KeepAlive: c.KeepAlive, Username: c.Username, Password: c.Password, Properties: c.Properties,
	}
	if c.HasWill {
		o.Will = &Will{
			Topic: string(c.WillTopic), Payload: c.WillPayload, QoS: c.WillQoS, Retain: c.WillRetain,
			Properties: c.WillProperties,
		}
	}
	return o
}

func TestParseConnectDoesNotAllocate(t *testing.T) {
	for _, name := range parseCases {
		for _, s := range readCase(t, name) {
			if _, _, err := ParseConnect(s.bytes, 65536); err != nil {
				continue
			}
			allocs := testing.AllocsPerRun(100, func() {
				ParseConnect(s.bytes, 65536)
				ParseConnect(s.bytes[:len(s.bytes)/2], 65536)
			})
			if allocs != 0 {
				t.Errorf("%s/%s: %v allocations", name, s.label, allocs)
			}
		}
	}
}

func FuzzParseConnect(f *testing.F) {
	for _, name := range parseCases {
		for _, s := range readCase(f, name) {
			f.Add(s.bytes, 0)
		}
	}
	for _, row := range accepted {
		if len(row.b) < 1024 {
			f.Add(row.b, 0)
		}
	}
	for _, row := range refused {
		if len(row.b) < 1024 {
			f.Add(row.b, 0)
		}
	}
	f.Add([]byte("\x16\x03\x01"), 0)
	f.Add([]byte("PROXY TCP4"), 0)
	f.Add(packet(head31, "\xc2", alive, idA), 16)
	f.Add(packet(head311, "\x02", alive, idA), 10)
	f.Fuzz(func(t *testing.T, b []byte, max int) {
		c, n, err := ParseConnect(b, max)
		if n < 0 || err == nil && n > len(b) {
			t.Fatalf("n is %d of %d", n, len(b))
		}
		if e, ok := errors.AsType[*ConnectError](err); ok {
			if n != 0 || e.Detail == "" || !slices.Contains([]Reason{MalformedPacket, ProtocolError, UnsupportedProtocolVersion, ClientIdentifierNotValid, PacketTooLarge}, e.Reason) {
				t.Fatalf("n %d, %v", n, err)
			}
			if a := AppendConnack(nil, e.Version, e.Reason); len(a) > 0 {
				if k, m, err := ParseConnack(a, e.Version); err != nil || m != len(a) || k.Accepted() || k.Reason() != e.Reason {
					t.Fatalf("answer %x: %+v, %v", a, k, err)
				}
			}
			return
		}
		if err != nil {
			if err != ErrShort || n != 0 && n <= len(b) {
				t.Fatalf("n %d of %d, %v", n, len(b), err)
			}
			return
		}
		if again, m, err := ParseConnect(b[:n], max); err != nil || m != n || !reflect.DeepEqual(again, c) {
			t.Fatalf("its own bytes: n %d then %d, %v\n%+v\n%+v", n, m, err, c, again)
		}
		for k := range n {
			if _, m, err := ParseConnect(b[:k], max); err != ErrShort || m != 0 && m != n {
				t.Fatalf("the first %d bytes of %d: n %d, %v", k, n, m, err)
			}
		}
		written := AppendConnect(nil, optionsOf(c))
		d, m, err := ParseConnect(written, 0)
		if err != nil || m != len(written) {
			t.Fatalf("written anew: %x, n %d, %v", written, m, err)
		}
		if c.Version != V31 && len(written) == n && !bytes.Equal(written, b[:n]) { // longer: a remaining length of more bytes than need be
			t.Fatalf("read %x\nwrote %x", b[:n], written)
		}
		d.Flags = c.Flags // 3.1 disregards some
		if !reflect.DeepEqual(c, d) {
			t.Fatalf("read %+v\nthen %+v", c, d)
		}
	})
}

func BenchmarkParseConnect(b *testing.B) {
	for _, s := range readCase(b, "C005") {
		b.Run(s.label, func(b *testing.B) {
			b.SetBytes(int64(len(s.bytes)))
			for b.Loop() {
				if _, _, err := ParseConnect(s.bytes, 65536); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
