package health

// streak turns single outcomes into a verdict. Its zero value knows nothing, and
// the first outcome decides.
type streak struct {
	known, up bool
	run       int // consecutive outcomes that speak against up
}

// count takes one outcome and says whether the verdict is new or changed.
func (s *streak) count(pass bool, rise, fall int) (changed bool) {
	if !s.known {
		*s = streak{known: true, up: pass}
		return true
	}
	if pass == s.up {
		s.run = 0
		return false
	}
	need := fall
	if pass {
		need = rise
	}
	if s.run++; s.run < need {
		return false
	}
	s.up, s.run = pass, 0
	return true
}

// underWay says that the next outcomes can change the verdict, or give the first
// one, so that checking fast pays.
func (s *streak) underWay() bool { return !s.known || s.run > 0 }
