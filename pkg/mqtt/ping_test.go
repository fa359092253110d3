package mqtt

import "testing"

var pingAccepted = []acceptedPacket{
	{"PINGREQ", V311, FromClient, "c000", TypePingreq, ""},
	{"PINGRESP", V311, FromServer, "d000", TypePingresp, ""},
	{"5.0 PINGREQ", V5, FromClient, "c000", TypePingreq, ""},
	{"3.1.1 remaining length longer than need be", V311, FromClient, "c08000", TypePingreq, "c000"},
}

var pingRefused = []refusedPacket{
	{"flags", V31, FromClient, "c100", 1, MalformedPacket, "have to be 0"},
	{"a body", V311, FromClient, "c001 00", 2, MalformedPacket, "has to be 0"},
	{"a large body", V5, FromServer, "d0ffffff7f", 5, MalformedPacket, "has to be 0"},
	{"5.0 remaining length longer than need be", V5, FromClient, "c08000", 3, MalformedPacket, "[MQTT-1.5.5-1]"},
}

func TestParsePing(t *testing.T) { testAccepted(t, pingAccepted) }

func TestParsePingRefusesAsEarlyAsItCanTell(t *testing.T) { testRefused(t, pingRefused) }
