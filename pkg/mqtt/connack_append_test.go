package mqtt

import (
	"encoding/hex"
	"testing"
)

func TestAppendConnackPacket(t *testing.T) {
	props := Properties(nil).AppendUint(PropReceiveMaximum, 20)
	for _, tt := range []struct {
		name string
		v    Version
		o    ConnackOptions
		want string
	}{
		{"3.1.1 with a session", V311, ConnackOptions{SessionPresent: true}, "20020100"},
		{"3.1 does not know it", V31, ConnackOptions{SessionPresent: true}, "20020000"},
		{"3.1.1 refuses", V311, ConnackOptions{SessionPresent: true, Reason: NotAuthorized, Properties: props}, "20020005"},
		{"3.1.1 has no return code for it", V311, ConnackOptions{Reason: MalformedPacket}, ""},
		{"5.0", V5, ConnackOptions{}, "2003000000"},
		{"5.0 with a session and properties", V5, ConnackOptions{SessionPresent: true, Properties: props}, "20060100" + "03210014"},
		{"5.0 refuses", V5, ConnackOptions{SessionPresent: true, Reason: QuotaExceeded, Properties: props}, "20060097" + "03210014"},
		{"no version, no answer", 0, ConnackOptions{}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := AppendConnackPacket([]byte{0xAA}, tt.v, tt.o)
			if hex.EncodeToString(b) != "aa"+tt.want {
				t.Fatalf("got %x, want aa%s", b, tt.want)
			}
			if tt.want == "" {
				return
			}
			c, n, err := ParseConnack(b[1:], tt.v)
			if err != nil || n != len(b)-1 || c.Reason() != tt.o.Reason {
				t.Errorf("read as %+v, n %d, %v", c, n, err)
			}
		})
	}
}

// Without properties it is AppendConnack, for every reason.
func TestAppendConnackPacketSaysWhatAppendConnackDoes(t *testing.T) {
	for _, v := range []Version{0, V31, V311, V5} {
		for r := range 256 {
			a, b := AppendConnack(nil, v, Reason(r)), AppendConnackPacket(nil, v, ConnackOptions{Reason: Reason(r)})
			if string(a) != string(b) {
				t.Errorf("%s %s: %x and %x", v, Reason(r), a, b)
			}
		}
	}
}

func TestAppendConnackPacketDoesNotAllocate(t *testing.T) {
	buf := make([]byte, 0, 64)
	o := ConnackOptions{Properties: Properties(nil).AppendUint(PropReceiveMaximum, 20)}
	if n := testing.AllocsPerRun(100, func() {
		AppendConnackPacket(buf, V311, o)
		AppendConnackPacket(buf, V5, o)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
