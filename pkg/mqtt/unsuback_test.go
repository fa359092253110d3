package mqtt

import (
	"encoding/hex"
	"testing"
)

var unsubackAccepted = []acceptedPacket{
	{"3.1.1", V311, FromServer, "b002 000a", Unsuback{PacketID: 10}, ""},
	{"5.0", V5, FromServer, "b005 000a 00 0011", Unsuback{PacketID: 10, Properties: Properties{}, Codes: []byte{0, 0x11}}, ""},
	{"5.0 with properties", V5, FromServer, "b007 000a 03 1f0000 8f",
		Unsuback{PacketID: 10, Properties: Properties("\x1f\x00\x00"), Codes: []byte{0x8f}}, ""},
}

var unsubackRefused = []refusedPacket{
	{"flags", V311, FromServer, "b202 000a", 1, MalformedPacket, "have to be 0"},
	{"3.1.1 with codes", V311, FromServer, "b003 000a 00", 2, MalformedPacket, "has to be 2"},
	{"5.0 no code", V5, FromServer, "b003 000a 00", 2, MalformedPacket, "Packet Identifier"},
	{"Packet Identifier 0", V5, FromServer, "b004 0000 00 00", 4, ProtocolError, "Packet Identifier"},
	{"5.0 a code of SUBACK", V5, FromServer, "b004 000a 00 01", 6, ProtocolError, "0x01"},
	{"5.0 a property of another packet", V5, FromServer, "b007 000a 03 1c0000 00", 6, MalformedPacket, "Server Reference"},
}

func TestParseUnsuback(t *testing.T) { testAccepted(t, unsubackAccepted) }

func TestParseUnsubackRefusesAsEarlyAsItCanTell(t *testing.T) { testRefused(t, unsubackRefused) }

func TestAppendUnsubackIn3HasOnlyTheIdentifier(t *testing.T) {
	u := Unsuback{PacketID: 10, Codes: []byte{0}, Properties: Properties("\x1f\x00\x00")}
	if got := AppendUnsuback(nil, V311, u); hex.EncodeToString(got) != "b002000a" {
		t.Errorf("%x", got)
	}
}
