package brokeradmin

import (
	"sync"

	"github.com/mqttlb/mqttlb/pkg/admin"
)

// Readiness answers for a broker whether clients should be sent here: its own
// word, and no shutdown is under way.
type Readiness struct {
	node     string
	state    func() (ready bool, reasons []string)
	draining chan struct{}
	drain    sync.Once
}

// NewReadiness asks state, such as a Broker's Ready, for the broker's word. The
// node's name is part of the answer.
func NewReadiness(node string, state func() (ready bool, reasons []string)) *Readiness {
	return &Readiness{node: node, state: state, draining: make(chan struct{})}
}

// Drain makes it not ready for good: a shutdown has begun.
func (r *Readiness) Drain() { r.drain.Do(func() { close(r.draining) }) }

// Draining is closed by Drain.
func (r *Readiness) Draining() <-chan struct{} { return r.draining }

// Ready is the short answer.
func (r *Readiness) Ready() bool { return r.Report().Ready }

// Report implements admin.Reporter.
func (r *Readiness) Report() admin.Report {
	select {
	case <-r.draining:
		return admin.Report{Reasons: []string{"shutting down"}, Node: r.node}
	default:
	}
	ready, reasons := r.state()
	return admin.Report{Ready: ready, Reasons: reasons, Node: r.node}
}
