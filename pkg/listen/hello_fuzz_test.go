package listen

import (
	"errors"
	"slices"
	"testing"
)

func FuzzParseHello(f *testing.F) {
	// Short ones only: the fuzzer spends its time on making long ones shorter.
	for _, h := range recorded(f) {
		f.Add(h.wire)
		f.Add(h.wire[:len(h.wire)/2])
		f.Add(records(message(h.wire), 100))
		f.Add(append(slices.Clone(h.wire), 20, 3, 3, 0, 1, 1))
	}
	f.Add([]byte("\x10\x0e\x00\x04MQTT"))
	f.Add([]byte("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"))
	f.Add([]byte{22, 3, 1, 0, 0})
	f.Add(record([]byte{1, 0, 0, 2, 3, 3}))

	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := ParseHello(b, MaxHello)
		more := append(slices.Clone(b), 22, 3, 1, 0, 1, 1)
		if err != nil {
			known := 0
			for _, e := range []error{ErrShort, ErrNotTLS, ErrBadHello, ErrTooLarge} {
				if errors.Is(err, e) {
					known++
				}
			}
			if known != 1 || n != 0 || h.ServerName != "" || h.ALPN != nil {
				t.Fatalf("%v along with %q and %d", err, h, n)
			}
			if err == ErrShort && len(b) >= MaxHello {
				t.Fatalf("wants more than %d bytes", len(b))
			}
			if _, _, err2 := ParseHello(more, MaxHello); err != ErrShort && (err2 == nil || err2 == ErrShort) {
				t.Fatalf("%v, and with more bytes %v", err, err2)
			}
			return
		}
		if n > len(b) || n > MaxHello || len(h.ServerName) > maxServerName {
			t.Fatalf("%d of %d bytes, server name of %d", n, len(b), len(h.ServerName))
		}
		same := func(how string, wire []byte, end int) {
			t.Helper()
			got, n, err := ParseHello(wire, MaxHello)
			if err != nil || n != end || got.ServerName != h.ServerName || !slices.Equal(got.ALPN, h.ALPN) {
				t.Fatalf("%s: %q up to %d, %v; at first %q up to %d", how, got, n, err, h, end)
			}
		}
		same("alone", b[:n], n)
		same("with more behind", more, n)
		for _, cut := range []int{1, 5, n / 3, n / 2, n - 1} {
			if _, _, err := ParseHello(b[:cut], MaxHello); err != ErrShort {
				t.Fatalf("first %d of %d bytes: %v, want ErrShort", cut, n, err)
			}
		}
		// The message alone, without what may share its last record, in other records.
		m := message(b[:n])
		m = m[:messageHeader+int(m[1])<<16+int(m[2])<<8+int(m[3])]
		for _, size := range []int{1, 7, maxRecord} {
			if wire := records(m, size); len(wire) <= MaxHello {
				same("in other records", wire, len(wire))
			}
		}
	})
}
