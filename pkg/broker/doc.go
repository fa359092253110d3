// Package broker is the companion broker: MQTT 3.1, 3.1.1 and 5.0 for clients
// that connect directly or through mqttlb, on one node or on several.
//
// It joins three parts that do not know each other. broker/session is what the
// protocol remembers of one client, pure state. broker/topics finds who
// subscribes to what. broker/cluster is the store, and the way to other nodes: a
// message with QoS 1 or 2 is kept once, in a log; a session is a place in that
// log.
//
// A message's way: read.go takes it off the socket, publish.go stores it and
// answers for it when the store has it (line.go, if something must be stored
// before it; inbound.go for QoS 2), the tail in tail.go brings what was stored
// back in order, on every node, fanout.go finds the sessions it is for and queues
// it, write.go sends what a session may send now. QoS 0 goes from publish.go to
// fanout.go directly, and by cast.go to other nodes.
//
// A connection's way: accept.go, connect.go (CONNECT, takeover, the session's
// record, CONNACK), read.go until the client leaves, end.go (will.go, expiry).
//
// In a cluster a session is on one node at a time. Its record says on which
// (owner.go); whoever changes that by compare-and-swap has it (save.go), the
// other loses it (lose.go). takeover.go moves a session to the node that its
// client connects to, train.go takes it from its place in the log to where that
// node is, nodes.go follows who is there, takes in the sessions of nodes that are
// lost and lets clients go when this node is cut off; doubt.go holds back what
// clients sent to a node that stood still. Of all nodes one deals the messages of
// shared subscriptions to their members, wherever those are (deal.go, hands.go).
//
// An idle connection holds one goroutine and no buffer: it waits for bytes
// without one, and a goroutine writes only while there is something to write.
package broker
