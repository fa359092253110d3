// Package mqtt turns bytes into views of MQTT packets and back, for the
// versions 3.1, 3.1.1 and 5.0: all their packets, the properties and reason
// codes of 5.0, and the borders between packets in a stream.
//
// Parsing looks at the caller's buffer and copies nothing: the byte fields of
// a parsed packet alias it. A parser that needs more bytes says [ErrShort] and
// is called again with the same bytes and more behind them, so one growing
// buffer is the only state. What can no longer become an acceptable packet
// fails at once, whatever is still missing. Appending extends the caller's
// slice. Neither allocates on the good path.
//
// A server reads CONNECT with [ParseConnect], and from then on asks
// [NextFromClient] for the packet that comes next.
//
// Clause numbers in comments and errors, such as [MQTT-3.1.2-3], are those of
// OASIS MQTT 3.1.1 and 5.0. The two number many rules alike; where they do
// not, the version stands beside the clause.
package mqtt
