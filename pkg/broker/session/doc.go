// Package session is the protocol's state of one MQTT session: what a server
// has to remember of a client, and what it may send and must answer because of
// it, for MQTT 3.1, 3.1.1 and 5.0.
//
// It is pure: no socket, no store, no goroutine, no clock. Time is passed in,
// messages are looked up by the caller, and nothing here is safe for concurrent
// use except what says so: the broker holds one lock per session.
//
// A [Session] is what outlives connections: subscriptions, queued and
// unacknowledged messages, the packet identifiers of both directions, the will,
// the expiry. A [Connection] is what one CONNECT adds to it: limits, quotas,
// topic aliases. Only a session's latest Connection has effect; calls on an
// older one do nothing, so that a late callback harms nobody.
//
// # The way of a CONNECT
//
// An existing connection is ended with [Connection.TakenOver], an offline
// session that Clean Start ends with [Session.Discard]. [Session.Due] gives the
// will that is owed because of it. If the session is [Session.Resumable] still,
// it is resumed, else [New] makes another; then [Session.Connect].
//
// # The way of a message to the client
//
// The broker finds the subscriptions that match, [Session.Merge] makes one
// [Delivery] of them, [Session.Queue] takes it in. While the socket takes more,
// [Connection.Next] gives the next packet that the client may get now.
// [Connection.Puback], [Connection.Pubrec] and [Connection.Pubcomp] take the
// client's answers.
//
// # The way of a message from the client
//
// [Connection.Topic] resolves the alias, [Connection.Publish] says whether this
// is a new message, and [Connection.Acked] or [Session.Stored] whom to answer
// once it is stored; for QoS 2 [Connection.Pubrel] and [Session.Forgotten]
// follow.
//
// # What has to survive a crash
//
// The store holds each message once, in a log of one or more shards; a session
// is a cursor into each shard and the exceptions to it, kept as a [Record].
// After each step [Session.Checkpoint] says whether the record has to be
// written, and whether that has to be done before the packets of this step go
// out: without it QoS 2 could deliver twice. [Session.Snapshot] gives the
// record, [Restore] a session from it. Then the broker reads the log again from
// the lowest cursor and queues what matches; the session ignores what it knows.
package session
