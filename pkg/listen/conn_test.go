package listen

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"github.com/mqttlb/mqttlb/pkg/pp"
)

// scripted is a connection whose bytes are these, read as the reader gives them.
type scripted struct {
	net.Conn
	io.Reader
	remote net.Addr
}

func (s scripted) Read(p []byte) (int, error) { return s.Reader.Read(p) }
func (s scripted) RemoteAddr() net.Addr       { return s.remote }
func (scripted) LocalAddr() net.Addr          { return nil }
func (scripted) Close() error                 { return nil }

func scriptedConn(r io.Reader) *Conn { return NewConn(scripted{Reader: r}) }

var errMore = errors.New("more")

// upTo is a parser that wants size bytes, and says so once it has seen known.
func upTo(size, known int, calls *int) func([]byte) (int, error) {
	return func(b []byte) (int, error) {
		*calls++
		switch {
		case len(b) >= size:
			return size, nil
		case known > 0 && len(b) >= known:
			return size, errMore
		default:
			return 0, errMore
		}
	}
}

func TestReadWholeGathersAnySizeInAnyPieces(t *testing.T) {
	for _, size := range []int{1, 63, 64, 65, 100, firstBuffer - 1, firstBuffer, firstBuffer + 1, 3 * firstBuffer, 100_000} {
		want := make([]byte, size)
		for i := range want {
			want[i] = byte(i * 7)
		}
		for name, r := range map[string]io.Reader{
			"at once":        bytes.NewReader(want),
			"byte by byte":   iotest.OneByteReader(bytes.NewReader(want)),
			"half by half":   iotest.HalfReader(bytes.NewReader(want)),
			"EOF with bytes": iotest.DataErrReader(bytes.NewReader(want)),
		} {
			for _, known := range []int{0, 2} {
				var calls int
				c := scriptedConn(r)
				if s, ok := r.(io.Seeker); ok {
					_, _ = s.Seek(0, io.SeekStart)
				} else if known == 2 {
					continue // used up
				}
				if err := c.ReadWhole(size, errMore, upTo(size, known, &calls)); err != nil || !bytes.Equal(c.Pending(), want) {
					t.Errorf("%d bytes %s: %v, %d pending", size, name, err, len(c.Pending()))
				}
				c.Release()
			}
		}
	}
}

// A peer sends what it has to say and waits: what is there has to be looked at,
// unless the parser knows that it can't be enough.
func TestReadWholeLooksAtEveryReadWhereTheLengthIsNotKnown(t *testing.T) {
	for cut := 1; cut < 107; cut++ {
		client, server := net.Pipe()
		c := NewConn(server)
		_ = client.SetDeadline(time.Now().Add(10 * time.Second))
		go func() {
			_, _ = client.Write(make([]byte, cut))
			_, _ = client.Write(make([]byte, 107-cut))
			// and waits
		}()
		_ = server.SetDeadline(time.Now().Add(10 * time.Second))
		var calls int
		if err := c.ReadWhole(200, errMore, upTo(107, 0, &calls)); err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		client.Close()
		server.Close()
		c.Release()
	}
}

// A sender of single bytes may cost a read for each, but not a parse of all that
// came before.
func TestReadWholeByByteParsesSeldom(t *testing.T) {
	const size = 100_000
	var calls int
	c := scriptedConn(iotest.OneByteReader(bytes.NewReader(make([]byte, size))))
	if err := c.ReadWhole(size, errMore, upTo(size, 3, &calls)); err != nil {
		t.Fatal(err)
	}
	if most := eager + 12; calls > most { // and log2(100,000/64)
		t.Errorf("%d calls for %d bytes, want %d at most", calls, size, most)
	}
}

func TestHelloByByteIsParsedSeldom(t *testing.T) {
	for _, h := range hellos(t) {
		for _, wire := range [][]byte{h.wire, records(message(h.wire), 1)} {
			if len(wire) > MaxHello {
				continue
			}
			reads := 0
			c := scriptedConn(iotest.OneByteReader(bytes.NewReader(wire)))
			err := c.ReadWhole(MaxHello, ErrShort, func(b []byte) (int, error) {
				reads++
				return helloEnd(b, MaxHello)
			})
			if err != nil || len(c.Pending()) != len(wire) {
				t.Fatalf("%s: %v, %d of %d bytes", h.name, err, len(c.Pending()), len(wire))
			}
			if reads > 500 {
				t.Errorf("%s: %d bytes are looked at %d times", h.name, len(wire), reads)
			}
			c = scriptedConn(iotest.HalfReader(bytes.NewReader(wire)))
			if err := c.ReadHello(); err != nil || c.ClientHello.ServerName != h.says.ServerName || !bytes.Equal(c.Pending(), wire) {
				t.Errorf("%s: %v, %+v", h.name, err, c.ClientHello)
			}
		}
	}
}

