package mqtt

import "testing"

var authAccepted = []acceptedPacket{
	{"a client goes on", V5, FromClient, "f00a 18 08 1500016d 160001ff",
		Auth{Reason: ContinueAuthentication, Properties: Properties("\x15\x00\x01m\x16\x00\x01\xff"), Method: []byte("m"), Data: []byte{0xff}}, ""},
	{"a client starts again", V5, FromClient, "f006 19 04 1500016d",
		Auth{Reason: ReAuthenticate, Properties: Properties("\x15\x00\x01m"), Method: []byte("m")}, ""},
	{"a server is content", V5, FromServer, "f00b 00 09 1500016d 1f0002" + hexOf("ok"),
		Auth{Properties: Properties("\x15\x00\x01m\x1f\x00\x02ok"), Method: []byte("m"), ReasonString: []byte("ok")}, ""},
	{"a server is content without words", V5, FromServer, "f000", Auth{}, ""},
}

var authRefused = []refusedPacket{
	{"3.1.1 does not have it", V311, FromServer, "f000", 1, MalformedPacket, "reserved in 3.1.1"},
	{"flags", V5, FromClient, "f200", 1, MalformedPacket, "have to be 0"},
	{"a client without a reason", V5, FromClient, "f000", 2, ProtocolError, "0x00"},
	{"a reason without properties", V5, FromClient, "f00118", 2, MalformedPacket, "reason code"},
	{"a client is content", V5, FromClient, "f006 00 04 1500016d", 3, ProtocolError, "0x00"},
	{"a server starts again", V5, FromServer, "f006 19 04 1500016d", 3, ProtocolError, "0x19"},
	{"no method", V5, FromClient, "f002 18 00", 4, ProtocolError, "Authentication Method"},
	{"data without a method", V5, FromServer, "f006 18 04 160001ff", 8, ProtocolError, "Authentication Method"},
	{"method twice", V5, FromClient, "f00a 18 08 1500016d 1500016d", 9, ProtocolError, "twice"},
	{"data twice", V5, FromClient, "f00c 18 0a 1500016d 160000 160000", 12, ProtocolError, "twice"},
	{"a property of another packet", V5, FromClient, "f005 18 03 210001", 5, MalformedPacket, "Receive Maximum"},
	{"bytes behind the properties", V5, FromClient, "f007 18 04 1500016d 00", 4, MalformedPacket, "leaves 1 bytes over"},
}

func TestParseAuth(t *testing.T) { testAccepted(t, authAccepted) }

func TestParseAuthRefusesAsEarlyAsItCanTell(t *testing.T) { testRefused(t, authRefused) }
