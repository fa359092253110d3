package transfer

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// written is a file of a few frames.
func written(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	f, err := newWriter(&b, Head{Made: time.Unix(1, 0).UTC(), Version: "1", Node: "n", Cluster: "c", Shards: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"one", "", strings.Repeat("long", 100)} {
		if err := f.frame(kindMessage, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.end(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// readAll reads a file to its end, and gives the bodies.
func readAll(file []byte) (bodies []string, err error) {
	f, err := newReader(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	for {
		_, body, err := f.next()
		if errors.Is(err, io.EOF) {
			return bodies, nil
		}
		if err != nil {
			return bodies, err
		}
		bodies = append(bodies, string(body))
	}
}

func TestAFileIsReadAsItWasWritten(t *testing.T) {
	file := written(t)
	bodies, err := readAll(file)
	if err != nil || len(bodies) != 3 || bodies[0] != "one" || bodies[1] != "" || len(bodies[2]) != 400 {
		t.Errorf("%v %q", err, bodies)
	}
	f, err := newReader(bytes.NewReader(file))
	if err != nil || f.Head != (Head{Made: time.Unix(1, 0).UTC(), Version: "1", Node: "n", Cluster: "c", Shards: 1}) {
		t.Errorf("%v %+v", err, f.Head)
	}
}

// Whatever is done to a file, it is never taken for a whole one.
func TestADamagedFileIsFoundOut(t *testing.T) {
	file := written(t)
	for n := range len(file) {
		if _, err := readAll(file[:n]); !errors.Is(err, ErrCut) && !(n == 0 && errors.Is(err, ErrNotExport)) {
			t.Fatalf("cut at %d of %d: %v", n, len(file), err)
		}
	}
	for at := range len(file) {
		flipped := bytes.Clone(file)
		flipped[at] ^= 1
		if _, err := readAll(flipped); err == nil {
			t.Fatalf("byte %d was changed, and nobody has noticed", at)
		}
	}
	// A whole frame taken out: those that are left are sound.
	i := bytes.Index(file, []byte("\x03one")) - 1
	without := append(bytes.Clone(file[:i]), file[i+2+3+4:]...)
	if _, err := readAll(without); !errors.Is(err, ErrDamaged) {
		t.Errorf("a frame is missing: %v", err)
	}
	if _, err := readAll(append(bytes.Clone(file), 'x')); !errors.Is(err, ErrDamaged) {
		t.Errorf("something behind the end: %v", err)
	}
}

func TestOtherFilesAreRefused(t *testing.T) {
	for _, content := range []string{"", "listeners: []\n" + strings.Repeat("x", 100), strings.Replace(magic, "1", "2", 1)} {
		if _, err := readAll([]byte(content)); !errors.Is(err, ErrNotExport) {
			t.Errorf("%.20q: %v", content, err)
		}
	}
	if _, err := readAll([]byte(strings.Replace(magic, "1", "2", 1))); !strings.Contains(err.Error(), "another version") {
		t.Errorf("a later version: %v", err)
	}
}

func TestPlacesStandForWhatIsBelow(t *testing.T) {
	p := places{{{10, 100}, {20, 101}, {30, 900}}, nil}
	for _, row := range []struct {
		shard     int
		seq, want uint64
	}{{0, 9, 0}, {0, 10, 100}, {0, 19, 100}, {0, 20, 101}, {0, 29, 101}, {0, 1000, 900}, {1, 5, 0}, {2, 5, 0}} {
		if got := p.UpTo(row.shard, row.seq); got != row.want {
			t.Errorf("log %d up to %d is up to %d, want %d", row.shard, row.seq, got, row.want)
		}
	}
}
