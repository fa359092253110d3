package broker

import (
	"crypto/sha256"
	"encoding/base32"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/session"
)

// client is a Client Identifier that has, or is about to have, a session. It
// outlives connections and ends with its session.
type client struct {
	b      *Broker
	id     string
	key    string // of its record
	number uint64 // an order among clients, to group what matches

	online atomic.Bool // link is set; for who looks without the lock

	bringing sync.Mutex // held while the session is brought from another node, before mu

	mu      sync.Mutex
	ses     *session.Session // nil before the first CONNECT is through
	link    *link            // the connection that has the session; nil while offline
	record  record
	timer   *time.Timer // what the offline session owes next
	gone    bool        // no longer in Broker.clients: look it up again
	lost    bool        // the session is another node's: nothing is written any more
	adopted bool        // of a lost node, whose name the record has still
	known   bool        // what the store has of the client was looked up; in a cluster
	train   *seat       // while the session catches up with the log
	dirty   bool        // among Broker.dirty

	lined     []waitingPublish // publications that something has to happen before, in order
	storing   bool             // a goroutine brings them into the store
	unsettled int              // publications, and ends of QoS 2 ones, whose outcome the store owes
	letting   bool             // the session is being let go of: nothing more is stored
	quiet     sync.Cond        // unsettled or storing has changed

	inbound map[uint16]inbound // QoS 2 publications of the client, by packet identifier
	orphans []uint16           // identifiers of a session that is over, whose records are to be removed
	cleared chan struct{}      // closed when that is under way; nil without orphans
	shares  int                // shared subscriptions; Broker.hands' lock guards it
}

func (*client) isTarget() {}

// recordKey is a client's key in the store: whatever bytes a Client Identifier
// has, and however many.
func recordKey(id string) string {
	sum := sha256.Sum256([]byte(id))
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:])
}

// settle sees to it that what changed reaches the store in time; cl.mu is held.
// What must be there before anything is sent is the writer's to see to.
func (cl *client) settle() {
	cl.settleShared()
	if cl.adopted && cl.ses != nil && cl.ses.Checkpoint() != session.First {
		return // its node may come back
	}
	if cl.ses != nil && cl.ses.Checkpoint() != session.Saved {
		cl.saveSoon()
	}
}

// end ends the session: its subscriptions leave the tree, what it was to share
// goes to others, its records are removed, and the client is forgotten with
// them unless it is back by then. cl.mu is held.
func (cl *client) end() {
	for _, s := range slices.Clone(cl.ses.Subscriptions()) {
		cl.b.drop(cl, s.Filter)
	}
	cl.giveBack(true)
	for id, in := range cl.inbound {
		if in.recorded {
			cl.orphans = append(cl.orphans, id)
		}
	}
	if len(cl.orphans) > 0 && cl.cleared == nil {
		cl.cleared = make(chan struct{})
	}
	cl.leaveTrain()
	cl.ses, cl.inbound = nil, nil
	cl.save(func(error) {})
}

// forgetUnused forgets a client that has come to nothing.
func (cl *client) forgetUnused() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.ses == nil && cl.link == nil && !cl.record.writing {
		cl.forget()
	}
}

// forget removes a client without a session from the broker; cl.mu is held.
func (cl *client) forget() {
	cl.gone = true
	if cl.timer != nil {
		cl.timer.Stop()
	}
	cl.b.mu.Lock()
	defer cl.b.mu.Unlock()
	if cl.b.clients[cl.id] == cl {
		delete(cl.b.clients, cl.id)
	}
}
