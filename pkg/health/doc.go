// Package health finds out which backends can serve and says so: it sets the
// verdict that [backend.Backend.Usable] answers with.
//
// A [Monitor] checks the backends of one pool with a [Prober]: [TCP] (the port
// answers), [MQTT] (CONNECT is answered by CONNACK) or [Paho] (a message comes
// back). Beside these active checks it takes passive reports from the sessions
// that meet a backend while they serve clients.
//
// # When a verdict changes
//
// The first check decides, up or down, at once. After it, Fall consecutive
// failures take a backend down and Rise consecutive passes bring it up. While
// such a streak is under way the next check starts FastInterval after the last
// one started, otherwise Interval after it, each ±10 % so that many balancers
// do not check in step. A backend that is down, with no pass yet, is checked at
// Interval. A silent backend is down within Fall × Interval as long as Timeout
// is no longer than Interval.
//
// At most one check of a backend is under way at a time. A backend in drain is
// checked on; one in maintenance is not, and what was known of it is forgotten:
// when it comes back it serves after its first passed check.
//
// # What passive reports weigh
//
// A failed dial ([Monitor.DialFailed]) counts as one failed check and brings the
// next active check forward: it starts at once, or FastInterval after the start
// of the last one. Only a backend that is up takes passive reports: a late
// report about a backend that is down or being found out says nothing new.
//
// A connection that closes after CONNECT and before its first byte is weak
// evidence, since one CONNECT that a broker cannot bear must never mark the
// fleet down. See [Monitor.ClosedEarly] for what it takes to count.
//
// Trouble of our own ([Local]: out of descriptors or of local ports) never counts
// against a backend, neither in a check nor in a report.
//
// # What counts as alive
//
// A broker that answers CONNACK works, also when it refuses the probe for who the
// probe is: a wrong or missing user name (3.x 0x04 and 0x05; 5.0 0x86, 0x87,
// 0x8A, 0x8C), the Client Identifier (0x02; 0x85) or the protocol version (0x01;
// 0x84). So a rotated password in this configuration takes no broker out of
// service. A broker that refuses for its own state is down: 0x03 and 0x88 (server
// unavailable), 0x89, 0x97, 0x9C, 0x9D, 0x9F and every other code. [Paho] is
// asked for a whole round trip, so to it every refusal is a failure.
package health
