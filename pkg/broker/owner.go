package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ownership begins the record of each session: which node holds it, and how
// often it has changed hands. Of the nodes that want a session, the one that
// writes its name here has it; the others find out by compare-and-swap.
type ownership struct {
	node  string
	epoch uint64
}

const ownershipVersion = 1

func (o ownership) append(dst []byte) []byte {
	dst = append(dst, ownershipVersion)
	dst = binary.AppendUvarint(dst, o.epoch)
	dst = binary.AppendUvarint(dst, uint64(len(o.node)))
	return append(dst, o.node...)
}

var errOwnership = errors.New("not the record of a session")

// parseOwnership splits a record into whose the session is and the session's own
// part.
func parseOwnership(b []byte) (o ownership, rest []byte, err error) {
	if len(b) == 0 {
		return o, nil, errOwnership
	}
	if b[0] != ownershipVersion {
		return o, nil, fmt.Errorf("%w: version %d of its head", errOwnership, b[0])
	}
	b = b[1:]
	epoch, n := binary.Uvarint(b)
	if n <= 0 {
		return o, nil, errOwnership
	}
	b = b[n:]
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return o, nil, errOwnership
	}
	b = b[n:]
	return ownership{string(b[:size]), epoch}, b[size:], nil
}
