// Package backend holds what mqttlb knows of one backend: its identity, its
// place in a pool, its state and its live counters.
//
// A [Backend] is a [Spec], which never changes, and a live part, which does.
// [Backend.With] puts a new Spec in front of the same live part, so that a
// reload which changes an address or a weight keeps the backend's state and
// the count of the connections that it carries.
//
// All methods are safe for concurrent use.
package backend

import (
	"sync"
	"sync/atomic"
	"time"
)

// DefaultWeight is the weight of a backend whose configuration names none.
const DefaultWeight = 100

// ID names a backend. Pool and name together are unique in one configuration.
type ID struct{ Pool, Name string }

// String gives "pool/name", the form that logs and commands use.
func (id ID) String() string { return id.Pool + "/" + id.Name }

// Spec is what the configuration says of a backend. It is immutable.
type Spec struct {
	Pool string
	// Name places the backend on the ring; its address does not, so a broker
	// that moves to another address keeps its clients.
	Name string
	// Address is host:port. The host may be a name; it is resolved at each dial.
	Address string
	// Weight is the share of the pool relative to the others' weights.
	// Zero stands for DefaultWeight.
	Weight int
	// MaxConnections bounds the connections held at once; zero is no bound.
	MaxConnections int
}

// Admin is what an operator has asked of a backend.
type Admin uint32

const (
	Active Admin = iota // takes new connections while it is up
	Drain               // takes no new connections, keeps the living ones, is still checked
	Maint               // takes no new connections and is not checked
)

func (a Admin) String() string {
	switch a {
	case Drain:
		return "drain"
	case Maint:
		return "maint"
	default:
		return "active"
	}
}

// State is the one word that logs, metrics and commands show of a backend.
type State string

const (
	StateUp       State = "up"
	StateDown     State = "down"
	StateDrain    State = "drain"
	StateMaint    State = "maint"
	StateChecking State = "checking" // no verdict of the first health check yet
)

// Verdict is what health checks have found, and since when.
type Verdict struct {
	Up     bool
	Reason string // why, in words for people; empty while up
	Since  time.Time
}

// Backend is one broker of a pool. Build it with New.
type Backend struct {
	Spec
	live *live
}

type live struct {
	usable      atomic.Bool // up and Active: what Usable answers, kept by refresh
	admin       atomic.Uint32
	connections atomic.Int64
	placed      atomic.Uint64
	spilled     atomic.Uint64

	mu      sync.Mutex
	verdict *Verdict // nil until the first check
}

// New gives a backend in StateChecking: it takes no connections until
// SetHealth says that it is up.
func New(s Spec) *Backend {
	if s.Weight == 0 {
		s.Weight = DefaultWeight
	}
	return &Backend{Spec: s, live: &live{}}
}

// With gives a backend with the same identity, state and counters under
// another Spec. Pool and Name must be those of b.
func (b *Backend) With(s Spec) *Backend {
	if s.Weight == 0 {
		s.Weight = DefaultWeight
	}
	return &Backend{Spec: s, live: b.live}
}

// ID is the pool and name of the backend.
func (b *Backend) ID() ID { return ID{b.Pool, b.Name} }

// Usable says whether new connections may be placed here: up, and neither in
// drain nor in maintenance. Whether there is room is Acquire's to say.
func (b *Backend) Usable() bool { return b.live.usable.Load() }

// State sums up verdict and admin state in one word. Maintenance and drain
// show over the verdict, since they are what the operator asked for.
func (b *Backend) State() State {
	switch b.Admin() {
	case Maint:
		return StateMaint
	case Drain:
		return StateDrain
	}
	v, ok := b.Verdict()
	switch {
	case !ok:
		return StateChecking
	case v.Up:
		return StateUp
	default:
		return StateDown
	}
}

// Verdict is the last health verdict; false until there is one.
func (b *Backend) Verdict() (Verdict, bool) {
	b.live.mu.Lock()
	defer b.live.mu.Unlock()
	if b.live.verdict == nil {
		return Verdict{}, false
	}
	return *b.live.verdict, true
}

// SetHealth records a verdict and says whether it changes the one before it.
// A verdict that repeats the last one keeps its Since and takes the new reason.
func (b *Backend) SetHealth(up bool, reason string) (changed bool) {
	l := b.live
	l.mu.Lock()
	defer l.mu.Unlock()
	changed = l.verdict == nil || l.verdict.Up != up
	if changed {
		l.verdict = &Verdict{Up: up, Since: time.Now()}
	}
	l.verdict.Reason = reason
	l.refresh()
	return changed
}

// Admin is what the operator has asked for.
func (b *Backend) Admin() Admin { return Admin(b.live.admin.Load()) }

// SetAdmin changes what the operator asks for.
func (b *Backend) SetAdmin(a Admin) {
	l := b.live
	l.mu.Lock()
	defer l.mu.Unlock()
	l.admin.Store(uint32(a))
	l.refresh()
}

// refresh derives usable; l.mu is held.
func (l *live) refresh() {
	l.usable.Store(l.verdict != nil && l.verdict.Up && Admin(l.admin.Load()) == Active)
}

// Acquire counts one more connection. It says false, and counts nothing, when
// MaxConnections are held already. Every true needs one Release.
func (b *Backend) Acquire() bool {
	n := b.live.connections.Add(1)
	if b.MaxConnections > 0 && n > int64(b.MaxConnections) {
		b.live.connections.Add(-1)
		return false
	}
	b.live.placed.Add(1)
	return true
}

// Release gives back what Acquire took.
func (b *Backend) Release() { b.live.connections.Add(-1) }

// Full says whether MaxConnections are held; Acquire is the one to trust.
func (b *Backend) Full() bool {
	return b.MaxConnections > 0 && b.Connections() >= int64(b.MaxConnections)
}

// Connections is the number held now, those being set up included.
func (b *Backend) Connections() int64 { return b.live.connections.Load() }

// Placed is the number of connections placed here since the start.
func (b *Backend) Placed() uint64 { return b.live.placed.Load() }

// CountSpill notes that a client whose turn it was went elsewhere, because
// the backend was full or over the bounded load.
func (b *Backend) CountSpill() { b.live.spilled.Add(1) }

// Spilled is the number of spills since the start.
func (b *Backend) Spilled() uint64 { return b.live.spilled.Load() }
