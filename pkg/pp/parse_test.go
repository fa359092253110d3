package pp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func equal(t testing.TB, got, want Header) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("header\n got %+v\nwant %+v", got, want)
	}
}

func TestParseV1_AcceptsEveryFormOfTheLine(t *testing.T) {
	addr := netip.MustParseAddrPort
	for _, tt := range []struct {
		name, line string
		src, dst   netip.AddrPort
	}{
		{"TCP4", "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n", addr("192.0.2.1:56324"), addr("198.51.100.2:443")},
		{"TCP4 with ports at their ends", "PROXY TCP4 0.0.0.0 255.255.255.255 0 65535\r\n", addr("0.0.0.0:0"), addr("255.255.255.255:65535")},
		{"TCP6", "PROXY TCP6 2001:db8::1 2001:DB8::2 1 2\r\n", addr("[2001:db8::1]:1"), addr("[2001:db8::2]:2")},
		{"longest TCP6", "PROXY TCP6 " + strings.Repeat("ffff:", 7) + "ffff " + strings.Repeat("ffff:", 7) + "ffff 65535 65535\r\n",
			addr("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"), addr("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535")},
		{"mapped address is the IPv4 one", "PROXY TCP6 ::ffff:192.0.2.1 2001:db8::2 1 2\r\n", addr("192.0.2.1:1"), addr("[2001:db8::2]:2")},
		{"UNKNOWN", "PROXY UNKNOWN\r\n", netip.AddrPort{}, netip.AddrPort{}},
		{"UNKNOWN with addresses to ignore", "PROXY UNKNOWN 2001:db8::1 2001:db8::2 1 2\r\n", netip.AddrPort{}, netip.AddrPort{}},
		{"UNKNOWN with anything to ignore", "PROXY UNKNOWN \x00\xff TCP4 1.2.3.4\r\n", netip.AddrPort{}, netip.AddrPort{}},
		{"UNKNOWN of 107 bytes", "PROXY UNKNOWN " + strings.Repeat("x", 107-14-2) + "\r\n", netip.AddrPort{}, netip.AddrPort{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			acceptedWholeOnly(t, []byte(tt.line+connect), len(tt.line), Header{Version: 1, Command: Proxy, Source: tt.src, Destination: tt.dst})
		})
	}
}

// v2 builds a header by hand: byte 13, byte 14, then the block behind the length.
func v2(command, transport byte, block ...string) string {
	all := strings.Join(block, "")
	return signatureV2 + string([]byte{command, transport}) + string(binary.BigEndian.AppendUint16(nil, uint16(len(all)))) + all
}

func tlv(t TLVType, value string) string { return string(appendTLV(nil, t, value)) }

const (
	ipv4Block = "\xc0\x00\x02\x01\xc6\x33\x64\x02\xdc\x04\x01\xbb" // 192.0.2.1:56324 → 198.51.100.2:443
	ipv6Block = "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" +
		"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xc6\x33\x64\x02\xdc\x04\x01\xbb" // [2001:db8::1]:56324 → mapped
)

