package proxy

import (
	"errors"
	"sync"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// Enhanced authentication (5.0 §4.12): a backend that answers CONNECT with AUTH
// wants to hear more before it says yes or no. Both talk through the relay then,
// which looks out for the CONNACK meanwhile.

// connackWatch finds the CONNACK in what a backend sends after it began with
// AUTH.
type connackWatch struct{ seen []byte }

// see takes the next bytes. over says that there is nothing more to look for;
// ack is the CONNACK, if it was one that could be read.
func (w *connackWatch) see(b []byte) (ack mqtt.Connack, found, over bool) {
	w.seen = append(w.seen, b...)
	for {
		_, _, remaining, n, err := mqtt.ParseFixedHeader(w.seen)
		switch {
		case errors.Is(err, mqtt.ErrShort), err == nil && len(w.seen) < n+remaining:
			return ack, false, len(w.seen) > maxAnswer
		case err != nil:
			return ack, false, true
		case isAuth(w.seen):
			w.seen = w.seen[n+remaining:]
			continue
		}
		ack, _, err = mqtt.ParseConnack(w.seen, mqtt.V5)
		return ack, err == nil, true
	}
}

// lookForConnack takes what the backend says, until CONNACK has come. From each
// AUTH the wait begins anew.
func (r *relay) lookForConnack(b []byte) {
	if r.s.watch == nil {
		return
	}
	r.connack.stop()
	ack, found, over := r.s.watch.see(b)
	if !over {
		r.waitForConnack()
		return
	}
	r.s.watch = nil
	if !found {
		return
	}
	r.s.options.Reports.Answered(r.s.backend)
	if ack.HasServerKeepAlive {
		r.keepAlive(ack.ServerKeepAlive) // instead of the client's [MQTT-3.1.2-21]
	}
}

// waitForConnack gives both sides connack_timeout to go on. Silent is the client
// if it owes an answer to AUTH, the backend if it has that.
func (r *relay) waitForConnack() {
	asked := r.s.fromClient.Load()
	r.connack.start(r.s.options.ConnackTimeout, func() {
		f := &failure{stage: StageConnack, by: ByBackend, why: NoConnack}
		if r.s.fromClient.Load() == asked {
			f.by, f.why = ByClient, Timeout
		}
		r.giveUp(f)
	})
}

// connackTimer calls a function when CONNACK is overdue. Once it is stopped, the
// function does not run any more.
type connackTimer struct {
	timer   *time.Timer
	running sync.WaitGroup
}

func (c *connackTimer) start(d time.Duration, overdue func()) {
	c.running.Add(1)
	c.timer = time.AfterFunc(d, func() {
		defer c.running.Done()
		overdue()
	})
}

func (c *connackTimer) stop() {
	if c.timer != nil && c.timer.Stop() {
		c.running.Done()
	}
	c.running.Wait()
}
