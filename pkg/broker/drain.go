package broker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// drainStep is the shortest pause between clients that are let go; at higher
// rates several go at once.
const drainStep = 5 * time.Millisecond

// Drain is how far a drain is.
type Drain struct {
	// Active: new clients are refused, and those that are there are let go. It
	// stays so when all are gone, until CancelDrain or Shutdown.
	Active    bool
	Since     time.Time
	Rate      float64 // clients let go in a second, on average
	Clients   int     // how many there were at its begin
	Remaining int     // how many of them there are now
}

// drain is the node's drain; zero while there is none.
type drain struct {
	mu    sync.Mutex
	now   Drain // without Remaining
	pace  chan float64
	stop  context.CancelFunc
	ended chan struct{}
}

// Drain lets the clients go at a pace, so that others take them one by one: rate
// clients in a second, or as many as it takes to have let all of them go within
// the time, whichever is more; either may be 0, not both. New clients are refused
// from now on (0x88, 3.x: return code 3), and the node is not ready. Sessions
// stay. 5.0 clients read 0x9C with Options.Redirect, or else 0x98. A second call
// changes the pace.
func (b *Broker) Drain(rate float64, within time.Duration) error {
	if rate < 0 || within < 0 || rate == 0 && within == 0 {
		return fmt.Errorf("drain at %g clients a second within %s: it takes one of the two", rate, within)
	}
	clients := len(b.staying())
	if within > 0 {
		rate = max(rate, float64(clients)/within.Seconds())
	}
	d := &b.drain
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.now.Active {
		d.now.Rate = rate
		select {
		case <-d.pace: // one that was not taken yet
		default:
		}
		d.pace <- rate
		return nil
	}
	if b.leaving() {
		return fmt.Errorf("drain: the broker is shutting down")
	}
	ctx, stop := context.WithCancel(context.Background())
	d.now = Drain{Active: true, Since: time.Now(), Rate: rate, Clients: clients}
	d.stop, d.pace, d.ended = stop, make(chan float64, 1), make(chan struct{})
	go b.letGo(ctx, rate, d.pace, d.ended)
	b.log.Info("draining", "clients", clients, "per_second", rate)
	return nil
}

// CancelDrain lets clients in again; those that are gone stay where they are. It
// says whether there was a drain.
func (b *Broker) CancelDrain() bool {
	d := &b.drain
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.now.Active {
		return false
	}
	d.stop()
	<-d.ended
	d.now = Drain{}
	b.log.Info("drain ended")
	return true
}

// Draining says how far the drain is.
func (b *Broker) Draining() Drain {
	b.drain.mu.Lock()
	now := b.drain.now
	b.drain.mu.Unlock()
	now.Remaining = len(b.staying())
	return now
}

func (b *Broker) drains() bool {
	b.drain.mu.Lock()
	defer b.drain.mu.Unlock()
	return b.drain.now.Active
}

// staying are the clients' connections that nobody has ended yet.
func (b *Broker) staying() []*link {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []*link
	for l := range b.links {
		if l.joined.Load() && !l.closing.Load() {
			all = append(all, l)
		}
	}
	return all
}

// letGo sends clients away in no order, evenly but for a jitter: those that
// come back elsewhere must not do so in step. Who was about to get in when it
// began is found in a later round.
func (b *Broker) letGo(ctx context.Context, rate float64, pace <-chan float64, ended chan<- struct{}) {
	defer close(ended)
	var round []*link
	credit, last := 0.0, time.Now()
	wait := time.NewTimer(0)
	defer wait.Stop()
	earn := func() {
		now := time.Now()
		credit += rate * now.Sub(last).Seconds()
		last = now
	}
	for {
		select {
		case <-ctx.Done():
			return
		case faster := <-pace:
			earn()
			rate = faster
		case <-wait.C:
			earn()
			if len(round) == 0 {
				round = b.staying()
				rand.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
			}
			for ; credit >= 1 && len(round) > 0; round = round[1:] {
				if round[0].redirect(b.o.Redirect) {
					credit--
				}
			}
			credit = min(credit, 1) // a time without clients is none to catch up on
		}
		pause := max(time.Duration(float64(time.Second)/rate), drainStep)
		wait.Reset(time.Duration(float64(pause) * (0.5 + rand.Float64())))
	}
}

// redirect ends a connection on behalf of a drain; false: it has ended already.
func (l *link) redirect(to string) bool {
	l.cl.mu.Lock()
	defer l.cl.mu.Unlock()
	if l.closing.Load() || l.closed {
		return false
	}
	if to == "" {
		l.bye(mqtt.AdministrativeAction, SentAway)
		return true
	}
	l.byeTo(mqtt.UseAnotherServer, SentAway, mqtt.Properties(nil).AppendText(mqtt.PropServerReference, to))
	return true
}