func TestParseV2_AcceptsEveryStreamTransport(t *testing.T) {
	src4, dst4 := netip.MustParseAddrPort("192.0.2.1:56324"), netip.MustParseAddrPort("198.51.100.2:443")
	src6 := netip.MustParseAddrPort("[2001:db8::1]:56324")
	ssl := SSL{Client: true, Version: "TLSv1.3", Verify: NotVerified}.TLV()
	for _, tt := range []struct {
		name, header string
		want         Header
	}{
		{"TCP over IPv4", v2(0x21, 0x11, ipv4Block), Header{2, Proxy, src4, dst4, nil}},
		{"TCP over IPv6, mapped address read as IPv4", v2(0x21, 0x21, ipv6Block), Header{2, Proxy, src6, dst4, nil}},
		{"UNIX stream has no addresses to give", v2(0x21, 0x31, strings.Repeat("/", 216), tlv(UniqueID, "u")),
			Header{Version: 2, Command: Proxy, TLVs: []TLV{{UniqueID, []byte("u")}}}},
		{"UNSPEC", v2(0x21, 0x00), Header{Version: 2, Command: Proxy}},
		{"UNSPEC with TLVs", v2(0x21, 0x00, tlv(UniqueID, "u")), Header{Version: 2, Command: Proxy, TLVs: []TLV{{UniqueID, []byte("u")}}}},
		{"LOCAL without a block", v2(0x20, 0x00), Header{Version: 2}},
		{"LOCAL with a block too small for its family", v2(0x20, 0x21, "dummy"), Header{Version: 2}},
		{"LOCAL of a family that is not defined", v2(0x20, 0xFF, ipv4Block), Header{Version: 2}},
		{"LOCAL with a TLV that overruns", v2(0x20, 0x00, "\x05\xff\xffu"), Header{Version: 2}},
		{"TLVs in order, unknown and cloud types kept", v2(0x21, 0x11, ipv4Block, tlv(0xEA, "\x01vpce-1"), tlv(ALPN, "mqtt"), tlv(0xEA, "again"), tlv(Authority, "")),
			Header{2, Proxy, src4, dst4, []TLV{{0xEA, []byte("\x01vpce-1")}, {ALPN, []byte("mqtt")}, {0xEA, []byte("again")}, {Authority, []byte{}}}}},
		{"padding left out", v2(0x21, 0x11, ipv4Block, tlv(NoOp, ""), tlv(NoOp, "xxx"), tlv(NetNS, "ns")),
			Header{2, Proxy, src4, dst4, []TLV{{NetNS, []byte("ns")}}}},
		{"SSL", v2(0x21, 0x11, ipv4Block, tlv(SSLInfo, string(ssl.Value))), Header{2, Proxy, src4, dst4, []TLV{ssl}}},
		{"longest UNIQUE_ID", v2(0x21, 0x11, ipv4Block, tlv(UniqueID, strings.Repeat("u", 128))),
			Header{2, Proxy, src4, dst4, []TLV{{UniqueID, bytes.Repeat([]byte("u"), 128)}}}},
		{"exactly at the limit", v2(0x21, 0x11, ipv4Block, tlv(0xE0, strings.Repeat("x", MaxHeader-16-12-3))),
			Header{2, Proxy, src4, dst4, []TLV{{0xE0, bytes.Repeat([]byte("x"), MaxHeader-16-12-3)}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			acceptedWholeOnly(t, []byte(tt.header+connect), len(tt.header), tt.want)
		})
	}
}

// Each stream is refused when its last byte is there, and ErrShort before.
func TestParse_RefusesAtTheFirstWrongByte(t *testing.T) {
	for _, tt := range []struct {
		name, bytes string
		want        error
		says        string
	}{
		{"MQTT", "\x10", ErrNoHeader, "MQTT CONNECT"},
		{"TLS", "\x16", ErrNoHeader, "TLS ClientHello"},
		{"HTTP", "G", ErrNoHeader, "HTTP"},
		{"HTTP that starts like the line", "PO", ErrNoHeader, "byte 2 is 0x4F"},
		{"lower case", "p", ErrNoHeader, "0x70"},
		{"no space behind PROXY", "PROXYT", ErrNoHeader, "byte 6"},
		{"binary signature with a wrong end", "\r\n\r\n\x00\r\nQUIT\r", ErrNoHeader, "byte 12"},

		{"v1: UDP4", "PROXY U" + "D", ErrMalformed, `"UD"`},
		{"v1: TCP5", "PROXY TCP5", ErrMalformed, "none of TCP4"},
		{"v1: two spaces", "PROXY  ", ErrMalformed, "none of TCP4"},
		{"v1: line ends behind TCP4", "PROXY TCP4\r", ErrMalformed, "none of TCP4"},
		{"v1: LF alone", "PROXY UNKNOWN \n", ErrMalformed, "CR and LF"},
		{"v1: CR alone", "PROXY UNKNOWN \rx", ErrMalformed, "CR and LF"},
		{"v1: two CR", "PROXY UNKNOWN\r\r", ErrMalformed, "CR and LF"},
		{"v1: host name", "PROXY TCP4 h", ErrMalformed, "byte 12"},
		{"v1: zone", "PROXY TCP6 fe80::1%", ErrMalformed, "byte 19"},
		{"v1: NUL", "PROXY TCP4 1.2.3.4\x00", ErrMalformed, "byte 19"},
		{"v1: sign at a port", "PROXY TCP4 192.0.2.1 192.0.2.2 +", ErrMalformed, "byte 32"},
		{"v1: 107 bytes without an end", "PROXY UNKNOWN " + strings.Repeat("x", 107-14), ErrTooLarge, "107"},

		{"v2: version 1", signatureV2 + "\x11", ErrMalformed, "version 1"},
		{"v2: version 3", signatureV2 + "\x31", ErrMalformed, "version 3"},
		{"v2: command 2", signatureV2 + "\x22", ErrMalformed, "command 2"},
		{"v2: UDP over IPv4", signatureV2 + "\x21\x12", ErrMalformed, "datagram"},
		{"v2: UDP over IPv6", signatureV2 + "\x21\x22", ErrMalformed, "datagram"},
		{"v2: UNIX datagram", signatureV2 + "\x21\x32", ErrMalformed, "datagram"},
		{"v2: IPv4 with a transport that is not defined", signatureV2 + "\x21\x13", ErrMalformed, "0x13"},
		{"v2: IPv4 with transport UNSPEC", signatureV2 + "\x21\x10", ErrMalformed, "0x10"},
		{"v2: family 4", signatureV2 + "\x21\x41", ErrMalformed, "0x41"},
		{"v2: length under IPv4 addresses", signatureV2 + "\x21\x11\x00\x0b", ErrMalformed, "0x11"},
		{"v2: length under IPv6 addresses", signatureV2 + "\x21\x21\x00\x23", ErrMalformed, "0x21"},
		{"v2: length under UNIX addresses", signatureV2 + "\x21\x31\x00\xd7", ErrMalformed, "0x31"},
		{"v2: announces one byte over the limit", signatureV2 + "\x21\x11\x0f\xf1", ErrTooLarge, "4097 bytes in all, the limit is 4096"},
		{"v2: announces all it can", signatureV2 + "\x21\x11\xff\xff", ErrTooLarge, "65551"},
		{"v2: LOCAL over the limit", signatureV2 + "\x20\x00\xff\xff", ErrTooLarge, "65551"},

		{"TLV: no room for its head", v2(0x21, 0x11, ipv4Block, "\x05\x00"), ErrMalformed, "2 stray bytes"},
		{"TLV: overruns the header", v2(0x21, 0x11, ipv4Block, "\x05\x00\x07conn-7"), ErrMalformed, "UNIQUE_ID (0x05) announces 7 bytes, 6 are left"},
		{"TLV: address bytes under UNSPEC", v2(0x21, 0x00, ipv4Block), ErrMalformed, "announces"},
		{"TLV: UNIQUE_ID too long", v2(0x21, 0x11, ipv4Block, tlv(UniqueID, strings.Repeat("u", 129))), ErrMalformed, "129"},
		{"TLV: SSL twice", v2(0x21, 0x11, ipv4Block, tlv(SSLInfo, "\x00\x00\x00\x00\x01"), tlv(SSLInfo, "\x00\x00\x00\x00\x01")), ErrMalformed, "SSL (0x20) stands there twice"},
		{"TLV: SSL too short", v2(0x21, 0x11, ipv4Block, tlv(SSLInfo, "\x01\x00\x00\x00")), ErrMalformed, "4 bytes, at least 5"},
		{"TLV: inside SSL, overruns", v2(0x21, 0x11, ipv4Block, tlv(SSLInfo, "\x01\x00\x00\x00\x00\x22\x00\x09dev")), ErrMalformed, "SSL_CN (0x22) announces 9"},
		{"TLV: inside SSL, CN twice", v2(0x21, 0x11, ipv4Block, tlv(SSLInfo, "\x07\x00\x00\x00\x00"+tlv(SSLCN, "a")+tlv(SSLCN, "b"))), ErrMalformed, "SSL_CN (0x22) stands there twice"},
		{"checksum: wrong", v2(0x21, 0x11, ipv4Block, tlv(CRC32C, "\x00\x00\x00\x00")), ErrMalformed, "checksum 00000000"},
		{"checksum: of two bytes", v2(0x21, 0x11, ipv4Block, tlv(CRC32C, "\x00\x00")), ErrMalformed, "2 bytes, 4 are due"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			refusedAtLastByte(t, tt.bytes, tt.want, tt.says)
		})
	}
}

