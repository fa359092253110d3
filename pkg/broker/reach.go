package broker

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
)

// Two nodes may not reach each other while both are at work, and the others reach
// either. So what one does not hear or reach, it asks the others about.

const (
	// kindHears is the question whether a node is heard from.
	kindHears = "hears"
	// kindRelay is a question for a node that whoever asks can't reach.
	kindRelay = "relay"
)

// hears is the question about a node.
type hears struct {
	Node string
	Span span
}

// span is how long ago a node may have been heard from at most.
type span string

const (
	ever    span = "lately"   // within [cluster.PresumedLost]
	justNow span = "just now" // within [cluster.QuorumPatience]
)

func (s span) heard(v *cluster.View, node string) bool {
	if s == justNow {
		return v.Hears(node)
	}
	return v.Has(node)
}

// heardByOthers asks the others whether they hear a node that this one does not.
func (b *Broker) heardByOthers(v *cluster.View, node string, s span) bool {
	question, _ := json.Marshal(hears{node, s})
	for _, n := range v.Nodes {
		if n.Name == b.o.Node || n.Name == node {
			continue
		}
		ctx, cancel := context.WithTimeout(b.work, takeTimeout)
		answer, err := b.o.Peers.Ask(ctx, n.Name, kindHears, question)
		cancel()
		if err == nil && string(answer) == isHeard {
			return true
		}
	}
	return false
}

const isHeard = "heard"

func (b *Broker) answerHears(from string, body []byte) []byte {
	var q hears
	if err := json.Unmarshal(body, &q); err != nil {
		b.log.Error("a question about a node makes no sense", "node", from, "err", err)
		return nil
	}
	if v := b.o.Peers.View(); q.Span.heard(&v, q.Node) {
		return []byte(isHeard)
	}
	return []byte("silent")
}

// atWork says that a node is there, by what this one or another has heard of it
// just now. One that stands still is not.
func (b *Broker) atWork(node string) bool {
	v := b.o.Peers.View()
	return v.Hears(node) || b.heardByOthers(&v, node, justNow)
}

// reach asks a node, by way of the others where the direct one is cut.
// [cluster.ErrNoNode] says that nobody is there: none of the nodes can reach it,
// or none has heard from it just now. Any other error is of one that is at work.
func (b *Broker) reach(node, kind string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(b.work, takeTimeout)
	defer cancel()
	answer, err := b.o.Peers.Ask(ctx, node, kind, body)
	switch {
	case err == nil:
		return answer, nil
	case !b.atWork(node):
		return nil, errors.Join(cluster.ErrNoNode, err)
	}
	question, _ := json.Marshal(relayed{node, kind, body})
	for _, n := range b.o.Peers.View().Nodes {
		if n.Name == b.o.Node || n.Name == node {
			continue
		}
		ctx, cancel := context.WithTimeout(b.work, takeTimeout)
		answer, asked := b.o.Peers.Ask(ctx, n.Name, kindRelay, question)
		cancel()
		var r relayedAnswer
		switch {
		case asked != nil || json.Unmarshal(answer, &r) != nil:
			// That one is of no help.
		case r.Answered:
			return r.Body, nil
		case !r.NoNode: // it is there for others
			err = errors.Join(cluster.ErrUnavailable, err)
		}
	}
	if errors.Is(err, cluster.ErrUnavailable) {
		return nil, err
	}
	return nil, errors.Join(cluster.ErrNoNode, err)
}

// relayed is a question that goes by another node.
type relayed struct {
	Node, Kind string
	Body       []byte
}

type relayedAnswer struct {
	Answered bool
	NoNode   bool // nobody is there
	Body     []byte
}

// relay asks a node for another one.
func (b *Broker) relay(from string, body []byte) []byte {
	var q relayed
	if err := json.Unmarshal(body, &q); err != nil || q.Kind != kindTake {
		b.log.Error("a question to be passed on makes no sense", "node", from, "kind", q.Kind, "err", err)
		return nil
	}
	ctx, cancel := context.WithTimeout(b.work, settlePatience)
	defer cancel()
	answer, err := b.o.Peers.Ask(ctx, q.Node, q.Kind, q.Body)
	out, _ := json.Marshal(relayedAnswer{err == nil, errors.Is(err, cluster.ErrNoNode), answer})
	return out
}
