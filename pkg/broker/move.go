package broker

import (
	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
)

// Records name places in the log. What follows is how they are brought from one
// store to another, by whoever has moved the messages.

// MoveSession gives the record of a session as it is to be in another store. Who
// holds the session stays in it: that node, or the one that takes its place, finds
// the session as one whose node is lost. gone counts messages in flight that the
// other store does not have.
func MoveSession(r cluster.Record, to session.Places) (value []byte, gone int, err error) {
	owner, rec, err := parseSession(r)
	if err != nil {
		return nil, 0, err
	}
	gone = rec.Move(to)
	return rec.Append(owner.append(nil)), gone, nil
}
