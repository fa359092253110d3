package pp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/pires/go-proxyproto"
)

// C013: a header names one family, and both addresses are written in it.
func TestAppend_C013_ClientAndDestinationOfDifferentFamilies(t *testing.T) {
	addr := netip.MustParseAddrPort
	for _, tt := range []struct {
		name     string
		src, dst netip.AddrPort
		v1, v2   string // v2: from byte 13 on
	}{
		{
			"(a) client IPv6, destination IPv4",
			addr("[2001:db8::a]:40001"), addr("192.0.2.5:8883"),
			"PROXY TCP6 2001:db8::a ::ffff:192.0.2.5 40001 8883\r\n",
			"21 21 0024 20010db800000000000000000000000a 00000000000000000000ffffc0000205 9c41 22b3",
		},
		{
			"(b) client IPv4, destination IPv6",
			addr("192.0.2.5:40001"), addr("[2001:db8::a]:8883"),
			"PROXY TCP6 ::ffff:192.0.2.5 2001:db8::a 40001 8883\r\n",
			"21 21 0024 00000000000000000000ffffc0000205 20010db800000000000000000000000a 9c41 22b3",
		},
		{
			"(a) again, destination mapped by a dual-stack socket",
			addr("[2001:db8::a]:40001"), addr("[::ffff:192.0.2.5]:8883"),
			"PROXY TCP6 2001:db8::a ::ffff:192.0.2.5 40001 8883\r\n",
			"21 21 0024 20010db800000000000000000000000a 00000000000000000000ffffc0000205 9c41 22b3",
		},
		{
			"(c) both mapped",
			addr("[::ffff:192.0.2.10]:40001"), addr("[::ffff:198.51.100.5]:8883"),
			"PROXY TCP4 192.0.2.10 198.51.100.5 40001 8883\r\n",
			"21 11 000c c000020a c6336405 9c41 22b3",
		},
		{
			"(c) one mapped, one plain",
			addr("[::ffff:192.0.2.10]:40001"), addr("198.51.100.5:8883"),
			"PROXY TCP4 192.0.2.10 198.51.100.5 40001 8883\r\n",
			"21 11 000c c000020a c6336405 9c41 22b3",
		},
		{
			"(d) both IPv6",
			addr("[2001:db8::a]:40001"), addr("[2001:db8::b]:8883"),
			"PROXY TCP6 2001:db8::a 2001:db8::b 40001 8883\r\n",
			"21 21 0024 20010db800000000000000000000000a 20010db800000000000000000000000b 9c41 22b3",
		},
		{
			"both IPv4",
			addr("192.0.2.10:0"), addr("198.51.100.5:65535"),
			"PROXY TCP4 192.0.2.10 198.51.100.5 0 65535\r\n",
			"21 11 000c c000020a c6336405 0000 ffff",
		},
		{
			"zone, which no header can carry",
			addr("[fe80::1%eth0]:1"), addr("[fe80::2%eth0]:2"),
			"PROXY TCP6 fe80::1 fe80::2 1 2\r\n",
			"21 21 0024 fe800000000000000000000000000001 fe800000000000000000000000000002 0001 0002",
		},
		{"no addresses", netip.AddrPort{}, netip.AddrPort{}, "PROXY UNKNOWN\r\n", "20 00 0000"},
		{"no source", netip.AddrPort{}, addr("192.0.2.5:1"), "PROXY UNKNOWN\r\n", "20 00 0000"},
		{"no destination", addr("192.0.2.5:1"), netip.AddrPort{}, "PROXY UNKNOWN\r\n", "20 00 0000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := AppendV1([]byte("before "), tt.src, tt.dst); string(got) != "before "+tt.v1 {
				t.Errorf("v1\n got %q\nwant %q", got, "before "+tt.v1)
			}
			got, err := AppendV2([]byte("before "), Header{Command: Proxy, Source: tt.src, Destination: tt.dst}, false)
			if err != nil {
				t.Fatal(err)
			}
			if want := "before " + signatureV2 + string(unhex(t, tt.v2)); string(got) != want {
				t.Errorf("v2\n got %x\nwant %x", got, want)
			}
		})
	}
}

