package session

import (
	"math"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// NeverExpires is the Session Expiry Interval of a session without an end.
const NeverExpires = math.MaxUint32

// Session is the state of one MQTT session. It is not safe for concurrent use,
// except for [Session.Merge] and the identifiers it was made with.
type Session struct {
	clientID string
	identity string
	limits   *Limits

	subs        []*Subscription // by filter
	filterBytes int             // of their filters

	flightBytes int // of flight in a record, at most

	// The way out. Times are in Unix nanoseconds, 0 is none.

	queued     queue  // QoS 1 and 2, not sent yet
	loose      queue  // QoS 0
	flight     flight // QoS 1 and 2, sent and not acknowledged
	shards     []shard
	bytes      int64  // of both queues
	looseBytes int64  // of loose
	order      uint64 // of what was queued or released last
	absent     int    // items whose message has to be fetched
	loaded     int    // items whose message is held, and in the log as well
	lastID     uint16 // the packet identifier assigned last
	behind     bool   // restored, and the log is still to be read again

	promised      int // messages that are about to be stored
	promisedBytes int64

	shares  []string            // names of shared subscriptions, by number
	settled []Shared            // since TakeSettled
	done    map[Shared]struct{} // QoS 2, until Passed

	inbound []inbound // QoS 2, by packet identifier

	will         *Will // of the connection, or of the last one and still to come
	expiry       uint32
	connectedAt  int64
	disconnected int64 // 0 while connected and before that
	over         bool  // ended before its time
	conn         *Connection

	unsaved Urgency
	drops   Drops
}

// Options are what a new session is made of.
type Options struct {
	ClientID string
	// Identity is who authenticated, as the broker names it; a takeover by
	// someone else is the broker's to refuse.
	Identity string
	Limits   *Limits
	// Tail is the last sequence number of each shard that this node has dealt
	// with. Messages up to it were published before the session began.
	Tail []uint64
}

// New gives an empty session, as a CONNECT makes one [MQTT-3.1.2-6].
// [Session.Connect] comes next.
func New(o Options) *Session {
	s := &Session{clientID: o.ClientID, identity: o.Identity, limits: o.Limits}
	if s.limits == nil {
		s.limits = new(Limits)
	}
	if len(o.Tail) > 0 {
		s.shards = make([]shard, len(o.Tail))
		for i, seq := range o.Tail {
			s.shards[i].dealt = seq
		}
	}
	return s
}

// ClientID is the Client Identifier; it never changes.
func (s *Session) ClientID() string { return s.clientID }

// Identity is who authenticated; it never changes.
func (s *Session) Identity() string { return s.identity }

// Connection is the one that has the session now; nil while it is offline.
func (s *Session) Connection() *Connection { return s.conn }

// Expiry is the Session Expiry Interval that holds, in seconds:
// [NeverExpires], or 0 for a session that ends with its connection.
func (s *Session) Expiry() uint32 { return s.expiry }

// Persistent says that the session can outlive its connection. One that can't
// has no use for records of its messages.
func (s *Session) Persistent() bool { return s.expiry > 0 }

// Connected is when the latest connection began; zero if there was none.
func (s *Session) Connected() time.Time { return fromNanos(s.connectedAt) }

// Disconnected is since when the session is offline; zero while connected.
func (s *Session) Disconnected() time.Time { return fromNanos(s.disconnected) }

// Queued is what waits to be sent: messages of all QoS, and their bytes.
func (s *Session) Queued() (messages int, bytes int64) {
	return s.queued.n + s.loose.n, s.bytes
}

// InFlight is how many QoS 1 and 2 messages the client has not acknowledged.
func (s *Session) InFlight() int { return s.flight.n }

// Resumable says whether a CONNECT resumes this session, which is what Session
// Present tells [MQTT-3.2.2-2], [MQTT-3.2.2-3]: Clean Start (Clean Session in
// 3.x) is 0, and the session has not ended. An existing connection has to be
// ended first, with [Connection.TakenOver].
func (s *Session) Resumable(c *mqtt.Connect, now time.Time) bool {
	return !c.CleanStart && !s.ended(now)
}

func toNanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
