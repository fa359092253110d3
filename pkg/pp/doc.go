// Package pp reads and writes PROXY protocol headers, versions 1 and 2, as
// haproxy's doc/proxy-protocol.txt specifies them ("PP" with a section number
// in these comments).
//
// [Parse] takes the header off the front of the caller's one buffer, in
// whatever pieces it arrives; [AppendV1] and [AppendV2] write one for a
// backend. The package frames, judges and checks; github.com/pires/go-proxyproto
// decodes addresses, and has its only home here.
//
// What the specification leaves to the receiver is decided so:
//
//   - Nothing is guessed: bytes that are no header are an error, never "no
//     header" (PP 2). Whether a peer may send one is the caller's to know.
//   - A header in pieces is waited for, the caller's deadline bounds the wait.
//   - A header is at most [MaxHeader] bytes unless the caller says otherwise.
//   - LOCAL is accepted with whatever its block holds, and the block is thrown
//     away whole, TLVs included (PP 2.2).
//   - UNKNOWN, UNSPEC and UNIX sockets are accepted without addresses.
//   - Datagram transports are refused: no such client can be relayed over TCP.
//   - IPv4-mapped IPv6 addresses are read as the IPv4 addresses that they are,
//     so that a client has one address whichever way it came.
package pp