// The library writes the same bytes, so two authors read the specification alike.
func TestAppend_AgreesWithGoProxyproto(t *testing.T) {
	for _, tt := range []struct{ src, dst string }{
		{"192.0.2.10:40001", "198.51.100.5:8883"},
		{"[2001:db8::a]:40001", "[2001:db8::b]:8883"},
		{"[2001:db8::a]:40001", "198.51.100.5:8883"},
		{"192.0.2.10:40001", "[2001:db8::b]:8883"},
		{"[::ffff:192.0.2.10]:40001", "[::ffff:198.51.100.5]:8883"},
	} {
		src, dst := netip.MustParseAddrPort(tt.src), netip.MustParseAddrPort(tt.dst)
		tlvs := []TLV{{ALPN, []byte("mqtt")}, {UniqueID, []byte("conn-7")}}

		lib := proxyproto.HeaderProxyFromAddrs(1, net.TCPAddrFromAddrPort(src), net.TCPAddrFromAddrPort(dst))
		want, err := lib.Format()
		if err != nil {
			t.Fatal(err)
		}
		if got := AppendV1(nil, src, dst); !bytes.Equal(got, want) {
			t.Errorf("v1 %s → %s\n got %q\nwant %q", tt.src, tt.dst, got, want)
		}

		lib.Version = 2
		if err := lib.SetTLVs([]proxyproto.TLV{
			{Type: proxyproto.PP2_TYPE_ALPN, Value: tlvs[0].Value},
			{Type: proxyproto.PP2_TYPE_UNIQUE_ID, Value: tlvs[1].Value},
		}); err != nil {
			t.Fatal(err)
		}
		if want, err = lib.Format(); err != nil {
			t.Fatal(err)
		}
		got, err := AppendV2(nil, Header{Command: Proxy, Source: src, Destination: dst, TLVs: tlvs}, false)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("v2 %s → %s: %v\n got %x\nwant %x", tt.src, tt.dst, err, got, want)
		}
	}
}

func TestAppendV2_ZeroHeaderIsTheShortestLocal(t *testing.T) {
	got, err := AppendV2(nil, Header{}, false)
	if want := signatureV2 + "\x20\x00\x00\x00"; err != nil || string(got) != want {
		t.Errorf("got %x, %v, want %x", got, err, want)
	}
}

func TestAppendV2_LocalWritesTLVsButNoAddresses(t *testing.T) {
	h := Header{
		Command:     Local,
		Source:      netip.MustParseAddrPort("192.0.2.1:1"),
		Destination: netip.MustParseAddrPort("192.0.2.2:2"),
		TLVs:        []TLV{{UniqueID, []byte("u")}},
	}
	got, err := AppendV2(nil, h, false)
	if want := signatureV2 + "\x20\x00\x00\x04\x05\x00\x01u"; err != nil || string(got) != want {
		t.Errorf("got %x, %v, want %x", got, err, want)
	}
}

// Bit by bit as RFC 9260, Appendix A, describes it: slow, and not of the
// standard library.
func crc32c(b []byte) uint32 {
	sum := ^uint32(0)
	for _, c := range b {
		sum ^= uint32(c)
		for range 8 {
			sum = sum>>1 ^ 0x82F63B78*(sum&1)
		}
	}
	return ^sum
}

func TestAppendV2_ChecksumIsOfTheWholeHeaderWithZerosInItsPlace(t *testing.T) {
	if sum := crc32c([]byte("123456789")); sum != 0xE3069283 {
		t.Fatalf("the reference gives %08x for the check value", sum)
	}
	h := Header{
		Command:     Proxy,
		Source:      netip.MustParseAddrPort("192.0.2.10:40001"),
		Destination: netip.MustParseAddrPort("198.51.100.5:8883"),
		TLVs:        []TLV{{ALPN, []byte("mqtt")}},
	}
	const before = "not of the header"
	got, err := AppendV2([]byte(before), h, true)
	if err != nil {
		t.Fatal(err)
	}
	header := bytes.Clone(got[len(before):])
	if size := int(binary.BigEndian.Uint16(header[14:])); size != len(header)-16 {
		t.Errorf("length %d for a block of %d bytes", size, len(header)-16)
	}
	head, sum := header[:len(header)-4], binary.BigEndian.Uint32(header[len(header)-4:])
	if !bytes.HasSuffix(head, []byte("\x01\x00\x04mqtt\x03\x00\x04")) {
		t.Fatalf("the checksum is not the last TLV: %x", header)
	}
	if want := crc32c(append(head, 0, 0, 0, 0)); sum != want {
		t.Errorf("checksum %08x, want %08x", sum, want)
	}
}