func TestReadWholeIsBounded(t *testing.T) {
	const max = 10_000
	for _, known := range []int{0, 1} {
		var calls int
		endless := iotest.HalfReader(zeros{})
		c := scriptedConn(endless)
		if err := c.ReadWhole(max, errMore, upTo(1<<30, known, &calls)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("endless stream: %v", err)
		}
		if n := len(*c.buf); n > max {
			t.Errorf("the buffer grew to %d bytes", n)
		}
	}
}

// Where the length is known the buffer grows to it in one step; a length that
// is only a stranger's word is worth one leap, and doubling beyond.
func TestReadWholeGrowsTheBufferOnce(t *testing.T) {
	for _, tt := range []struct {
		size, known, max int
		sizes            []int
	}{
		{firstBuffer, 5, 1 << 20, []int{firstBuffer}},
		{firstBuffer + 1, 5, 1 << 20, []int{firstBuffer, firstBuffer + 1}},
		{100_000, 5, 1 << 20, []int{firstBuffer, 100_000}},
		{100_000, 5, 100_000, []int{firstBuffer, 100_000}},
		{100_000, 0, 1 << 20, []int{firstBuffer, 2 * firstBuffer, 4 * firstBuffer, 8 * firstBuffer, 16 * firstBuffer, 32 * firstBuffer}},
		{5 * leap, 5, 16 * leap, []int{firstBuffer, leap, 2 * leap, 4 * leap, 5 * leap}},
	} {
		var calls int
		var sizes []int
		c := scriptedConn(bytes.NewReader(make([]byte, tt.size)))
		parse := upTo(tt.size, tt.known, &calls)
		if err := c.ReadWhole(tt.max, errMore, func(b []byte) (int, error) {
			if n := len(*c.buf); len(sizes) == 0 || sizes[len(sizes)-1] != n {
				sizes = append(sizes, n)
			}
			return parse(b)
		}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(sizes, tt.sizes) {
			t.Errorf("%d bytes of %d, known after %d: buffers of %v bytes, want %v", tt.size, tt.max, tt.known, sizes, tt.sizes)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestReadWholeTellsHowThePeerLeft(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name string
		r    io.Reader
		want error
	}{
		{"before a byte", bytes.NewReader(nil), io.ErrUnexpectedEOF},
		{"half-way", bytes.NewReader(make([]byte, 5)), io.ErrUnexpectedEOF},
		{"by an error", iotest.ErrReader(broken), broken},
	} {
		var calls int
		c := scriptedConn(tt.r)
		if err := c.ReadWhole(100, errMore, upTo(10, 0, &calls)); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if c.Silent() != (tt.name != "half-way") {
			t.Errorf("%s: silent %v", tt.name, c.Silent())
		}
	}
}

// A parser's verdict ends the reading at once.
func TestReadWholeStopsAtTheFirstWrongByte(t *testing.T) {
	wrong := errors.New("wrong")
	r := bytes.NewReader(make([]byte, 100))
	c := scriptedConn(iotest.OneByteReader(r))
	if err := c.ReadWhole(100, errMore, func([]byte) (int, error) { return 0, wrong }); err != wrong || r.Len() != 99 {
		t.Errorf("%v, %d bytes left", err, r.Len())
	}
}

func TestPendingBytesAreReadFirst(t *testing.T) {
	c := scriptedConn(io.MultiReader(bytes.NewReader([]byte("header+first")), bytes.NewReader([]byte("second"))))
	var calls int
	if err := c.ReadWhole(100, errMore, upTo(7, 0, &calls)); err != nil {
		t.Fatal(err)
	}
	c.Consume(7)
	if b, err := io.ReadAll(c); err != nil || string(b) != "firstsecond" {
		t.Errorf("%q, %v", b, err)
	}
	c.Release()
	c.Release() // again is no harm
	if c.Pending() != nil {
		t.Error("bytes are pending after Release")
	}
}

// What was taken off makes room before the buffer grows.
func TestConsumedBytesMakeRoom(t *testing.T) {
	first := make([]byte, firstBuffer)
	c := scriptedConn(io.MultiReader(bytes.NewReader(first), bytes.NewReader([]byte("behind"))))
	var calls int
	if err := c.ReadWhole(firstBuffer, errMore, upTo(firstBuffer, 0, &calls)); err != nil {
		t.Fatal(err)
	}
	c.Consume(firstBuffer - 2)
	if err := c.ReadWhole(firstBuffer, errMore, upTo(8, 0, &calls)); err != nil || string(c.Pending()) != "\x00\x00behind" {
		t.Errorf("%v, %q", err, c.Pending())
	}
	if len(*c.buf) != firstBuffer {
		t.Errorf("the buffer grew to %d", len(*c.buf))
	}
}

// Set-up of a connection whose CONNECT fits the first buffer borrows one.
func TestReadWholeDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("sync.Pool drops what it likes under the race detector")
	}
	r := bytes.NewReader(make([]byte, 300))
	c := scriptedConn(r)
	parse := func(b []byte) (int, error) {
		if len(b) < 300 {
			return 300, errMore
		}
		return 300, nil
	}
	if n := testing.AllocsPerRun(100, func() {
		_, _ = r.Seek(0, io.SeekStart)
		if err := c.ReadWhole(1000, errMore, parse); err != nil {
			t.Fatal(err)
		}
		c.Consume(300)
		c.Release()
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestReadHeader(t *testing.T) {
	policy := &ProxyPolicy{From: mustPrefixes("192.0.2.0/24", "fe80::/10", "2001:db8::/32")}
	trusted := &net.TCPAddr{IP: net.ParseIP("192.0.2.9"), Port: 4000}
	for _, tt := range []struct {
		name   string
		peer   net.Addr
		send   string
		err    error
		source string
		rest   string
		silent bool
	}{
		{"v1", trusted, "PROXY TCP4 198.51.100.1 198.51.100.2 1 2\r\nrest", nil, "198.51.100.1:1", "rest", false},
		{"v1, nothing behind", trusted, "PROXY TCP4 198.51.100.1 198.51.100.2 1 2\r\n", nil, "198.51.100.1:1", "", true},
		{"UNKNOWN", trusted, "PROXY UNKNOWN\r\nrest", nil, "192.0.2.9:4000", "rest", false},
		{"LOCAL", trusted, "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00rest", nil, "192.0.2.9:4000", "rest", false},
		{"mapped peer", &net.TCPAddr{IP: net.ParseIP("::ffff:192.0.2.9"), Port: 1}, "PROXY UNKNOWN\r\n", nil, "192.0.2.9:1", "", true},
		{"link-local peer", &net.TCPAddr{IP: net.ParseIP("fe80::1"), Port: 1, Zone: "eth0"}, "PROXY UNKNOWN\r\n", nil, "[fe80::1%eth0]:1", "", true},
		{"stranger", &net.TCPAddr{IP: net.ParseIP("203.0.113.1"), Port: 1}, "PROXY UNKNOWN\r\n", ErrUntrusted, "203.0.113.1:1", "", true},
		{"no address at all", nil, "PROXY UNKNOWN\r\n", ErrUntrusted, "invalid AddrPort", "", true},
		{"no header", trusted, "\x10\x00", pp.ErrNoHeader, "192.0.2.9:4000", "\x10\x00", false},
		{"cut short", trusted, "PROXY TCP4 198", io.ErrUnexpectedEOF, "192.0.2.9:4000", "PROXY TCP4 198", false},
	} {
		c := NewConn(scripted{Reader: bytes.NewReader([]byte(tt.send)), remote: tt.peer})
		err := c.ReadHeader(policy)
		if !errors.Is(err, tt.err) || c.Source.String() != tt.source || string(c.Pending()) != tt.rest || c.Silent() != tt.silent {
			t.Errorf("%s: %v, source %s, pending %q, silent %v", tt.name, err, c.Source, c.Pending(), c.Silent())
		}
		c.Release()
	}
}
