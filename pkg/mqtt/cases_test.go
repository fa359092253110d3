package mqtt

import (
	"bufio"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// stream is one line of a testdata/Cnnn.hex: what people met in the field, and
// what has to come of it.
type stream struct {
	label  string
	expect []string // alternatives
	bytes  []byte
}

func readCase(tb testing.TB, name string) []stream {
	tb.Helper()
	f, err := os.Open(filepath.Join("testdata", name+".hex"))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	var streams []stream
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		col := strings.Fields(lines.Text())
		if len(col) != 3 {
			tb.Fatalf("%s: %q has %d columns, want 3", name, lines.Text(), len(col))
		}
		b, err := hex.DecodeString(col[2])
		if err != nil {
			tb.Fatalf("%s: %s: %v", name, col[0], err)
		}
		streams = append(streams, stream{col[0], strings.Split(col[1], "|"), b})
	}
	if err := lines.Err(); err != nil || len(streams) == 0 {
		tb.Fatalf("%s: %d streams, %v", name, len(streams), err)
	}
	return streams
}

var parseCases = []string{"C001", "C002", "C003", "C004", "C005", "C006", "C025"}

// outcome says what a front end does with b, in the words of the case files.
func outcome(b []byte) string {
	_, _, err := ParseConnect(b, 0)
	if err == nil {
		return "accept"
	}
	e, ok := errors.AsType[*ConnectError](err)
	if !ok {
		return err.Error()
	}
	answer := AppendConnack(nil, e.Version, e.Reason)
	if len(answer) == 0 {
		return "close"
	}
	return "connack=" + hex.EncodeToString(answer[3:4]) + ",close"
}

func TestCasesFromTheField(t *testing.T) {
	// What the case files leave to us, or to whoever judges credentials.
	ours := map[string]string{
		"v5":                         "accept", // C002: the broker assigns an identifier
		"v5-password-no-user":        "accept", // C025: goes to authentication
		"v311-empty-user":            "accept",
		"v311-empty-user-empty-pass": "accept",
	}
	for _, name := range parseCases {
		for _, s := range readCase(t, name) {
			t.Run(name+"/"+s.label, func(t *testing.T) {
				want := s.expect
				if w, ok := ours[s.label]; ok {
					want = []string{w}
				}
				if got := outcome(s.bytes); !slices.Contains(want, got) {
					t.Fatalf("got %s, want %s", got, strings.Join(want, " or "))
				}
			})
		}
	}
}

func TestC001LongFieldsAreWhole(t *testing.T) {
	want := map[string]Connect{
		"id-127":  {ClientID: []byte(strings.Repeat("a", 127))},
		"id-128":  {ClientID: []byte(strings.Repeat("a", 128))},
		"id-256":  {ClientID: []byte(strings.Repeat("a", 256))},
		"id-1000": {ClientID: []byte("dev-" + strings.Repeat("b", 996))},
	}
	for _, s := range readCase(t, "C001") {
		c, n, err := ParseConnect(s.bytes, len(s.bytes))
		if err != nil || n != len(s.bytes) {
			t.Fatalf("%s: n %d of %d, %v", s.label, n, len(s.bytes), err)
		}
		if w, ok := want[s.label]; ok && string(c.ClientID) != string(w.ClientID) {
			t.Errorf("%s: client id of %d bytes, want %d", s.label, len(c.ClientID), len(w.ClientID))
		}
		if c.HasUsername && (len(c.Username) != 200 || len(c.Password) != 300) {
			t.Errorf("%s: user name of %d and password of %d bytes, want 200 and 300", s.label, len(c.Username), len(c.Password))
		}
	}
}

func TestC003BridgeBitIsMaskedAndKept(t *testing.T) {
	want := map[string]struct {
		level  byte
		v      Version
		bridge bool
		id     string
	}{
		"mqtt-84":   {0x84, V311, true, "bridge-a"},
		"mqisdp-83": {0x83, V31, true, "bridge-b"},
		"mqtt-04":   {0x04, V311, false, "bridge-c"},
		"mqtt-85":   {0x85, V5, true, ""}, // has no property length, so it is no 5.0 either
	}
	for _, s := range readCase(t, "C003") {
		w, ok := want[s.label]
		if !ok {
			t.Fatalf("%s is not expected", s.label)
		}
		c, _, err := ParseConnect(s.bytes, 0)
		if c.Level != w.level || c.Version != w.v || c.Bridge != w.bridge || string(c.ClientID) != w.id {
			t.Errorf("%s: level 0x%02x version %s bridge %v id %q (%v), want %+v", s.label, c.Level, c.Version, c.Bridge, c.ClientID, err, w)
		}
	}
	// A 5.0 CONNECT with the bit is taken as what it says.
	whole := AppendConnect(nil, ConnectOptions{Version: V5, Bridge: true, ClientID: "bridge-d", CleanStart: true})
	if c, _, err := ParseConnect(whole, 0); err != nil || c.Level != 0x85 || c.Version != V5 || !c.Bridge {
		t.Errorf("5.0 with the bridge bit: %+v, %v", c, err)
	}
}

// C005 asks it of two streams; it holds for all. An accepted packet is short at
// every cut. A refused one is short up to some cut and refused, for the same
// reason, from there on: more bytes never turn a refusal back.
func TestC005CutAtEveryByte(t *testing.T) {
	for _, name := range parseCases {
		for _, s := range readCase(t, name) {
			t.Run(name+"/"+s.label, func(t *testing.T) { cutAtEveryByte(t, s.bytes) })
		}
	}
}

func cutAtEveryByte(t *testing.T, b []byte) {
	t.Helper()
	_, n, last := ParseConnect(b, 0)
	size := n
	if last != nil {
		size = len(b)
	}
	var refusal error
	for k := range size {
		_, n, err := ParseConnect(b[:k:k], 0)
		switch {
		case refusal != nil:
			if !sameRefusal(err, refusal) {
				t.Fatalf("%d bytes: %v, after fewer bytes were refused with %v", k, err, refusal)
			}
		case err == ErrShort:
			if n != 0 && (n <= k || last == nil && n != size) {
				t.Fatalf("%d bytes: the packet is said to have %d", k, n)
			}
		case err == nil || last == nil:
			t.Fatalf("%d bytes of %d: %v, want ErrShort", k, size, err)
		default:
			refusal = err
		}
	}
	if refusal != nil && !sameRefusal(last, refusal) {
		t.Fatalf("whole: %v, in part: %v", last, refusal)
	}
}

// sameRefusal compares what a client gets to see.
func sameRefusal(a, b error) bool {
	x, xok := errors.AsType[*ConnectError](a)
	y, yok := errors.AsType[*ConnectError](b)
	return xok && yok && x.Version == y.Version && x.Reason == y.Reason
}

func TestC006BytesBehindConnectAreNotTouched(t *testing.T) {
	for _, s := range readCase(t, "C006") {
		c, n, err := ParseConnect(s.bytes, 0)
		switch s.label {
		case "connect-subscribe-publish-ping":
			if err != nil || string(c.ClientID) != "pipe-1" || n != 20 || PacketType(s.bytes[n]>>4) != TypeSubscribe {
				t.Errorf("%s: id %q, n %d, %v", s.label, c.ClientID, n, err)
			}
		case "rejected-connect-then-publish":
			if e, ok := errors.AsType[*ConnectError](err); !ok || e.Reason != ClientIdentifierNotValid || e.Version != V311 {
				t.Errorf("%s: %v", s.label, err)
			}
		default:
			t.Errorf("%s is not expected", s.label)
		}
	}
}
