package affinity

// inlineMembers is the number of backends that a set holds without allocating.
const inlineMembers = 256

// A set holds indices of backends, below the n it was made for.
type set struct {
	words [inlineMembers / 64]uint64
	large []uint64 // in place of words when n is over inlineMembers
}

func newSet(n int) (s set) {
	if n > inlineMembers {
		s.large = make([]uint64, (n+63)/64)
	}
	return s
}

func (s *set) word(i int) *uint64 {
	if s.large != nil {
		return &s.large[i/64]
	}
	return &s.words[i/64]
}

func (s *set) has(i int) bool { return *s.word(i)&(1<<(i%64)) != 0 }

// add says false when i was in the set already.
func (s *set) add(i int) bool {
	w, bit := s.word(i), uint64(1)<<(i%64)
	if *w&bit != 0 {
		return false
	}
	*w |= bit
	return true
}

// subtract removes all that o holds; both were made for the same n.
func (s *set) subtract(o *set) {
	for i := range s.words {
		s.words[i] &^= o.words[i]
	}
	for i := range s.large {
		s.large[i] &^= o.large[i]
	}
}
