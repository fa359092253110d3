package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// A client that connects here while another node has its session takes it over:
// this node asks the other to let go, gets the session as it is, and writes its
// own name into the record before CONNACK. If nobody answers, the record is what
// there is: QoS 1 may repeat what was acknowledged since, nothing vanishes. Who
// wrote the record decides; a node that finds another name in it loses the
// session ([client.lose]).

const (
	// takeTimeout bounds the wait for a node to let go of a session.
	takeTimeout = 2 * time.Second
	// electionPatience is how long a CONNECT waits for the store to elect a leader:
	// less than a load balancer waits for CONNACK, and mostly enough. Refused
	// clients would only come again.
	electionPatience = 8 * time.Second
	electionPause    = 100 * time.Millisecond
	// takeAttempts is how often a session is asked for that changes hands
	// meanwhile.
	takeAttempts = 5
	// reclaimAfter is when a node that has let go looks whether the session was
	// taken; no earlier than whoever asked has given up.
	reclaimAfter = 5 * time.Second
	// largestHandover bounds what an answer carries; a larger session goes by its
	// record.
	largestHandover = 256 << 10
)

// kindTake is the question for a session.
const kindTake = "take"

// take asks for a session.
type take struct {
	ClientID   string
	Identity   string
	CleanStart bool
}

// taken is the answer.
type taken struct {
	Outcome outcome
	// With handedOver: the session as it is now, and where its record stands.
	Record   []byte            `json:",omitempty"`
	Revision cluster.Revision  `json:",omitempty"`
	Owner    string            `json:",omitempty"`
	Epoch    uint64            `json:",omitempty"`
	Inbound  map[uint16]string `json:",omitempty"`
}

type outcome string

const (
	handedOver outcome = "handed over"
	written    outcome = "written"  // the record has everything
	ended      outcome = "ended"    // the session is over, and its record gone
	notHere    outcome = "not here" // ask the record
	busy       outcome = "busy"     // it could not be let go of now
	foreign    outcome = "foreign"  // it belongs to someone else
)

var (
	errForeign = errors.New("the session belongs to someone else")
	errMoving  = errors.New("the session keeps changing hands")
)

// bring makes sure that the client's session is here, if it has one anywhere,
// and that no other node has it. Afterwards cl.known is set, unless there is an
// error; then nothing has changed here.
func (cl *client) bring(c *mqtt.Connect, identity string) error {
	if !cl.b.clustered() {
		return nil
	}
	cl.bringing.Lock()
	defer cl.bringing.Unlock()
	asked := ownership{} // nobody
	for begun, attempts := time.Now(), 0; attempts < takeAttempts; {
		cl.mu.Lock()
		cl.leaveAdopted()
		known := cl.known || cl.gone
		cl.mu.Unlock()
		if known {
			return nil
		}
		done, err := cl.bringOnce(c, identity, &asked)
		switch {
		case done:
			return nil
		case err == nil:
			attempts++
		case !errors.Is(err, cluster.ErrUnavailable) || !cl.b.quorum() || time.Since(begun) > electionPatience:
			return err
		default: // the store elects a leader
			select {
			case <-time.After(electionPause):
			case <-cl.b.work.Done():
				return err
			}
		}
	}
	return fmt.Errorf("%w: %w", cluster.ErrUnavailable, errMoving)
}

// bringOnce says whether it is done. asked is who was asked in vain: while the
// record names that one, it has to do.
func (cl *client) bringOnce(c *mqtt.Connect, identity string, asked *ownership) (done bool, err error) {
	b := cl.b
	ctx, cancel := context.WithTimeout(b.work, recordTimeout)
	defer cancel()
	r, err := b.store.Records(cluster.Sessions).Get(ctx, cl.key)
	if errors.Is(err, cluster.ErrNotFound) {
		cl.mu.Lock()
		defer cl.mu.Unlock()
		cl.known = true
		return true, nil
	}
	if err != nil {
		return false, err
	}
	owner, rec, err := parseSession(r)
	if err != nil {
		return false, err
	}
	if rec.Identity != identity {
		return false, errForeign
	}
	holder := b.holder(owner.node, cl.key)
	if h := b.released.of(cl.id); h != nil {
		defer b.released.forget(cl.id, h)
		if h.answer.Revision == r.Revision {
			return cl.receive(h.answer) // nobody came for it
		}
	}
	if holder != b.o.Node && *asked != owner {
		switch t := b.ask(holder, take{cl.id, identity, c.CleanStart}); t.Outcome {
		case handedOver:
			if t.Revision >= r.Revision {
				return cl.receive(t)
			}
			*asked = owner // what it has is older than the record
		case foreign:
			return false, errForeign
		case notHere:
			*asked = owner
		case busy:
			return false, fmt.Errorf("%w: the session's node can't let go of it now", cluster.ErrUnavailable)
		}
		return false, nil // look again: the record may have changed meanwhile
	}
	return cl.inherit(ctx, r, owner, rec)
}

// leaveAdopted lets go of a session that this node only looks after, and has
// written nothing of: whoever takes it reads it again, since what its lost node
// had on the way may have come into the store meanwhile. cl.mu is held.
func (cl *client) leaveAdopted() bool {
	if !cl.adopted || cl.ses == nil || cl.link != nil || cl.record.writing || cl.record.owner.node == cl.b.o.Node {
		return false
	}
	cl.letGo()
	return true
}

