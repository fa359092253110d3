package mqtt

// Scanner follows the borders between packets through one direction of a
// connection, fed in pieces of any size. It keeps no packet bytes and does not
// allocate. The zero value stands at the beginning of a stream.
type Scanner struct {
	// OnPacket, if set, is called within Feed for each packet, as soon as its
	// fixed header is whole. remaining bytes follow that header.
	OnPacket func(t PacketType, flags byte, remaining int)

	head [1 + maxVarintBytes]byte // of the packet whose header is not whole
	have int                      // bytes in head
	body int                      // bytes of the current packet still to come
	err  error
}

// Feed takes the next bytes of the stream. A *[PacketError] says that they are
// not MQTT; from then on the Scanner knows of no more borders and Feed gives
// the same error again.
func (s *Scanner) Feed(p []byte) error {
	for len(p) > 0 && s.err == nil {
		if s.body > 0 {
			skip := min(s.body, len(p))
			s.body -= skip
			p = p[skip:]
			continue
		}
		s.head[s.have] = p[0]
		s.have++
		p = p[1:]
		t, flags, remaining, _, err := ParseFixedHeader(s.head[:s.have])
		switch err {
		case nil:
			s.have, s.body = 0, remaining
			if s.OnPacket != nil {
				s.OnPacket(t, flags, remaining)
			}
		case ErrShort:
		default:
			s.err = err
		}
	}
	return s.err
}

// AtBoundary says whether the stream so far ends between two packets: the one
// place where another packet may be put in. A stream without a byte does.
func (s *Scanner) AtBoundary() bool { return s.err == nil && s.have == 0 && s.body == 0 }