// What only the whole line can tell, since a shorter address may still grow.
func TestParseV1_RefusesBadAddressesWhenTheLineIsWhole(t *testing.T) {
	for _, tt := range []struct{ name, line string }{
		{"IPv6 under TCP4", "PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n"},
		{"C013: IPv4 under TCP6", "PROXY TCP6 2001:db8::1 192.0.2.1 1 2\r\n"},
		{"number over 255", "PROXY TCP4 192.0.2.256 192.0.2.1 1 2\r\n"},
		{"leading zero in an address", "PROXY TCP4 192.0.02.1 192.0.2.1 1 2\r\n"},
		{"leading zero in a port", "PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n"},
		{"port over 65535", "PROXY TCP4 192.0.2.1 192.0.2.2 1 65536\r\n"},
		{"port missing", "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n"},
		{"all missing", "PROXY TCP4 \r\n"},
		{"two spaces between fields", "PROXY TCP4 192.0.2.1  192.0.2.2 1 2\r\n"},
		{"space at the end", "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n"},
		{"a field too many", "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n"},
		{"two double colons", "PROXY TCP6 2001::db8::1 2001:db8::2 1 2\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			refusedAtLastByte(t, tt.line, ErrMalformed, "")
		})
	}
}

func refusedAtLastByte(t *testing.T, sent string, want error, says string) {
	t.Helper()
	stream := []byte(sent)
	for k := range stream {
		if _, _, err := Parse(stream[:k], 0); !errors.Is(err, ErrShort) {
			t.Fatalf("cut at %d of %d: %v, want ErrShort", k, len(stream), err)
		}
	}
	h, n, err := Parse(stream, 0)
	if !errors.Is(err, want) || !strings.Contains(err.Error(), says) {
		t.Fatalf("error %v, want %v that says %q", err, want, says)
	}
	if n != 0 {
		t.Errorf("%d bytes taken", n)
	}
	equal(t, h, Header{})
}

