package admin

import (
	"fmt"
	"sync/atomic"

	"github.com/mqttlb/mqttlb/pkg/affinity"
	"github.com/mqttlb/mqttlb/pkg/backend"
	"github.com/mqttlb/mqttlb/pkg/proxy"
)

// Readiness answers for mqttlb whether clients should be sent here: a pool has a
// backend that is up, and no shutdown is under way.
type Readiness struct {
	pools    []*proxy.Pool
	draining atomic.Bool
}

// NewReadiness watches pools.
func NewReadiness(pools []*proxy.Pool) *Readiness { return &Readiness{pools: pools} }

// Drain makes it not ready for good: a shutdown has begun.
func (r *Readiness) Drain() { r.draining.Store(true) }

// PoolState is a pool in the answer of /readyz.
type PoolState struct {
	Name     string         `json:"name"`
	Backends []BackendState `json:"backends"`
}

// BackendState is a backend in the answer of /readyz.
type BackendState struct {
	Name   string        `json:"name"`
	State  backend.State `json:"state"`
	Reason string        `json:"reason,omitempty"`
}

// Ready is the short answer.
func (r *Readiness) Ready() bool {
	if r.draining.Load() {
		return false
	}
	for _, p := range r.pools {
		if anyUp(p.Options().Table) {
			return true
		}
	}
	return false
}

func anyUp(t *affinity.Table) bool {
	for _, b := range t.Backends() {
		if b.State() == backend.StateUp {
			return true
		}
	}
	return false
}

// Report implements Reporter.
func (r *Readiness) Report() Report {
	rep := Report{Ready: r.Ready(), Pools: make([]PoolState, 0, len(r.pools))}
	if r.draining.Load() {
		rep.Reasons = append(rep.Reasons, "shutting down")
	}
	for _, p := range r.pools {
		state := PoolState{Name: p.Name}
		for _, b := range p.Options().Table.Backends() {
			v, _ := b.Verdict()
			state.Backends = append(state.Backends, BackendState{Name: b.Name, State: b.State(), Reason: v.Reason})
		}
		rep.Pools = append(rep.Pools, state)
		if !rep.Ready && !anyUp(p.Options().Table) {
			rep.Reasons = append(rep.Reasons, fmt.Sprintf("pool %s has no backend that is up", p.Name))
		}
	}
	return rep
}