// An upstream's checksum must not ride along when its TLVs are passed on.
func TestAppendV2_LeavesOutAChecksumThatWasGiven(t *testing.T) {
	h := Header{
		Version: 2, Command: Proxy,
		Source:      netip.MustParseAddrPort("192.0.2.10:40001"),
		Destination: netip.MustParseAddrPort("198.51.100.5:8883"),
		TLVs:        []TLV{{CRC32C, []byte("old!")}, {ALPN, []byte("mqtt")}},
	}
	for _, crc := range []bool{false, true} {
		b, err := AppendV2(nil, h, crc)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte("old!")) {
			t.Errorf("crc %v: %x", crc, b)
		}
		got, n, err := Parse(b, 0)
		if err != nil || n != len(b) {
			t.Fatalf("crc %v: %d, %v", crc, n, err)
		}
		want := h
		want.TLVs = h.TLVs[1:]
		equal(t, got, want)
	}
}

func TestAppendV2_RefusesWhatReceiversMay(t *testing.T) {
	full := func(extra int) Header {
		return Header{
			Command:     Proxy,
			Source:      netip.MustParseAddrPort("192.0.2.10:40001"),
			Destination: netip.MustParseAddrPort("198.51.100.5:8883"),
			TLVs:        []TLV{{0xE1, make([]byte, MaxHeader-16-12-3+extra)}},
		}
	}
	for _, tt := range []struct {
		name string
		h    Header
		crc  bool
		says string // empty: accepted
	}{
		{"exactly at the limit", full(0), false, ""},
		{"one byte over", full(1), false, "4097 bytes"},
		{"over by the checksum", full(-6), true, "4097 bytes"},
		{"at the limit with the checksum", full(-7), true, ""},
		{"a value that no length can say", Header{TLVs: []TLV{{0xE1, make([]byte, 1<<16)}}}, false, "limit is 4096"},
		{"longest UNIQUE_ID", Header{TLVs: []TLV{{UniqueID, make([]byte, 128)}}}, false, ""},
		{"UNIQUE_ID too long", Header{TLVs: []TLV{{UniqueID, make([]byte, 129)}}}, false, "UNIQUE_ID (0x05) of 129 bytes"},
		{"CN that no length can say", Header{TLVs: []TLV{SSL{CN: strings.Repeat("n", 1<<16+1)}.TLV()}}, false, "limit is 4096"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := AppendV2([]byte("kept"), tt.h, tt.crc)
			if tt.says == "" {
				if err != nil || len(got) > MaxHeader+len("kept") {
					t.Fatalf("%d bytes, %v", len(got), err)
				}
				return
			}
			if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v, want ErrTooLarge that says %q", err, tt.says)
			}
			if string(got) != "kept" {
				t.Errorf("dst became %q", got)
			}
		})
	}
}

func TestAppend_AllocatesNothingIntoABufferWithRoom(t *testing.T) {
	src, dst := netip.MustParseAddrPort("192.0.2.10:40001"), netip.MustParseAddrPort("[2001:db8::b]:8883")
	h := Header{Command: Proxy, Source: src, Destination: dst, TLVs: []TLV{{UniqueID, []byte("conn-7")}}}
	buf := make([]byte, 0, 512)
	if n := testing.AllocsPerRun(100, func() { AppendV1(buf, src, dst) }); n != 0 {
		t.Errorf("AppendV1 allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := AppendV2(buf, h, true); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("AppendV2 allocates %v times", n)
	}
}
