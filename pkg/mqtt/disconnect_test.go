package mqtt

import "testing"

var disconnectAccepted = []acceptedPacket{
	{"3.1.1", V311, FromClient, "e000", Disconnect{}, ""},
	{"3.1", V31, FromClient, "e000", Disconnect{}, ""},
	{"5.0 without a reason", V5, FromClient, "e000", Disconnect{}, ""},
	{"5.0 Success, as it need not say", V5, FromClient, "e00100", Disconnect{}, "e000"},
	{"5.0 Success without properties, as it need not say", V5, FromClient, "e0020000", Disconnect{Properties: Properties{}}, "e000"},
	{"5.0 without properties", V5, FromClient, "e00204 00", Disconnect{Reason: DisconnectWithWillMessage, Properties: Properties{}}, ""},
	{"5.0 without the length of properties", V5, FromClient, "e00104", Disconnect{Reason: DisconnectWithWillMessage}, "e00204 00"},
	{"5.0 of a client", V5, FromClient, "e00c 00 0a 1100000000 1f0002" + hexOf("ok"),
		Disconnect{Properties: Properties("\x11\x00\x00\x00\x00\x1f\x00\x02ok"), HasSessionExpiry: true, ReasonString: []byte("ok")}, ""},
	{"5.0 of a server", V5, FromServer, "e00e 9c 0c 1c0002" + hexOf("b2") + "2600016b000176",
		Disconnect{Reason: UseAnotherServer, Properties: Properties("\x1c\x00\x02b2\x26\x00\x01k\x00\x01v"), ServerReference: []byte("b2")}, ""},
}

var disconnectRefused = []refusedPacket{
	{"flags", V311, FromClient, "e100", 1, MalformedPacket, "have to be 0"},
	{"3.1.1 with a reason", V311, FromClient, "e00100", 2, MalformedPacket, "has to be 0"},
	{"5.0 a client says what a server may", V5, FromClient, "e0028b00", 3, ProtocolError, "0x8b"},
	{"5.0 a server says what a client may", V5, FromServer, "e00104", 3, ProtocolError, "0x04"},
	{"5.0 Session Expiry twice", V5, FromClient, "e00c 00 0a 1100000001 1100000001", 10, ProtocolError, "twice"},
	{"5.0 Session Expiry of a server", V5, FromServer, "e007 8b 05 1100000001", 9, ProtocolError, "[MQTT-3.14.2-2]"},
	{"5.0 Server Reference twice", V5, FromServer, "e008 9c 06 1c0000 1c0000", 8, ProtocolError, "twice"},
	{"5.0 bytes behind the properties", V5, FromClient, "e003 00 00 00", 4, MalformedPacket, "leaves 1 bytes over"},
	{"5.0 properties past the end", V5, FromClient, "e002 00 01", 4, MalformedPacket, "properties"},
	{"5.0 a property of another packet", V5, FromClient, "e005 00 03 210001", 5, MalformedPacket, "Receive Maximum"},
}

func TestParseDisconnect(t *testing.T) { testAccepted(t, disconnectAccepted) }

func TestParseDisconnectRefusesAsEarlyAsItCanTell(t *testing.T) { testRefused(t, disconnectRefused) }

func TestSenderNames(t *testing.T) {
	if FromClient.String() != "client" || FromServer.String() != "server" {
		t.Errorf("%s, %s", FromClient, FromServer)
	}
}
