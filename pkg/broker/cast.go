package broker

import (
	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
)

// kindPublish is a QoS 0 message for the clients of other nodes.
const kindPublish = "publish"

// cast sends a QoS 0 message to the other nodes.
func (b *Broker) cast(m *session.Message) {
	if b.clustered() {
		b.o.Peers.Cast(kindPublish, cluster.AppendMessage(nil, toStore(m, "")))
	}
}

// hearPublish distributes what another node has cast.
func (b *Broker) hearPublish(from string, body []byte) {
	m, err := cluster.ParseMessage(body)
	if err != nil {
		b.log.Error("a message from another node makes no sense", "node", from, "err", err)
		return
	}
	b.fanOut(fromStore(m), session.Ref{})
}
