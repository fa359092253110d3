package health

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/mqttlb/mqttlb/pkg/backend"
)

// suspicion is how many distinct Client Identifiers it takes to suspect the backend
// rather than the clients.
const suspicion = 3

// suspect is a client that a backend closed on before it had answered anything.
type suspect struct {
	id uint64 // hash of its Client Identifier: a copy could be 64 KiB
	at time.Time
}

// DialFailed reports that a session could not reach b: refused, unreachable or no
// connection in time. It counts as one failed check and brings the next one forward.
// A dial that the session itself gave up (context.Canceled) does not count.
func (m *Monitor) DialFailed(b *backend.Backend, err error) {
	w := m.watchOf(b)
	if w == nil || err == nil || errors.Is(err, context.Canceled) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.accuse(err)
}

// ClosedEarly reports that b closed or reset a connection after CONNECT was written
// to it and before its first byte.
//
// It counts as one failed check when three distinct Client Identifiers have met it
// within Interval and b has answered no CONNECT in between, and at most once between
// two active checks. So clients whose CONNECT a broker cannot bear, however many,
// never take a broker down that passes its checks, as long as Fall is 2 or more.
func (m *Monitor) ClosedEarly(b *backend.Backend, clientID []byte) {
	w := m.watchOf(b)
	if w == nil {
		return
	}
	id, now := maphash.Bytes(m.seed, clientID), time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.blamed || !w.streak.up {
		return
	}
	w.suspects = slices.DeleteFunc(w.suspects, func(s suspect) bool {
		return s.id == id || now.Sub(s.at) > m.o.Interval
	})
	w.suspects = append(w.suspects, suspect{id, now})
	w.suspected.Store(true)
	if len(w.suspects) < suspicion {
		return
	}
	w.clearSuspects()
	w.blamed = true
	w.accuse(&Error{ClosedEarly, fmt.Errorf("closed the connections of %d clients after CONNECT without an answer", suspicion)})
}

// Answered reports that b has answered a CONNECT with a CONNACK. It ends what
// ClosedEarly may have begun to suspect, and costs next to nothing when that is
// nothing.
func (m *Monitor) Answered(b *backend.Backend) {
	w := m.watchOf(b)
	if w == nil || !w.suspected.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clearSuspects()
}

// accuse counts a passive failure against a backend that is up. w.mu is held.
func (w *watch) accuse(err error) {
	if !w.streak.up {
		return
	}
	w.count(Result{Err: err, Passive: true})
	signal(w.hurry)
}

// clearSuspects begins anew. w.mu is held.
func (w *watch) clearSuspects() {
	w.suspects = w.suspects[:0]
	w.suspected.Store(false)
}
