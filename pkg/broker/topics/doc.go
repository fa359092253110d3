// Package topics says which Topic Filters match which Topic Names (5 §4.7), and
// finds them where there are a million of either: [Tree] the subscriptions for
// a message, [Index] the retained messages for a subscription. It knows no
// sessions and no sockets.
//
// Both are one trie under two ways to walk it, read walk_name.go and
// walk_filter.go. Who reads takes no lock, so a publisher waits neither for
// subscribers that come and go nor for a slow visit; ADR 7 in docs/adr has the
// figures that chose this.
//
// # Shared subscriptions
//
// A [Tree] hands back every subscription that matches; of a shared one, a
// single member is to get the message (5 §4.8.2). So a broker keeps a second
// tree in which the groups are the subscribers, by the share name and filter
// that [ParseShare] finds:
//
//	sessions Tree[*Session, Options]
//	groups   Tree[string, *Group] // by share name
//
// Match then visits each group once, and the choice of the member is the
// group's. The example of Tree shows it.
//
// Clauses are those of MQTT 5.0; what they say holds in 3.1.1 as well.
package topics
