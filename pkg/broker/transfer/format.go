package transfer

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"time"
)

// The file is a line that says what it is, then frames:
//
//	kind (1 byte), length (unsigned varint), body, CRC-32C of all three (4 bytes, big-endian)
//
// The first frame is of kindHead, the last of kindEnd: it has the SHA-256 of all
// that stands before it, so that a file which was cut, or had frames taken out,
// is known for what it is. Between them are messages, in the order of each log;
// then retained messages; then records.

// magic is the line. A change of what follows gets another number.
const magic = "mqttlb broker export, format 1\n"

// The kinds of frames.
const (
	kindHead     = 'H' // Head, in JSON
	kindMessage  = 'M' // shard, sequence number (varints), message
	kindRetained = 'R' // message
	kindRecord   = 'K' // bucket, key (each with its length before it), value
	kindEnd      = 'E' // SHA-256
)

const bufferSize = 64 << 10

// mostFrame bounds what is read into memory for one frame.
const mostFrame = 64 << 20

// Head says what a file was made of.
type Head struct {
	Made    time.Time
	Version string // of the program
	Node    string
	Cluster string // empty: a single node
	Shards  int    // of the log
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Errors of a file.
var (
	ErrNotExport = errors.New("it is no file that broker export has written")
	ErrDamaged   = errors.New("the file is damaged")
	ErrCut       = errors.New("the file is cut short")
)

type writer struct {
	w   *bufio.Writer
	sum hash.Hash
	buf []byte
}

func newWriter(w io.Writer, h Head) (*writer, error) {
	f := &writer{w: bufio.NewWriterSize(w, bufferSize), sum: sha256.New()}
	if err := f.put([]byte(magic)); err != nil {
		return nil, err
	}
	head, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	return f, f.frame(kindHead, head)
}

func (f *writer) put(b []byte) error {
	f.sum.Write(b)
	_, err := f.w.Write(b)
	return err
}

func (f *writer) frame(kind byte, body []byte) error {
	f.buf = binary.AppendUvarint(append(f.buf[:0], kind), uint64(len(body)))
	f.buf = append(f.buf, body...)
	f.buf = binary.BigEndian.AppendUint32(f.buf, crc32.Checksum(f.buf, castagnoli))
	return f.put(f.buf)
}

// end writes the last frame.
func (f *writer) end() error {
	if err := f.frame(kindEnd, f.sum.Sum(nil)); err != nil {
		return err
	}
	return f.w.Flush()
}

type reader struct {
	r    *bufio.Reader
	sum  hash.Hash
	Head Head
}

// newReader reads up to the first frame after the head.
func newReader(r io.Reader) (*reader, error) {
	f := &reader{r: bufio.NewReaderSize(r, bufferSize), sum: sha256.New()}
	line := make([]byte, len(magic))
	n, err := io.ReadFull(f.r, line)
	common := magic[:bytes.LastIndexByte([]byte(magic), ' ')]
	switch {
	case string(line) == magic:
	case err == nil && bytes.HasPrefix(line, []byte(common)):
		return nil, fmt.Errorf("%w: another version has written it (%q); import it with that one", ErrNotExport, bytes.TrimSpace(line))
	case errors.Is(err, io.ErrUnexpectedEOF) && bytes.HasPrefix([]byte(magic), line[:n]):
		return nil, ErrCut
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return nil, err
	default:
		return nil, ErrNotExport
	}
	f.sum.Write(line)
	kind, body, err := f.next()
	if err != nil {
		return nil, err
	}
	if kind != kindHead || json.Unmarshal(body, &f.Head) != nil {
		return nil, fmt.Errorf("%w: it does not begin with its head", ErrDamaged)
	}
	return f, nil
}

// next gives a frame, whose body is the caller's to keep; io.EOF after a sound
// end.
func (f *reader) next() (kind byte, body []byte, err error) {
	kind, err = f.r.ReadByte()
	if err != nil {
		return 0, nil, cut(err)
	}
	size, err := binary.ReadUvarint(f.r)
	if err != nil {
		return 0, nil, cut(err)
	}
	if size > mostFrame {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes", ErrDamaged, size)
	}
	head := binary.AppendUvarint([]byte{kind}, size)
	whole := make([]byte, len(head)+int(size)+crc32.Size)
	copy(whole, head)
	if _, err := io.ReadFull(f.r, whole[len(head):]); err != nil {
		return 0, nil, cut(err)
	}
	checked := whole[:len(whole)-crc32.Size]
	if crc32.Checksum(checked, castagnoli) != binary.BigEndian.Uint32(whole[len(checked):]) {
		return 0, nil, fmt.Errorf("%w: a frame has another checksum than it says", ErrDamaged)
	}
	body = checked[len(head):len(checked):len(checked)]
	if kind != kindEnd {
		f.sum.Write(whole)
		return kind, body, nil
	}
	if !bytes.Equal(body, f.sum.Sum(nil)) {
		return 0, nil, fmt.Errorf("%w: as a whole it has another checksum than it says", ErrDamaged)
	}
	if _, err := f.r.ReadByte(); !errors.Is(err, io.EOF) {
		return 0, nil, fmt.Errorf("%w: something stands behind its end", ErrDamaged)
	}
	return 0, nil, io.EOF
}

// cut says that bytes are missing, unless reading went wrong for another reason.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrCut
	}
	return err
}

// text is a byte string with its length before it.
func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func takeText(b []byte) (s string, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return "", nil, false
	}
	b = b[n:]
	return string(b[:size]), b[size:], true
}
