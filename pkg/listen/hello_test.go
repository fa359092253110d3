package listen

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// hello is a ClientHello on the wire and what it says.
type hello struct {
	name string
	wire []byte
	says Hello
}

// hellos are the usual ones, the large ones of C007, and the recorded ones.
func hellos(tb testing.TB) []hello {
	tb.Helper()
	alpn := []string{"mqtt", "x-amzn-mqtt-ca"}
	var long []string
	for i := range 100 {
		long = append(long, fmt.Sprintf("%0200d", i))
	}
	postQuantum := clientHello(tb, &tls.Config{ServerName: "fleet.example", NextProtos: alpn})
	padded := extend(message(postQuantum), 21, make([]byte, 6<<10-len(message(postQuantum))-4)) // RFC 7685
	// The outer form of RFC 9849 §5: KDF, AEAD, config id, encapsulated key, payload.
	grease := slices.Concat([]byte{0, 0, 1, 0, 1, 7, 0, 32}, make([]byte, 32), []byte{0, 64}, make([]byte, 64))
	all := []hello{
		{"crypto/tls with post-quantum key share", postQuantum, Hello{"fleet.example", alpn}},
		{"crypto/tls without SNI and ALPN", clientHello(tb, &tls.Config{InsecureSkipVerify: true}), Hello{}},
		{"crypto/tls of version 1.2", clientHello(tb, &tls.Config{ServerName: "a.example", MaxVersion: tls.VersionTLS12}), Hello{"a.example", nil}},
		{"crypto/tls of version 1.0", clientHello(tb, &tls.Config{ServerName: "a.example", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}), Hello{"a.example", nil}},
		{"name in capitals", clientHello(tb, &tls.Config{ServerName: "Fleet.EXAMPLE"}), Hello{"fleet.example", nil}},
		{"padded to 6 KB", records(padded, maxRecord), Hello{"fleet.example", alpn}},
		{"Encrypted ClientHello", records(extend(message(postQuantum), 0xfe0d, grease), maxRecord), Hello{"fleet.example", alpn}},
		{"20 KB, two records of its own", clientHello(tb, &tls.Config{ServerName: "a.example", NextProtos: long}), Hello{"a.example", long}},
	}
	return append(all, recorded(tb)...)
}

// recorded are the hellos of testdata.
func recorded(tb testing.TB) []hello {
	tb.Helper()
	var all []hello
	file, err := os.ReadFile("testdata/hellos.txt")
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(file)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		wire, err := hex.DecodeString(f[3])
		if err != nil {
			tb.Fatal(err)
		}
		h := hello{f[0], wire, Hello{ServerName: f[1]}}
		if f[2] != "-" {
			h.says.ALPN = strings.Split(f[2], ",")
		}
		all = append(all, h)
	}
	return all
}

// clientHello is what crypto/tls sends first under cfg.
func clientHello(tb testing.TB, cfg *tls.Config) []byte {
	tb.Helper()
	var sent bytes.Buffer
	if err := tls.Client(mute{sent: &sent}, cfg).Handshake(); !errors.Is(err, io.EOF) {
		tb.Fatalf("handshake with a mute server: %v", err)
	}
	return sent.Bytes()
}

// mute is a server that says nothing and leaves.
type mute struct {
	net.Conn
	sent *bytes.Buffer
}

func (m mute) Write(p []byte) (int, error) { return m.sent.Write(p) }
func (mute) Read([]byte) (int, error)      { return 0, io.EOF }

// message takes the handshake bytes out of their records.
func message(wire []byte) []byte {
	var m []byte
	for len(wire) > 0 {
		n := recordHeader + int(binary.BigEndian.Uint16(wire[3:]))
		m = append(m, wire[recordHeader:n]...)
		wire = wire[n:]
	}
	return m
}

// record puts a fragment of a message into a record of its own.
func record(fragment []byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{recordHandshake, 3, 1}, uint16(len(fragment))), fragment...)
}

// records puts a message into records of size bytes.
func records(m []byte, size int) []byte {
	var wire []byte
	for fragment := range slices.Chunk(m, size) {
		wire = append(wire, record(fragment)...)
	}
	return wire
}

