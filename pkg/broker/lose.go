package broker

import (
	"slices"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// lose gives up a session that another node has taken: its connection here ends,
// and nothing of it is owed any more, nor written. cl.mu is held.
func (cl *client) lose() {
	if cl.ses == nil {
		return
	}
	if l := cl.link; l != nil {
		cl.b.stats.takeovers.Add(1)
		l.control = nil      // what waits for a record that will not be written
		l.c.Lost(time.Now()) // what comes yet is of no connection any more
		l.bye(mqtt.SessionTakenOver, TakenOver)
		cl.link = nil
		cl.setOnline(false)
	}
	cl.lost = true
	cl.letGo()
}

// letGo takes the session out of this node's memory; the store keeps it. cl.mu
// is held.
func (cl *client) letGo() {
	for _, s := range slices.Clone(cl.ses.Subscriptions()) {
		cl.b.drop(cl, s.Filter)
	}
	cl.giveBack(false)
	cl.leaveTrain()
	cl.ses, cl.inbound, cl.known, cl.adopted = nil, nil, false, false
	cl.record.revision, cl.record.owner, cl.record.needs, cl.record.unsure = cluster.None, ownership{}, nil, false
	if cl.timer != nil {
		cl.timer.Stop()
	}
	if !cl.record.writing {
		cl.forget()
	}
}