func TestParse_LimitIsTheCallers(t *testing.T) {
	header := []byte(v2(0x21, 0x11, ipv4Block, tlv(0xE0, strings.Repeat("x", 9000))))
	if _, _, err := Parse(header, 0); !errors.Is(err, ErrTooLarge) {
		t.Errorf("default limit: %v, want ErrTooLarge", err)
	}
	if _, _, err := Parse(header, len(header)-1); !errors.Is(err, ErrTooLarge) {
		t.Errorf("one byte too few: %v, want ErrTooLarge", err)
	}
	if _, n, err := Parse(header, len(header)); err != nil || n != len(header) {
		t.Errorf("raised limit: %d, %v", n, err)
	}
	if _, _, err := Parse([]byte("PROXY UNKNOWN\r\n"), 14); !errors.Is(err, ErrTooLarge) {
		t.Errorf("line over a small limit: %v, want ErrTooLarge", err)
	}
}

// The caller reads on into the same buffer.
func TestParse_HeaderOutlivesTheBuffer(t *testing.T) {
	b := []byte(v2(0x21, 0x11, ipv4Block, tlv(Authority, "broker.example")))
	h, _, err := Parse(b, 0)
	if err != nil {
		t.Fatal(err)
	}
	clear(b)
	if v, ok := h.TLV(Authority); !ok || string(v) != "broker.example" {
		t.Errorf("TLV(Authority) = %q, %v", v, ok)
	}
	if _, ok := h.TLV(ALPN); ok {
		t.Error("TLV(ALPN) found in a header without one")
	}
	if h.Source != netip.MustParseAddrPort("192.0.2.1:56324") {
		t.Errorf("source %v", h.Source)
	}
}

// Behind the fixed part, which frames the header and fails in its own ways.
func TestParse_ChecksumFindsEveryFlippedBit(t *testing.T) {
	want := Header{
		Version: 2, Command: Proxy,
		Source:      netip.MustParseAddrPort("192.0.2.1:56324"),
		Destination: netip.MustParseAddrPort("198.51.100.2:443"),
		TLVs:        []TLV{{Authority, []byte("broker.example")}},
	}
	header, err := AppendV2(nil, want, true)
	if err != nil {
		t.Fatal(err)
	}
	acceptedWholeOnly(t, append(header, connect...), len(header), want)
	for i := len(header) * 8; i > fixedV2*8; i-- {
		flipped := bytes.Clone(header)
		flipped[(i-1)/8] ^= 1 << ((i - 1) % 8)
		// A type that is flipped away from CRC32C leaves a header without checksum.
		if h, _, err := Parse(flipped, 0); err == nil && flipped[len(header)-7] == byte(CRC32C) {
			t.Errorf("bit %d flipped: accepted as %+v", i-1, h)
		}
	}
}

func TestString_SaysWhatTheSpecificationCallsIt(t *testing.T) {
	for _, tt := range []struct {
		v    fmt.Stringer
		want string
	}{
		{Local, "LOCAL"}, {Proxy, "PROXY"}, {Command(2), "Command(2)"},
		{SSLInfo, "SSL (0x20)"}, {TLVType(0xEA), "0xEA"},
	} {
		if got := tt.v.String(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestTLVType_IdentityIsWhatATerminatingListenerDrops(t *testing.T) {
	for _, tt := range []struct {
		t    TLVType
		want bool
	}{
		{SSLInfo, true}, {SubjectDN, true}, {SAN, true}, {Serial, true}, {Fingerprint, true},
		{ALPN, false}, {Authority, false}, {UniqueID, false}, {NetNS, false},
		{0xE0, false}, {0xE5, false}, {0xEA, false}, {0xEE, false},
	} {
		if got := tt.t.Identity(); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.t, got, tt.want)
		}
	}
}