// ask asks a node for a session. What nobody can reach has nothing; but a node
// that is at work and only slow to answer has to be waited for, since it goes on
// with what its client has sent until it knows.
func (b *Broker) ask(node string, t take) taken {
	body, _ := json.Marshal(t)
	answer, err := b.reach(node, kindTake, body)
	if err != nil {
		if !errors.Is(err, cluster.ErrNoNode) {
			b.log.Info("a session's node is slow to answer", "client_id", t.ClientID, "node", node, "err", err)
			return taken{Outcome: busy}
		}
		b.log.Info("a session's node does not answer, its record has to do", "client_id", t.ClientID, "node", node, "err", err)
		return taken{Outcome: notHere}
	}
	var got taken
	if err := json.Unmarshal(answer, &got); err != nil {
		b.log.Error("an answer about a session makes no sense", "client_id", t.ClientID, "node", node, "err", err)
		return taken{Outcome: notHere}
	}
	return got
}

// receive takes in a session that another node has let go of.
func (cl *client) receive(t taken) (done bool, err error) {
	rec, err := session.ParseRecord(t.Record)
	if err != nil {
		return false, fmt.Errorf("session from another node: %w", err)
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.restore(rec, ownership{t.Owner, t.Epoch}, t.Revision, time.Now())
	for id, value := range t.Inbound {
		cl.keepInbound(id, parseInbound(value))
		cl.ses.Remember(id)
	}
	cl.board(rec.Cursors)
	return true, nil
}

// inherit takes in a session from its record: whoever had it is no more, or does
// not answer.
func (cl *client) inherit(ctx context.Context, r cluster.Record, owner ownership, rec session.Record) (done bool, err error) {
	var records []cluster.Record
	err = cl.b.store.Records(cluster.Inbound2).List(ctx, cl.key, func(r cluster.Record) { records = append(records, r) })
	if err != nil {
		return false, err
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.restore(rec, owner, r.Revision, time.Now())
	for _, r := range records {
		if err := cl.remember(r); err != nil {
			cl.b.log.Error("QoS 2 publications forgotten", "client_id", cl.id, "err", err)
		}
	}
	cl.board(rec.Cursors)
	return true, nil
}

// answerTake lets go of a session for another node.
func (b *Broker) answerTake(from string, body []byte) []byte {
	var t take
	answer := taken{Outcome: busy}
	if err := json.Unmarshal(body, &t); err != nil {
		b.log.Error("a question for a session makes no sense", "node", from, "err", err)
	} else if b.stay() {
		answer = b.release(t)
		b.serving.Done()
	}
	out, _ := json.Marshal(answer)
	return out
}

// release ends what this node has of a session: its connection, as a takeover
// ends it, and, if that does not end it, the session here.
func (b *Broker) release(t take) taken {
	cl := b.lookup(t.ClientID)
	if cl == nil {
		return b.released.again(t)
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	switch {
	case !cl.gone && cl.ses == nil && cl.record.writing: // its record is about to go
		return cl.awaitSaved(taken{Outcome: ended})
	case cl.gone || cl.ses == nil:
		return taken{Outcome: notHere}
	case cl.ses.Identity() != t.Identity:
		return taken{Outcome: foreign}
	}
	if cl.letting {
		return taken{Outcome: busy}
	}
	cl.letting = true
	defer func() { cl.letting = false }()
	ses, now := cl.ses, time.Now()
	if cl.link != nil {
		cl.takeOver(cl.link, t.CleanStart, now)
	}
	if cl.timer != nil {
		cl.timer.Stop()
	}
	if cl.conclude(t.CleanStart, now) {
		return cl.awaitSaved(taken{Outcome: ended})
	}
	a := cl.hand(ses, t)
	if a.Outcome == busy && cl.ses != nil { // it stays
		cl.schedule(time.Now())
		cl.settle()
	}
	return a
}

// settlePatience is how long a session that is to be let go of waits for what
// its client has published: an answer has to come within takeTimeout. During an
// election it takes longer; whoever asks comes again.
const settlePatience = takeTimeout * 3 / 4

// hand gives the session away once nothing of it is under way, and so nothing
// that this node has begun is done behind the other's back. cl.mu is held, but
// not all the time.
func (cl *client) hand(ses *session.Session, t take) taken {
	if !cl.settled(settlePatience) {
		return taken{Outcome: busy}
	}
	if cl.ses != ses {
		return taken{Outcome: busy}
	}
	if cl.leaveAdopted() {
		return taken{Outcome: notHere}
	}
	for cl.record.writing || cl.record.unsure {
		if a := cl.awaitSaved(taken{Outcome: handedOver}); a.Outcome != handedOver || cl.ses != ses || cl.link != nil {
			return taken{Outcome: busy}
		}
	}
	record := ses.Snapshot(cl.b.tail())
	a := taken{
		Outcome: handedOver, Record: record.Append(nil), Revision: cl.record.revision,
		Owner: cl.record.owner.node, Epoch: cl.record.owner.epoch,
	}
	if len(a.Record) > largestHandover {
		ses.Touch(session.First)
		if a := cl.awaitSaved(taken{Outcome: written}); a.Outcome != written || cl.ses != ses || cl.link != nil {
			return taken{Outcome: busy}
		}
		a = taken{Outcome: written}
	}
	for id, in := range cl.inbound {
		if a.Outcome == handedOver && in.recorded {
			if a.Inbound == nil {
				a.Inbound = make(map[uint16]string)
			}
			a.Inbound[id] = in.value()
		}
	}
	if a.Outcome == handedOver {
		cl.b.released.keep(t, a, func() { cl.b.reclaim(t.ClientID) })
	}
	cl.letGo()
	return a
}

// awaitSaved waits until what has changed is in the record, without the lock,
// and gives then, or that it can't be done now. cl.mu is held before and after.
func (cl *client) awaitSaved(then taken) taken {
	saved := make(chan error, 1)
	cl.save(func(err error) { saved <- err })
	cl.mu.Unlock()
	err := <-saved
	cl.mu.Lock()
	if err != nil {
		return taken{Outcome: busy}
	}
	return then
}
