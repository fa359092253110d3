package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Status is how a cluster is, as one of its nodes sees it.
type Status struct {
	View
	// Leader is the node that leads the cluster itself; empty if there is none.
	Leader string
	// Streams are where things are stored.
	Streams []StreamStatus
}

// StreamStatus is where one part of the store is: a shard of the log, a bucket or
// the retained messages.
type StreamStatus struct {
	Name string
	// Leader is the node that takes writes; empty if there is none, or none that
	// can be reached.
	Leader   string
	Messages uint64 // of the engine
	Bytes    uint64
	Replicas []ReplicaStatus // the leader is not among them
}

// ReplicaStatus is how another node keeps up with a stream's leader.
type ReplicaStatus struct {
	Node    string
	Current bool          // it has all
	Lag     uint64        // how many changes it has not; of the engine
	Silent  time.Duration // for so long the leader has not heard from it
	Offline bool
}

// Ready says whether everything is led and this node has it all, as far as it is
// to.
func (s Status) Ready(node string) bool {
	ready := s.Quorum && s.Leader != ""
	for _, st := range s.Streams {
		ready = ready && st.Leader != ""
		for _, r := range st.Replicas {
			ready = ready && (r.Node != node || r.Current)
		}
	}
	return ready
}

// Status tells how the cluster is. Without a quorum it tells what is known. It
// takes no longer than half a second.
func (s *JetStream) Status(ctx context.Context) (Status, error) {
	if s.closing.Err() != nil {
		return Status{}, ErrClosed
	}
	st := Status{Streams: make([]StreamStatus, len(s.lanes))}
	if s.peers != nil {
		st.View = s.peers.View()
	}
	var asking sync.WaitGroup
	for i, l := range s.lanes {
		st.Streams[i].Name = l.name
		asking.Go(func() { s.streamStatus(ctx, &st.Streams[i]) })
	}
	st.Leader = s.o.Node
	if s.clustered() {
		st.Leader = s.engine.leader()
	}
	asking.Wait()
	return st, ctx.Err()
}

// leader is the node that leads the cluster; empty if there is none.
func (e *engine) leader() string {
	z, err := e.server.Jsz(&server.JSzOptions{})
	if err != nil || z.Meta == nil {
		return ""
	}
	return z.Meta.Leader
}

func (s *JetStream) streamStatus(ctx context.Context, st *StreamStatus) {
	m, err := s.engine.requestOnce(ctx, min(s.o.Deadline/6, silencePause), "$JS.API.STREAM.INFO."+st.Name, nil)
	if err != nil {
		return
	}
	var info server.JSApiStreamInfoResponse
	if err := json.Unmarshal(m.Data, &info); err != nil || info.StreamInfo == nil {
		return
	}
	st.Messages, st.Bytes = info.State.Msgs, info.State.Bytes
	st.Leader = s.o.Node
	if c := info.Cluster; c != nil && s.clustered() {
		st.Leader = c.Leader
		for _, p := range c.Replicas {
			st.Replicas = append(st.Replicas, ReplicaStatus{p.Name, p.Current, p.Lag, p.Active, p.Offline})
		}
	}
}

var errSingle = errors.New("it is a single node")

// StepDown hands over to other nodes what this one leads, and waits until they
// lead it. It may come to lead something again.
func (s *JetStream) StepDown(ctx context.Context) error {
	if !s.clustered() {
		return errSingle
	}
	system, err := s.engine.system()
	if err != nil {
		return err
	}
	defer system.Close()
	srv := s.engine.server
	for {
		leads := false
		for _, l := range s.lanes {
			if srv.JetStreamIsStreamLeader(account, l.name) {
				leads = true
				_ = srv.JetStreamStepdownStream(account, l.name) // it is looked at again
			}
		}
		if srv.JetStreamIsLeader() {
			leads = true
			_, _ = system.RequestWithContext(ctx, server.JSApiLeaderStepDown, nil)
		}
		if !leads {
			return s.led(ctx)
		}
		if err := s.current(); err != nil {
			return err
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return unavailable(ctx, ctx.Err())
		}
	}
}

// led waits until every stream is led.
func (s *JetStream) led(ctx context.Context) error {
	for _, l := range s.lanes {
		for st := (StreamStatus{Name: l.name}); st.Leader == ""; {
			if err := errors.Join(ctx.Err(), s.current()); err != nil {
				return unavailable(ctx, err)
			}
			time.Sleep(retryPause)
			s.streamStatus(ctx, &st)
		}
	}
	return nil
}

// Remove takes a node out of the cluster for good: what it has, others get, as
// soon as there are enough. It is refused while the node is heard from, and
// without a quorum. A node that was removed by mistake may not come back with its
// folder.
func (s *JetStream) Remove(ctx context.Context, node string) error {
	switch {
	case !s.clustered():
		return errSingle
	case s.closing.Err() != nil:
		return ErrClosed
	}
	switch v := s.peers.View(); {
	case v.Has(node):
		return fmt.Errorf("node %q is there: stop it first, and wait %v", node, PresumedLost)
	case !v.Quorum:
		return fmt.Errorf("%w: without a quorum no node can be removed", ErrUnavailable)
	}
	system, err := s.engine.system()
	if err != nil {
		return err
	}
	defer system.Close()
	body, err := json.Marshal(server.JSApiMetaServerRemoveRequest{Server: node})
	if err != nil {
		return err
	}
	m, err := system.RequestWithContext(ctx, server.JSApiRemoveServer, body)
	if err != nil {
		return unavailable(ctx, err)
	}
	var answer server.JSApiMetaServerRemoveResponse
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return fmt.Errorf("remove node %q: %w", node, err)
	}
	switch err := answer.Error; {
	case err == nil:
		return nil
	case server.ErrorIdentifier(err.ErrCode) == server.JSClusterServerNotMemberErr:
		return fmt.Errorf("node %q: %w", node, ErrNotFound)
	default:
		return fmt.Errorf("%w: remove node %q: %s", ErrUnavailable, node, err.Description)
	}
}
