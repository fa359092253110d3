package pp

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// stream is one line of a testdata/*.hex file: label, expected result, hex.
type stream struct {
	label, expected string
	bytes           []byte
}

func streams(t testing.TB, file string) []stream {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []stream
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		b, err := hex.DecodeString(fields[2])
		if err != nil {
			t.Fatalf("%s: %s: %v", file, fields[0], err)
		}
		all = append(all, stream{fields[0], fields[1], b})
	}
	if len(all) == 0 {
		t.Fatalf("%s holds no streams", file)
	}
	return all
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// connect is what follows each header of the case files: a CONNECT, id pp1.
const connect = "\x10\x0f\x00\x04MQTT\x04\x02\x00\x3c\x00\x03pp1"

func TestParse_C011_HeaderCutAtEveryByte(t *testing.T) {
	clients := map[string]Header{
		"v1-tcp4": {
			Version: 1, Command: Proxy,
			Source:      netip.MustParseAddrPort("192.0.2.10:40001"),
			Destination: netip.MustParseAddrPort("198.51.100.5:8883"),
		},
		"v2-tcp4": {
			Version: 2, Command: Proxy,
			Source:      netip.MustParseAddrPort("192.0.2.10:40001"),
			Destination: netip.MustParseAddrPort("198.51.100.5:8883"),
		},
		"v2-tcp6-tlv": {
			Version: 2, Command: Proxy,
			Source:      netip.MustParseAddrPort("[2001:db8::a]:40001"),
			Destination: netip.MustParseAddrPort("[2001:db8::b]:8883"),
			TLVs:        []TLV{{Authority, []byte("broker.example")}, {UniqueID, []byte("conn-7")}},
		},
	}
	for _, s := range streams(t, "testdata/C011.hex") {
		t.Run(s.label, func(t *testing.T) {
			want, ok := clients[s.label]
			if !ok {
				t.Fatal("no expectation for this stream")
			}
			acceptedWholeOnly(t, s.bytes, len(s.bytes)-len(connect), want)
			if rest := s.bytes[len(s.bytes)-len(connect):]; string(rest) != connect {
				t.Errorf("behind the header: % x, want the CONNECT", rest)
			}
		})
	}
}

// A sender with a big custom TLV needs more than one segment.
func TestParse_C011_TwoKilobyteHeaderInThreePieces(t *testing.T) {
	want := Header{
		Version: 2, Command: Proxy,
		Source:      netip.MustParseAddrPort("192.0.2.10:40001"),
		Destination: netip.MustParseAddrPort("198.51.100.5:8883"),
		TLVs:        []TLV{{SubjectDN, bytes.Repeat([]byte("d"), 2000)}},
	}
	header, err := AppendV2(nil, want, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(header) != 16+12+3+2000 {
		t.Fatalf("header of %d bytes", len(header))
	}
	acceptedWholeOnly(t, append(header, connect...), len(header), want)
}

func TestParse_C012_LocalIsTakenOffWholeAndNamesNobody(t *testing.T) {
	for _, s := range streams(t, "testdata/C012.hex") {
		t.Run(s.label, func(t *testing.T) {
			acceptedWholeOnly(t, s.bytes, len(s.bytes)-len(connect), Header{Version: 2, Command: Local})
		})
	}
}

// acceptedWholeOnly feeds b byte by byte: ErrShort up to the header's n bytes,
// then the same answer however much follows.
func acceptedWholeOnly(t *testing.T, b []byte, n int, want Header) {
	t.Helper()
	for k := range b {
		h, got, err := Parse(b[:k], 0)
		switch {
		case k < n && !errors.Is(err, ErrShort):
			t.Fatalf("cut at %d of %d: %v, want ErrShort", k, n, err)
		case k < n:
			continue
		case err != nil:
			t.Fatalf("%d bytes: %v", k, err)
		case got != n:
			t.Fatalf("%d bytes: header takes %d, want %d", k, got, n)
		}
		equal(t, h, want)
	}
}

func TestParse_C014_WhoSendsNoHeaderIsFoundOutAtItsFirstByte(t *testing.T) {
	h, n, err := Parse([]byte(connect[:1]), 0)
	if !errors.Is(err, ErrNoHeader) || n != 0 || h.Command != Local || h.Source.IsValid() {
		t.Fatalf("Parse = %+v, %d, %v", h, n, err)
	}
	if !strings.Contains(err.Error(), "MQTT CONNECT") {
		t.Errorf("error %q does not say what the peer speaks", err)
	}
}

// The second header is payload: whoever reads on finds no CONNECT in it.
func TestParse_C014_SecondHeaderIsLeftToTheReader(t *testing.T) {
	first := "PROXY TCP4 192.0.2.10 198.51.100.5 40001 8883\r\n"
	second := "PROXY TCP4 203.0.113.9 198.51.100.5 1 8883\r\n"
	h, n, err := Parse([]byte(first+second), 0)
	if err != nil || n != len(first) {
		t.Fatalf("Parse = %d, %v, want %d bytes taken", n, err, len(first))
	}
	if want := netip.MustParseAddrPort("192.0.2.10:40001"); h.Source != want {
		t.Errorf("source %v, want %v", h.Source, want)
	}
}
