// Package cluster is the broker's store: the log of published messages,
// retained messages and small records, behind the one interface [Store].
//
// [OpenJetStream] is the real one, on an embedded NATS server with JetStream.
// [NewMemory] serves tests and keeps nothing. Both pass the same acceptance
// test, and nothing else in the project imports NATS. The package knows no
// sockets of clients and nothing of MQTT sessions.
//
// # The way of a write
//
// A call passes the gate, which bounds what is under way, and becomes a job in
// the queue of its lane: one for each shard, each bucket and the retained
// messages. While the engine syncs what a lane has given it, the next wave
// gathers. A shard's writer makes a pack of it, one message of the engine for
// many of ours; a bucket's writer sends records one by one or as a batch. When
// the engine has answered, done is called.
//
// # The way of a read
//
// Tail, Watch and Retained follow a stream of the engine: they ask for a bounded
// number of its messages ahead, begin anew where an interruption left them, and
// find out when they have everything. Get asks for one message, and keeps the
// last few packs.
//
// # Several nodes
//
// In a cluster (see [ClusterOptions]) each node's engine is one of the cluster's,
// and what is stored is on three nodes. All nodes write to the same streams, each
// to a subject of its own in the log. Readers are fed by the node that leads a
// stream, and follow when another one does; what was confirmed is read back from
// there, too, and counts only while this node hears more than half of the others.
// [Peers] is how nodes hear of each other and talk; nothing that must be right
// rests on that alone. A write without a quorum fails at its deadline; with one it
// waits for the engine's election.
//
// docs/adr/0008-store.md and docs/adr/0010-cluster-store.md have the reasons and
// the figures.
package cluster
