package mqtt

import (
	"encoding/hex"
	"testing"
)

var subackAccepted = []acceptedPacket{
	{"3.1.1, all codes", V311, FromServer, "9006 000a 00010280", Suback{PacketID: 10, Codes: []byte{0, 1, 2, 0x80}}, ""},
	{"3.1", V31, FromServer, "9003 000a 02", Suback{PacketID: 10, Codes: []byte{2}}, ""},
	{"5.0", V5, FromServer, "9005 000a 00 01a2", Suback{PacketID: 10, Properties: Properties{}, Codes: []byte{1, 0xa2}}, ""},
	{"5.0 with properties", V5, FromServer, "900c 000a 08 1f0005" + hexOf("words") + "87",
		Suback{PacketID: 10, Properties: Properties("\x1f\x00\x05words"), Codes: []byte{0x87}}, ""},
}

var subackRefused = []refusedPacket{
	{"flags", V311, FromServer, "9203 000a 00", 1, MalformedPacket, "have to be 0"},
	{"no code", V311, FromServer, "9002 000a", 2, MalformedPacket, "Packet Identifier"},
	{"5.0 no code", V5, FromServer, "9003 000a 00", 2, MalformedPacket, "Packet Identifier"},
	{"5.0 no code behind properties", V5, FromServer, "9006 000a 03 1f0000", 5, MalformedPacket, "properties"},
	{"Packet Identifier 0", V311, FromServer, "9003 0000 00", 4, ProtocolError, "Packet Identifier"},
	{"3.1.1 a code of 5.0", V311, FromServer, "9004 000a 0087", 6, ProtocolError, "0x87"},
	{"QoS 3", V311, FromServer, "9004 000a 0300", 5, ProtocolError, "0x03"},
	{"5.0 a code of UNSUBACK", V5, FromServer, "9004 000a 00 11", 6, ProtocolError, "0x11"},
	{"5.0 a property of another packet", V5, FromServer, "9006 000a 02 0b01 00", 6, MalformedPacket, "Subscription Identifier"},
}

func TestParseSuback(t *testing.T) { testAccepted(t, subackAccepted) }

func TestParseSubackRefusesAsEarlyAsItCanTell(t *testing.T) { testRefused(t, subackRefused) }

func TestAppendSubackIn3HasOneFailure(t *testing.T) {
	s := Suback{PacketID: 10, Codes: []byte{1, byte(NotAuthorized), byte(WildcardSubscriptionsNotSupported)}, Properties: Properties("\x1f\x00\x00")}
	for v, want := range map[Version]string{V31: "9005000a018080", V311: "9005000a018080", V5: "9009000a031f00000187a2"} {
		if got := AppendSuback(nil, v, s); hex.EncodeToString(got) != want {
			t.Errorf("%s: %x, want %s", v, got, want)
		}
	}
	if s.Codes[1] != byte(NotAuthorized) {
		t.Error("the caller's codes were altered")
	}
}