// extend adds an extension to a ClientHello message: RFC 8446 §4.1.2.
func extend(m []byte, typ uint16, data []byte) []byte {
	at := messageHeader + 2 + 32           // version, random
	at += 1 + int(m[at])                   // session id
	at += 2 + int(m[at])<<8 + int(m[at+1]) // cipher suites
	at += 1 + int(m[at])                   // compression methods
	m = slices.Clone(m)
	m = binary.BigEndian.AppendUint16(m, typ)
	m = binary.BigEndian.AppendUint16(m, uint16(len(data)))
	m = append(m, data...)
	binary.BigEndian.PutUint16(m[at:], uint16(len(m)-at-2))
	n := len(m) - messageHeader
	m[1], m[2], m[3] = byte(n>>16), byte(n>>8), byte(n)
	return m
}

func checkHello(t *testing.T, wire []byte, want Hello) {
	t.Helper()
	got, n, err := ParseHello(wire, MaxHello)
	if err != nil {
		t.Fatal(err)
	}
	if n != len(wire) {
		t.Fatalf("hello ends at %d, want %d", n, len(wire))
	}
	if got.ServerName != want.ServerName || !slices.Equal(got.ALPN, want.ALPN) {
		t.Fatalf("got %q %q, want %q %q", got.ServerName, got.ALPN, want.ServerName, want.ALPN)
	}
}

func checkShort(t *testing.T, wire []byte) {
	t.Helper()
	if h, n, err := ParseHello(wire, MaxHello); err != ErrShort || n != 0 || h.ServerName != "" {
		t.Fatalf("%d bytes gave %v, %d, %v, want ErrShort", len(wire), h, n, err)
	}
}

// C007 (a): one byte a write shows the parser every prefix.
func TestParseHelloByteByByte(t *testing.T) {
	for _, h := range hellos(t) {
		t.Run(h.name, func(t *testing.T) {
			for n := range h.wire {
				checkShort(t, h.wire[:n])
			}
			checkHello(t, h.wire, h.says)
		})
	}
}

// C007 (b): the client may put its hello into any records.
func TestParseHelloInAnyRecords(t *testing.T) {
	for _, h := range hellos(t) {
		m := message(h.wire)
		t.Run(h.name+", two records", func(t *testing.T) {
			if len(m) > maxRecord {
				t.Skip("does not fit two records at every offset")
			}
			for cut := 1; cut < len(m); cut++ {
				first := record(m[:cut])
				checkShort(t, first)
				checkHello(t, slices.Concat(first, record(m[cut:])), h.says)
			}
		})
		t.Run(h.name+", records of one byte", func(t *testing.T) {
			wire := records(m, 1)
			if len(wire) > MaxHello {
				if _, _, err := ParseHello(wire, MaxHello); !errors.Is(err, ErrTooLarge) {
					t.Fatalf("%d bytes: %v, want ErrTooLarge", len(wire), err)
				}
				return
			}
			for n := 0; n < len(wire); n += 97 {
				checkShort(t, wire[:n])
			}
			checkHello(t, wire, h.says)
		})
	}
}

func TestParseHelloLeavesWhatFollows(t *testing.T) {
	for _, h := range hellos(t) {
		t.Run(h.name, func(t *testing.T) {
			early := slices.Concat(h.wire, []byte{20, 3, 3, 0, 1, 1, 23, 3, 3, 0, 2, 0xAA})
			_, n, err := ParseHello(early, MaxHello)
			if err != nil || n != len(h.wire) {
				t.Fatalf("hello ends at %d, want %d; error %v", n, len(h.wire), err)
			}
		})
	}
}

func TestParseHelloDoesNotAliasItsInput(t *testing.T) {
	wire := clientHello(t, &tls.Config{ServerName: "fleet.example", NextProtos: []string{"mqtt"}})
	h, _, err := ParseHello(wire, MaxHello)
	if err != nil {
		t.Fatal(err)
	}
	clear(wire)
	if h.ServerName != "fleet.example" || h.ALPN[0] != "mqtt" {
		t.Errorf("changed with the buffer: %q", h)
	}
}

