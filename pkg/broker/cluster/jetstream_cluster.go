package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// clustered says whether the store is one of several nodes.
func (s *JetStream) clustered() bool { return s.o.Cluster != nil }

func (o *Options) replicas() int {
	if o.Cluster == nil {
		return 1
	}
	return min(o.Cluster.Size, maxReplicas)
}

// Peers are the other nodes, and nil for a single node.
func (s *JetStream) Peers() Peers {
	if s.peers == nil {
		return nil
	}
	return s.peers
}

// meet begins to hear other nodes, and waits until they have elected a leader.
func (s *JetStream) meet(ctx context.Context) error {
	var err error
	if s.peers, err = newPeers(&s.o, s.engine); err != nil {
		return err
	}
	s.engine.patient = s.patient
	return s.again(ctx, "wait for other nodes", func(context.Context) error {
		if s.engine.leader() == "" {
			return errors.New("the cluster has no leader")
		}
		return s.current()
	})
}

// patient says whether a write that has begun then is worth waiting for beyond
// its deadline: there is a quorum, and the engine may elect a leader.
func (s *JetStream) patient(begun time.Time) bool {
	return s.peers != nil && !s.leaving.Load() && time.Since(begun) < ElectionPatience && s.peers.View().Quorum
}

// current refuses an answer of the engine without a quorum: the leader that gave
// it may have a successor that it does not know of. The engine elects one after
// 4 s of silence, and a quorum is lost after [QuorumPatience].
func (s *JetStream) current() error {
	if s.peers != nil && !s.peers.View().Quorum {
		return fmt.Errorf("%w: this node does not hear more than half of the cluster", ErrUnavailable)
	}
	return nil
}

// confirmed gives what a leader has answered once there is a quorum. It waits for
// that until the deadline: heartbeats may come late.
func confirmed[T any](ctx context.Context, s *JetStream, ask func() (T, error)) (T, error) {
	begun := time.Now()
	for {
		answer, err := ask()
		lost := s.current()
		switch {
		case lost == nil:
			return answer, err
		case ctx.Err() != nil || time.Since(begun) > s.o.Deadline:
			return answer, lost
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
		}
	}
}

// permanent is a failure that will be the same next time.
type permanent struct{ error }

// again does what may fail until all nodes are there: in a cluster it tries until
// ctx ends.
func (s *JetStream) again(ctx context.Context, what string, do func(context.Context) error) error {
	for patience := min(s.o.Deadline/6, silencePause); ; patience = min(2*patience, s.o.Deadline) {
		try, cancel := ctx, context.CancelFunc(func() {})
		if s.clustered() {
			try, cancel = context.WithTimeout(ctx, patience)
		}
		err := do(try)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil, !s.clustered(), errors.As(err, new(permanent)):
			return fmt.Errorf("%s: %w", what, err)
		}
		s.o.Log.Debug("the cluster is not ready", "for", what, "err", err)
		select {
		case <-time.After(5 * retryPause):
		case <-ctx.Done():
		}
	}
}

// leave hands over what this node leads, so that nobody has to wait for an
// election.
func (s *JetStream) leave() {
	if !s.peers.View().Quorum {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(s.o.Deadline, DefaultDeadline))
	defer cancel()
	if err := s.StepDown(ctx); err != nil {
		s.o.Log.Warn("leaving the cluster without having handed everything over", "err", err)
	}
}
