// Package proxy carries connections: from a client that was accepted on a
// listener to the backend that its Client Identifier belongs to.
//
// A [Server] (server.go) is one listener of the configuration (a virtual service); a
// [Pool] is a set of backends with what is said of reaching them. Pools are
// shared by servers and swapped whole on a reload, so each connection decides
// on one snapshot.
//
// A connection has two lives. Its set-up is told in session.go, one step a
// file, in this order:
//
//	accept     a slot is counted, the budget begins
//	header_in  the PROXY header, if this listener takes one
//	admit      the limits of the client's address, now that it is known
//	handshake  TLS, or a look at the ClientHello
//	peek       one buffer, until CONNECT is whole, or the cap or the budget is hit
//	admit      what is over a limit is told so, in the client's own protocol
//	route      which pool, by SNI and ALPN; which key, by the pool's hash_key
//	dial       home first, then the spares: PROXY header (header_out) and CONNECT in one write
//	await      the backend's CONNACK; auth, where it wants to hear more first
//	relay      bytes both ways, half-close, resets and the idle timeout
//
// Whatever fails on the way ends in refuse (an answer, if the client can read
// one) and end (one record of who ended it, at which stage, and why). drain
// ends connections on an operator's word.
//
// The package imports neither health nor certs nor config: what it needs of
// them are functions and plain values in its options.
package proxy
