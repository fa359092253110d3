package listen

import (
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limit bounds what clients of one address can take. The zero Limit bounds
// nothing.
type Limit struct {
	// Connections is how many one address may hold at once; zero is no bound.
	Connections int
	// Rate is how many new ones it may open in a second, on average and, rounded
	// up, at once; zero is no bound.
	Rate float64
	// Exempt are networks without bounds, such as those of a carrier's NAT,
	// behind which a whole fleet shares one address.
	Exempt []netip.Prefix
}

// Entry is what a Limiter says to a new connection.
type Entry int

const (
	// Welcome: within the bounds.
	Welcome Entry = iota
	// TooMany, TooFast: over the bound for connections, or for their rate, but
	// worth telling so in the client's own protocol.
	TooMany
	TooFast
	// FarTooMany, FarTooFast: so far over that bound that even telling would cost
	// too much.
	FarTooMany
	FarTooFast
)

// Away says that the connection is to be closed without a word. It is not
// counted.
func (e Entry) Away() bool { return e == FarTooMany || e == FarTooFast }

// Limiter keeps count of addresses under a Limit. An IPv6 client counts by its
// /64, all of which is one subscriber's (RFC 6177 §2). It is safe for concurrent
// use; what it knows of an address is forgotten when that has no connections
// and its rate has recovered.
type Limiter struct {
	limit Limit

	mu      sync.Mutex
	sources map[netip.Addr]*source
	swept   time.Time
}

type source struct {
	held   int
	opened *rate.Limiter // nil without a rate
	told   *rate.Limiter // those over it that are still told so
}

// sweepEvery is how often addresses that are of no interest any more are
// looked for.
const sweepEvery = 10 * time.Second

// NewLimiter gives nil, which welcomes everyone, if the limit bounds nothing.
func NewLimiter(l Limit) *Limiter {
	if l.Connections == 0 && l.Rate == 0 {
		return nil
	}
	return &Limiter{limit: l, sources: make(map[netip.Addr]*source)}
}

// Enter counts a connection of a. Unless its entry is Away, one Leave must follow.
func (l *Limiter) Enter(a netip.Addr, now time.Time) Entry {
	key, counts := l.key(a)
	if !counts {
		return Welcome
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep(now)
	s := l.sources[key]
	if s == nil {
		s = l.newSource()
		l.sources[key] = s
	}
	entry := s.judge(l.limit, now)
	if !entry.Away() {
		s.held++
	}
	return entry
}

// judge applies the bounds. As many again as a bound allows are told of it.
func (s *source) judge(l Limit, now time.Time) Entry {
	if s.opened != nil && !s.opened.AllowN(now, 1) {
		if !s.told.AllowN(now, 1) {
			return FarTooFast
		}
		return TooFast
	}
	switch {
	case l.Connections == 0 || s.held < l.Connections:
		return Welcome
	case s.held < 2*l.Connections:
		return TooMany
	default:
		return FarTooMany
	}
}

// Leave takes a connection of a off the count.
func (l *Limiter) Leave(a netip.Addr) {
	key, counts := l.key(a)
	if !counts {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sources[key]
	s.held--
	if s.held == 0 && s.opened == nil {
		delete(l.sources, key)
	}
}

// key is what a counts under; false if it does not count.
func (l *Limiter) key(a netip.Addr) (netip.Addr, bool) {
	a = a.Unmap()
	if l == nil || !a.IsValid() || slices.ContainsFunc(l.limit.Exempt, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return a, false
	}
	if a.Is6() {
		network, _ := a.WithZone("").Prefix(64) // 64 is in range for IPv6
		return network.Addr(), true
	}
	return a, true
}

func (l *Limiter) newSource() *source {
	if l.limit.Rate == 0 {
		return &source{}
	}
	burst := int(math.Ceil(l.limit.Rate))
	return &source{
		opened: rate.NewLimiter(rate.Limit(l.limit.Rate), burst),
		told:   rate.NewLimiter(rate.Limit(l.limit.Rate), burst),
	}
}

// sweep forgets addresses without connections whose rate has recovered; l.mu is
// held. Without it, a storm from many addresses would leave its memory behind.
func (l *Limiter) sweep(now time.Time) {
	if now.Sub(l.swept) < sweepEvery {
		return
	}
	l.swept = now
	for key, s := range l.sources {
		if s.held == 0 && (s.opened == nil || s.opened.TokensAt(now) >= float64(s.opened.Burst())) {
			delete(l.sources, key)
		}
	}
}