func TestParseHelloFailsEarly(t *testing.T) {
	plain := message(clientHello(t, &tls.Config{ServerName: "fleet.example"}))
	named := func(name string) []byte {
		return records(extend(message(clientHello(t, &tls.Config{InsecureSkipVerify: true})), 0,
			slices.Concat([]byte{byte((len(name) + 3) >> 8), byte(len(name) + 3), 0, byte(len(name) >> 8), byte(len(name))}, []byte(name))), maxRecord)
	}
	whole := func(b []byte) int { return len(b) }
	first := func(n int) func([]byte) int { return func([]byte) int { return n } }

	for _, tt := range []struct {
		name string
		wire []byte
		at   func([]byte) int // bytes after which it fails
		want error
		text string // in the error for all of wire
	}{
		{"MQTT without TLS", []byte("\x10\x0e\x00\x04MQTT"), first(1), ErrNotTLS, "MQTT CONNECT without TLS"},
		{"HTTP", []byte("GET / HTTP/1.1\r\n"), first(1), ErrNotTLS, "HTTP"},
		{"PROXY header, version 1", []byte("PROXY TCP4 192.0.2.1 "), first(1), ErrNotTLS, "PROXY protocol header (v1)"},
		{"PROXY header, version 2", []byte("\r\n\r\n\x00\r\nQUIT\n\x21\x11"), first(1), ErrNotTLS, "PROXY protocol header (v2)"},
		{"one letter tells nothing", []byte("P"), first(1), ErrNotTLS, "first byte 0x50, a TLS handshake begins with 0x16"},
		{"hello of SSL 2", []byte{0x80, 0x2e, 1}, first(1), ErrNotTLS, "first byte 0x80"},
		{"TLS alert", []byte{21, 3, 1, 0, 2, 2, 0}, first(1), ErrNotTLS, "first byte 0x15"},
		{"version of nobody", []byte{22, 9, 1}, first(2), ErrNotTLS, "record version 9"},
		{"record far too long", []byte{22, 3, 1, 0x41, 0}, first(4), ErrBadHello, "longer than 16384"},
		{"record one byte too long", []byte{22, 3, 1, 0x40, 1}, first(5), ErrBadHello, "longer than 16384"},
		{"empty record", []byte{22, 3, 1, 0, 0}, first(5), ErrBadHello, "empty"},
		{"empty record in the middle", slices.Concat(record(plain[:9]), []byte{22, 3, 1, 0, 0}), first(5 + 9 + 5), ErrBadHello, "byte 14 is empty"},
		{"ServerHello", []byte{22, 3, 3, 0, 50, 2}, first(6), ErrBadHello, "type 2"},
		{"alert in the middle", slices.Concat(record(plain[:9]), []byte{21}), first(5 + 9 + 1), ErrBadHello, "type 21 at byte 14"},
		{"version change in the middle", slices.Concat(record(plain[:9]), []byte{22, 4}), first(5 + 9 + 2), ErrBadHello, "version 4 at byte 14"},
		{"message over the limit", []byte{22, 3, 1, 0x40, 0, 1, 1, 0, 0}, first(9), ErrTooLarge, "larger than allowed"},
		{"its length over four records", records([]byte{1, 1, 0, 0}, 1), whole, ErrTooLarge, "larger than allowed"},
		{"content is none", record([]byte{1, 0, 0, 2, 3, 3}), whole, ErrBadHello, "ClientHello"},
		{"extension twice", records(extend(plain, 0, []byte{0, 4, 0, 0, 1, 'a'}), maxRecord), whole, ErrBadHello, "ClientHello"},
		{"server name too long", named(strings.Repeat("a.", 127) + "bc"), whole, ErrBadHello, "server name of 256 bytes"},
		{"server name with a zero byte", named("a\x00.example"), whole, ErrBadHello, `"a\x00.example" is not printable`},
		{"server name in UTF-8", named("bücher.example"), whole, ErrBadHello, "not printable ASCII"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at := tt.at(tt.wire)
			for n := range tt.wire {
				_, _, err := ParseHello(tt.wire[:n], MaxHello)
				if n < at && err != ErrShort {
					t.Fatalf("%d bytes: %v, want ErrShort", n, err)
				}
				if n >= at && !errors.Is(err, tt.want) {
					t.Fatalf("%d bytes: %v, want %v", n, err, tt.want)
				}
			}
			_, _, err := ParseHello(tt.wire, MaxHello)
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Fatalf("error %v, want %v with %q", err, tt.want, tt.text)
			}
		})
	}
}

