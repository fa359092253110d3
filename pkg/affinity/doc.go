// Package affinity turns a key, such as a Client Identifier, into the backends
// of a pool in order of preference.
//
// A [Table] is one pool as it stands: built once by [Build], shared by all
// connections, replaced as a whole when members or weights change. Health is
// not part of it. It is read from the backends at each decision, so a backend
// that goes down moves its own clients and no others, and its return moves
// only those back that reconnect.
//
// With [Ring] the same key has the same home on every mqttlb that has the same
// backend names and weights, whatever the order of the list, the addresses, or
// the history of the process. docs/adr/0002-ring.md gives the reasons and the
// figures behind the ring.
package affinity
