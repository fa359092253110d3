package pp

import (
	"bufio"
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/pires/go-proxyproto"
)

// FuzzParse holds Parse to what its callers build on: it never panics, pieces
// and later bytes do not change its answer, and what it accepts can be written
// and read again with the same meaning.
func FuzzParse(f *testing.F) {
	for _, file := range []string{"testdata/C011.hex", "testdata/C012.hex", "testdata/haproxy.hex"} {
		for _, s := range streams(f, file) {
			f.Add(s.bytes)
		}
	}
	for _, s := range []string{
		"PROXY UNKNOWN\r\n", "PROXY UNKNOWN x\r\n", "PROXY TCP6 ::ffff:192.0.2.1 2001:db8::1 1 2\r\n", "PROXY TCP4 1.2.3.4 \r\n",
		v2(0x21, 0x21, ipv6Block, tlv(NoOp, "xx"), tlv(SSLInfo, string(SSL{Client: true, CN: "dev"}.TLV().Value))),
		v2(0x21, 0x31, string(make([]byte, 216)), tlv(ALPN, "mqtt")),
		v2(0x21, 0x12, ipv4Block), v2(0x21, 0x11, ipv4Block, "\x05\x00"), connect, "\x16\x03\x01", "GET / HTTP/1.1\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := Parse(b, 0)
		for k := range b {
			hk, nk, errk := Parse(b[:k], 0)
			if errors.Is(errk, ErrShort) {
				if n > 0 && k >= n {
					t.Fatalf("header of %d bytes is short with %d", n, k)
				}
				continue
			}
			if nk != n || !reflect.DeepEqual(hk, h) || (errk == nil) != (err == nil) || errk != nil && errk.Error() != err.Error() {
				t.Fatalf("with %d bytes: %+v, %d, %v\nwith all:  %+v, %d, %v", k, hk, nk, errk, h, n, err)
			}
			break
		}
		if err != nil {
			if n != 0 || !reflect.DeepEqual(h, Header{}) {
				t.Fatalf("error %v beside %+v, %d", err, h, n)
			}
			for _, kind := range []error{ErrShort, ErrNoHeader, ErrMalformed, ErrTooLarge} {
				if errors.Is(err, kind) {
					return
				}
			}
			t.Fatalf("error of no kind: %v", err)
		}
		if n <= 0 || n > len(b) || n > MaxHeader || h.Source.IsValid() != h.Destination.IsValid() {
			t.Fatalf("accepted %+v, %d of %d bytes", h, n, len(b))
		}
		libraryAgrees(t, b[:n], h)
		writesAndReadsBack(t, h)
	})
}

// libraryAgrees on addresses, for the headers that it takes as this package does.
func libraryAgrees(t *testing.T, b []byte, h Header) {
	if !h.Source.IsValid() {
		return
	}
	lib, err := proxyproto.Read(bufio.NewReader(bytes.NewReader(b)))
	if err != nil {
		t.Fatalf("the library refuses %x: %v", b, err)
	}
	src, dst, ok := lib.TCPAddrs()
	if !ok || unmapped(src) != h.Source || unmapped(dst) != h.Destination {
		t.Fatalf("the library reads %v → %v, this %v → %v", src, dst, h.Source, h.Destination)
	}
}

func writesAndReadsBack(t *testing.T, h Header) {
	var forms [][]byte
	switch h.Version {
	case 1:
		forms = append(forms, AppendV1(nil, h.Source, h.Destination))
	case 2:
		for _, crc := range []bool{false, true} {
			b, err := AppendV2(nil, h, crc)
			if errors.Is(err, ErrTooLarge) && crc {
				continue // it was at the limit without a checksum
			}
			if err != nil {
				t.Fatalf("AppendV2: %v", err)
			}
			forms = append(forms, b)
		}
	}
	if h.Version == 2 && !h.Source.IsValid() {
		h = Header{Version: 2, Command: Local}
	}
	for _, b := range forms {
		got, n, err := Parse(b, 0)
		if err != nil || n != len(b) || !reflect.DeepEqual(got, h) {
			t.Fatalf("written as %x\nread back %+v, %d, %v\nwant      %+v", b, got, n, err, h)
		}
	}
}

// FuzzParseSSL: what is accepted says the same when it is written and read again.
func FuzzParseSSL(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x01\x00\x00\x00\x00\x22\x00\x09dev"))
	f.Add([]byte("\x07\x00\x00\x00\x00" + tlv(SSLGroup, "x25519") + tlv(0x29, "a")))
	f.Add(SSL{Client: true, CertConn: true, CertSess: true, Version: "TLSv1.3", CN: "dév", Cipher: "C", SigAlg: "RSA-SHA256", KeyAlg: "RSA2048"}.TLV().Value)
	f.Fuzz(func(t *testing.T, v []byte) {
		s, err := ParseSSL(v)
		if err != nil {
			if s != (SSL{}) || !errors.Is(err, ErrMalformed) {
				t.Fatalf("%+v beside %v", s, err)
			}
			return
		}
		back, err := ParseSSL(s.TLV().Value)
		if err != nil || back != s {
			t.Fatalf("read back %+v, %v, want %+v", back, err, s)
		}
	})
}
