package listen

import "sync/atomic"

// Slots count the connections of one listener against a bound, from accept on:
// those being set up cost memory and descriptors, too. They are safe for
// concurrent use.
type Slots struct {
	// Limit is how many may be held at once; zero is no bound. It does not change.
	Limit int

	held atomic.Int64
}

// leastReserve and reserveShare make the reserve: the greater one of so many
// connections, and of a share of the bound.
const (
	leastReserve = 16
	reserveShare = 16
)

// Take takes a slot for a connection. Within the bound it is Welcome; in a
// reserve beyond, TooMany: to be told, in its own protocol, that there is no
// room. Unless it is FarTooMany, one Give must follow.
func (s *Slots) Take() Entry {
	held, limit := s.held.Add(1), int64(s.Limit)
	switch {
	case limit == 0 || held <= limit:
		return Welcome
	case held <= limit+max(leastReserve, limit/reserveShare):
		return TooMany
	default:
		s.held.Add(-1)
		return FarTooMany
	}
}

// Give gives a slot back.
func (s *Slots) Give() { s.held.Add(-1) }

// Held is how many slots are taken now.
func (s *Slots) Held() int64 { return s.held.Load() }
