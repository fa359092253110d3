package pp

import (
	"errors"
	"fmt"
	"net/netip"
)

const (
	// MaxHeader is the default limit on a whole header, in bytes: the 16 fixed
	// ones, addresses and TLVs. The protocol's own bound is 16+65,535. A header
	// that carries a client certificate is about 2 KB.
	MaxHeader = 4096

	// MaxV1 is the limit on a version 1 line, its CRLF included (PP 2.1).
	MaxV1 = 107

	// MaxUniqueID is the limit on the value of a UNIQUE_ID TLV (PP 2.2.5).
	MaxUniqueID = 128
)

var (
	// ErrShort says that the bytes so far begin a header, and more are needed.
	ErrShort = errors.New("PROXY protocol header is not complete yet")

	// ErrNoHeader says that the peer sent something else than a header.
	ErrNoHeader = errors.New("not a PROXY protocol header")

	// ErrMalformed says that a header began and then broke the specification,
	// or asked for what this package refuses.
	ErrMalformed = errors.New("malformed PROXY protocol header")

	// ErrTooLarge says that a header, read or to be written, is over a limit.
	ErrTooLarge = errors.New("PROXY protocol header too large")
)

// Command says on whose behalf a connection was made. The zero value is Local.
type Command byte

const (
	Local Command = iota // by the sender itself, as health checks are
	Proxy                // for a client, whose addresses the header carries
)

func (c Command) String() string {
	switch c {
	case Local:
		return "LOCAL"
	case Proxy:
		return "PROXY"
	default:
		return fmt.Sprintf("Command(%d)", byte(c))
	}
}

// Header is one PROXY protocol header. It holds no bytes of the buffer that it
// was parsed from. The zero value is a LOCAL header.
type Header struct {
	// Version is 1 or 2 in a parsed header; AppendV1 and AppendV2 ignore it.
	Version int

	// Command is always Proxy in version 1, which has no other.
	Command Command

	// Source and Destination are the client's end and the end that it
	// connected to. Both are valid, or neither is: LOCAL, UNKNOWN, UNSPEC and
	// UNIX sockets have none, and the connection's own addresses serve.
	Source, Destination netip.AddrPort

	// TLVs are in the order of the wire, without NoOp, which is padding, and
	// without CRC32C, which has been verified and holds for one header only.
	TLVs []TLV
}

// TLV is the value of the first TLV of type t.
func (h Header) TLV(t TLVType) (value []byte, ok bool) {
	for _, tlv := range h.TLVs {
		if tlv.Type == t {
			return tlv.Value, true
		}
	}
	return nil, false
}
