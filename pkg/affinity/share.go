package affinity

import "github.com/mqttlb/mqttlb/pkg/backend"

// Share is the part of all keys whose home is one backend, health ignored.
type Share struct {
	Backend *backend.Backend `json:"-"`
	Name    string           `json:"name"`
	Weight  int              `json:"weight"`
	// Share is the part it has, 0 to 1: on a ring the length of its arcs, else Fair.
	Share float64 `json:"share"`
	// Fair is the part that its weight asks for, 0 to 1.
	Fair float64 `json:"fair"`
}

// Shares gives the share of each backend, ordered by name; together they are 1.
func (t *Table) Shares() []Share {
	total := 0
	for _, b := range t.members {
		total += b.Weight
	}
	shares := make([]Share, len(t.members))
	for i, b := range t.members {
		fair := float64(b.Weight) / float64(total)
		shares[i] = Share{Backend: b, Name: b.Name, Weight: b.Weight, Share: fair, Fair: fair}
	}
	if t.balance == Ring {
		for i, s := range t.ring.shares(len(t.members)) {
			shares[i].Share = s
		}
	}
	return shares
}
