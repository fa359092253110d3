// Package listen is what mqttlb and the broker accept connections with: the
// sockets and their options, the accept loop, the PROXY protocol header that
// stands in front of a connection, the TLS handshake, the ClientHello that
// passthrough looks at, and the health-check port that is only there while its
// owner is ready.
//
// A [Conn] owns the one buffer in front of its stream. Whoever must look
// before deciding (PROXY header, ClientHello, CONNECT) parses what is pending
// in it and asks for more; nothing is ever read twice or lost between two
// buffers.
//
// Reading happens in the connection's own goroutine under the deadline that
// its owner has set, never inside Accept: a peer that sends nothing costs one
// descriptor until the deadline, and holds up nobody.
package listen
