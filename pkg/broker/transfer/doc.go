// Package transfer brings all that a store holds into another one: the log's
// messages, retained messages, sessions, QoS 2 publications under way, and how
// far shared subscriptions are. Between the two it is a file ([Export], [Import]).
// Messages get other places in the new log, and records that name places are
// moved along.
//
// A store can't change between one node and several in place, nor from one
// cluster to another: this is the way.
package transfer
