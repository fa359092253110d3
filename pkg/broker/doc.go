// Package broker is the companion broker: MQTT 3.1, 3.1.1 and 5.0 for clients
// that connect directly or through mqttlb.
//
// It joins three parts that do not know each other. broker/session is what the
// protocol remembers of one client, pure state. broker/topics finds who
// subscribes to what. broker/cluster is the store: a message with QoS 1 or 2 is
// kept once, in a log; a session is a place in that log.
//
// A message's way: read.go takes it off the socket, publish.go stores it and
// answers for it when the store has it, the tail in tail.go brings what was
// stored back in order, fanout.go finds the sessions it is for and queues it,
// write.go sends what a session may send now. QoS 0 goes from publish.go to
// fanout.go directly.
//
// A connection's way: accept.go, connect.go (CONNECT, takeover, the session's
// record, CONNACK), read.go until the client leaves, end.go (will, expiry).
//
// An idle connection holds one goroutine and no buffer: it waits for bytes
// without one, and a goroutine writes only while there is something to write.
package broker
