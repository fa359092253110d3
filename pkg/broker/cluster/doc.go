// Package cluster is the broker's store: the log of published messages,
// retained messages and small records, behind the one interface [Store].
//
// [OpenJetStream] is the real one, on an embedded NATS server with JetStream.
// [NewMemory] serves tests and keeps nothing. Both pass the same acceptance
// test, and nothing else in the project imports NATS. The package knows no
// sockets of clients and nothing of MQTT sessions.
package cluster
