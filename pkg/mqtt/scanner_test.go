package mqtt

import (
	"errors"
	"reflect"
	"testing"
)

type header struct {
	t         PacketType
	flags     byte
	remaining int
}

// scan feeds b in pieces of the given sizes, in turn.
func scan(b []byte, sizes ...int) (seen []header, s *Scanner, err error) {
	s = &Scanner{OnPacket: func(t PacketType, flags byte, remaining int) {
		seen = append(seen, header{t, flags, remaining})
	}}
	for i := 0; len(b) > 0; i++ {
		n := min(max(sizes[i%len(sizes)], 1), len(b))
		if err = s.Feed(b[:n]); err != nil {
			return seen, s, err
		}
		b = b[n:]
	}
	return seen, s, nil
}

func TestScannerSeesTheSamePacketsInAnyPieces(t *testing.T) {
	for _, s := range readCase(t, "C006") {
		if s.label != "connect-subscribe-publish-ping" {
			continue
		}
		want := []header{{TypeConnect, 0, 18}, {TypeSubscribe, 2, 8}, {TypePublish, 0, 10}, {TypePingreq, 0, 0}}
		for size := range len(s.bytes) {
			seen, sc, err := scan(s.bytes, size+1)
			if err != nil || !reflect.DeepEqual(seen, want) || !sc.AtBoundary() {
				t.Errorf("pieces of %d: %+v, boundary %v, %v", size+1, seen, sc.AtBoundary(), err)
			}
		}
	}
}

func TestScannerIsAtABoundaryOnlyBetweenPackets(t *testing.T) {
	b := unhex(t, "d000 30850101") // PINGRESP, PUBLISH of 133 bytes
	b = append(b, make([]byte, 132)...)
	b = append(b, 0xe0, 0x00) // DISCONNECT
	borders := map[int]bool{0: true, 2: true, 2 + 3 + 133: true, 2 + 3 + 133 + 2: true}
	var s Scanner
	for i := range len(b) + 1 {
		if s.AtBoundary() != borders[i] {
			t.Errorf("after %d bytes: boundary %v", i, s.AtBoundary())
		}
		if i < len(b) {
			if err := s.Feed(b[i : i+1]); err != nil {
				t.Fatalf("byte %d: %v", i, err)
			}
		}
	}
}

func TestScannerStaysLost(t *testing.T) {
	for _, stream := range []string{"c000 00", "30ffffffff"} {
		var s Scanner
		err := s.Feed(unhex(t, stream))
		if e, ok := errors.AsType[*PacketError](err); !ok || e.Reason != MalformedPacket {
			t.Errorf("%s: %v", stream, err)
		}
		if again := s.Feed(unhex(t, "c000")); again != err || s.AtBoundary() {
			t.Errorf("%s: then %v, boundary %v", stream, again, s.AtBoundary())
		}
	}
}

func TestScannerDoesNotAllocate(t *testing.T) {
	stream := readCase(t, "C006")[0].bytes
	packets := 0
	s := Scanner{OnPacket: func(PacketType, byte, int) { packets++ }}
	if n := testing.AllocsPerRun(100, func() {
		s.Feed(stream[:21])
		s.Feed(stream[21:])
	}); n != 0 || packets != 4*101 {
		t.Errorf("%v allocations, %d packets", n, packets)
	}
}

func FuzzScanner(f *testing.F) {
	for _, s := range readCase(f, "C006") {
		f.Add(s.bytes, 1, 3)
	}
	f.Add([]byte("\x30\xff\xff\xff\xff"), 1, 1)
	f.Add([]byte("\xc0\x00\x00"), 2, 1)
	f.Add([]byte("\x30\x80\x01"), 2, 2)
	f.Fuzz(func(t *testing.T, b []byte, p, q int) {
		whole, s1, err1 := scan(b, len(b))
		parts, s2, err2 := scan(b, p, q)
		if !reflect.DeepEqual(whole, parts) || s1.AtBoundary() != s2.AtBoundary() || (err1 == nil) != (err2 == nil) {
			t.Fatalf("whole: %+v %v %v\nin parts: %+v %v %v", whole, s1.AtBoundary(), err1, parts, s2.AtBoundary(), err2)
		}
		// The packets and what lies behind them make up the stream.
		at, size := 0, 0
		for _, h := range whole {
			size = at + 1
			for b[size]&0x80 != 0 {
				size++
			}
			size += 1 + h.remaining
			if PacketType(b[at]>>4) != h.t || b[at]&0x0F != h.flags {
				t.Fatalf("%+v at byte %d, which is 0x%02x", h, at, b[at])
			}
			at = size
		}
		if err1 == nil && s1.AtBoundary() != (size == len(b)) {
			t.Fatalf("boundary %v after %d bytes of %d in packets", s1.AtBoundary(), size, len(b))
		}
	})
}