// C007 (c): a hello that never completes must not make its buffer grow for
// ever. Each stream here promises more for as long as it is believed.
func TestParseHelloIsBounded(t *testing.T) {
	for _, tt := range []struct {
		name  string
		limit int
		next  func(i int) []byte // the i-th record
	}{
		{"records of one byte", MaxHello, func(i int) []byte {
			return record([]byte{[]byte{1, 0, 0x80, 0, 0}[min(i, 4)]})
		}},
		{"small records, small limit", 1000, func(i int) []byte {
			return record([]byte{1, 0, 2, 0}[min(i, 3) : min(i, 3)+1])
		}},
		{"limit within the message's length", 20, func(int) []byte { return record([]byte{1}) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var wire []byte
			for i := 0; len(wire) <= tt.limit; i++ {
				wire = append(wire, tt.next(i)...)
			}
			for n := 0; n < tt.limit; n += 1 + tt.limit/1000 {
				if _, _, err := ParseHello(wire[:n], tt.limit); errors.Is(err, ErrTooLarge) {
					return // early
				} else if err != ErrShort {
					t.Fatalf("%d bytes: %v", n, err)
				}
			}
			if _, _, err := ParseHello(wire[:tt.limit], tt.limit); !errors.Is(err, ErrTooLarge) {
				t.Fatalf("%d bytes: %v, want ErrTooLarge", tt.limit, err)
			}
		})
	}
}

// C007: with its record borders unchanged, a hello that came in pieces
// completes its handshake at the backend.
func TestHelloInPiecesCompletesItsHandshake(t *testing.T) {
	cert := selfSigned(t, "fleet.example")
	for _, size := range []int{1, 2, 5, 100, 1000} {
		t.Run(fmt.Sprintf("records of %d bytes", size), func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			deadline := time.Now().Add(10 * time.Second)
			client := make(chan error, 1)
			go func() {
				c, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					client <- err
					return
				}
				defer c.Close()
				c.SetDeadline(deadline)
				roots := x509.NewCertPool()
				roots.AddCert(cert.Leaf)
				client <- tls.Client(&reframed{Conn: c, size: size}, &tls.Config{ServerName: "fleet.example", RootCAs: roots}).Handshake()
			}()
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetDeadline(deadline)

			var seen []byte
			for {
				one := make([]byte, 1)
				if _, err := io.ReadFull(c, one); err != nil {
					t.Fatal(err)
				}
				seen = append(seen, one...)
				h, n, err := ParseHello(seen, MaxHello)
				if err == ErrShort {
					continue
				}
				if err != nil || n != len(seen) || h.ServerName != "fleet.example" {
					t.Fatalf("got %q, %d of %d, %v", h, n, len(seen), err)
				}
				break
			}
			// Now the same bytes go to a backend.
			backend := tls.Server(&replay{Conn: c, first: seen}, &tls.Config{Certificates: []tls.Certificate{cert}})
			if err := backend.Handshake(); err != nil {
				t.Errorf("backend: %v", err)
			}
			if err := <-client; err != nil {
				t.Errorf("client: %v", err)
			}
		})
	}
}

// reframed is a connection whose first write goes out in small records.
type reframed struct {
	net.Conn
	size int
	done bool
}

func (r *reframed) Write(p []byte) (int, error) {
	if r.done {
		return r.Conn.Write(p)
	}
	r.done = true
	if _, err := r.Conn.Write(records(message(p), r.size)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// replay is a connection that gives what was read from it once more.
type replay struct {
	net.Conn
	first []byte
}

func (r *replay) Read(p []byte) (int, error) {
	if len(r.first) == 0 {
		return r.Conn.Read(p)
	}
	n := copy(p, r.first)
	r.first = r.first[n:]
	return n, nil
}

func selfSigned(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		DNSNames:     []string{name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func BenchmarkParseHello(b *testing.B) {
	wire := clientHello(b, &tls.Config{ServerName: "fleet.example"})
	b.SetBytes(int64(len(wire)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := ParseHello(wire, MaxHello); err != nil {
			b.Fatal(err)
		}
	}
}
