package mqtt

import (
	"encoding/hex"
	"slices"
	"testing"
)

var ackAccepted = []acceptedPacket{
	{"3.1.1 PUBACK", V311, 0, "4002 000a", Ack{Type: TypePuback, PacketID: 10}, ""},
	{"3.1.1 PUBREC", V311, 0, "5002 000a", Ack{Type: TypePubrec, PacketID: 10}, ""},
	{"3.1.1 PUBREL", V311, 0, "6202 000a", Ack{Type: TypePubrel, PacketID: 10}, ""},
	{"3.1.1 PUBCOMP", V311, 0, "7002 000a", Ack{Type: TypePubcomp, PacketID: 10}, ""},
	{"3.1 PUBREL again", V31, 0, "6a02 000a", Ack{Type: TypePubrel, PacketID: 10}, "6202 000a"},
	{"5.0 without a reason", V5, 0, "4002 000a", Ack{Type: TypePuback, PacketID: 10}, ""},
	{"5.0 without properties", V5, 0, "5003 000a 97", Ack{Type: TypePubrec, PacketID: 10, Reason: QuotaExceeded}, ""},
	{"5.0 without properties, as it need not say", V5, 0, "5004 000a 97 00", Ack{Type: TypePubrec, PacketID: 10, Reason: QuotaExceeded, Properties: Properties{}}, "5003 000a 97"},
	{"5.0 Success, as it need not say", V5, 0, "6203 000a 00", Ack{Type: TypePubrel, PacketID: 10}, "6202 000a"},
	{"5.0 with properties", V5, 0, "7010 000a 92 0c 1f0002" + hexOf("no") + "2600016b000176",
		Ack{Type: TypePubcomp, PacketID: 10, Reason: PacketIdentifierNotFound, Properties: Properties("\x1f\x00\x02no\x26\x00\x01k\x00\x01v")}, ""},
	{"5.0 Success with properties", V5, 0, "400b 000a 00 07 2600016b000176",
		Ack{Type: TypePuback, PacketID: 10, Properties: Properties("\x26\x00\x01k\x00\x01v")}, ""},
}

var ackRefused = []refusedPacket{
	{"PUBACK with flags", V311, 0, "4202 000a", 1, MalformedPacket, "[MQTT-2.1.3-1]"},
	{"PUBREC with flags", V5, 0, "5102 000a", 1, MalformedPacket, "[MQTT-2.1.3-1]"},
	{"PUBREL without its flags", V311, 0, "6002 000a", 1, MalformedPacket, "have to be 0x2"},
	{"3.1 PUBREL without its flags", V31, 0, "6002 000a", 1, MalformedPacket, "have to be 0x2"},
	{"3.1.1 PUBREL again", V311, 0, "6a02 000a", 1, MalformedPacket, "have to be 0x2"},
	{"PUBCOMP with flags", V5, 0, "7202 000a", 1, MalformedPacket, "[MQTT-2.1.3-1]"},
	{"3.1.1 too long", V311, 0, "4003 000a 00", 2, MalformedPacket, "has to be 2"},
	{"3.1.1 too short", V311, 0, "4001 0a", 2, MalformedPacket, "has to be 2"},
	{"5.0 too short", V5, 0, "4001 0a", 2, MalformedPacket, "Packet Identifier"},
	{"5.0 remaining length longer than need be", V5, 0, "408200 000a", 3, MalformedPacket, "[MQTT-1.5.5-1]"},
	{"Packet Identifier 0", V311, 0, "4002 0000", 4, ProtocolError, "Packet Identifier"},
	{"5.0 Packet Identifier 0", V5, 0, "6202 0000", 4, ProtocolError, "Packet Identifier"},
	{"5.0 PUBACK with a reason of PUBREL", V5, 0, "4003 000a 92", 5, ProtocolError, "0x92"},
	{"5.0 PUBREL with a reason of PUBREC", V5, 0, "6203 000a 97", 5, ProtocolError, "0x97"},
	{"5.0 PUBCOMP with a reason of PUBREC", V5, 0, "7004 000a 10 00", 5, ProtocolError, "0x10"},
	{"5.0 a reason that is none", V5, 0, "4003 000a 42", 5, ProtocolError, "0x42"},
	{"5.0 properties past the end", V5, 0, "4004 000a 00 01", 6, MalformedPacket, "properties"},
	{"5.0 bytes behind the properties", V5, 0, "4005 000a 00 00 00", 6, MalformedPacket, "leaves 1 bytes over"},
	{"5.0 Reason String twice", V5, 0, "400a 000a 00 06 1f0000 1f0000", 10, ProtocolError, "twice"},
	{"5.0 a property of another packet", V5, 0, "4007 000a 00 03 210001", 7, MalformedPacket, "Receive Maximum"},
}

func TestParseAck(t *testing.T) { testAccepted(t, ackAccepted) }

func TestParseAckRefusesAsEarlyAsItCanTell(t *testing.T) { testRefused(t, ackRefused) }

func TestAppendAckIn3HasNoPlaceForAReason(t *testing.T) {
	a := Ack{Type: TypePuback, PacketID: 10, Reason: NotAuthorized, Properties: Properties("\x1f\x00\x00")}
	if got := AppendAck(nil, V311, a); hex.EncodeToString(got) != "4002000a" {
		t.Errorf("%x", got)
	}
}

// The reason codes that each packet may carry, from the tables of 5.0.
func TestReasonCodesOfEachPacket(t *testing.T) {
	for _, tt := range []struct {
		name   string
		from   Sender
		codes  string // hex
		packet func(Reason) []byte
	}{
		{"PUBACK", 0, "00 10 80 83 87 90 91 97 99", ackOf(TypePuback)},
		{"PUBREC", 0, "00 10 80 83 87 90 91 97 99", ackOf(TypePubrec)},
		{"PUBREL", 0, "00 92", ackOf(TypePubrel)},
		{"PUBCOMP", 0, "00 92", ackOf(TypePubcomp)},
		{"SUBACK", 0, "00 01 02 80 83 87 8f 91 97 9e a1 a2",
			func(r Reason) []byte { return AppendSuback(nil, V5, Suback{PacketID: 1, Codes: []byte{byte(r)}}) }},
		{"UNSUBACK", 0, "00 11 80 83 87 8f 91",
			func(r Reason) []byte { return AppendUnsuback(nil, V5, Unsuback{PacketID: 1, Codes: []byte{byte(r)}}) }},
		{"DISCONNECT of a client", FromClient, "00 04 80 81 82 83 90 93 94 95 96 97 98 99",
			func(r Reason) []byte { return AppendDisconnect(nil, V5, r) }},
		{"DISCONNECT of a server", FromServer, "00 80 81 82 83 87 89 8b 8c 8d 8e 8f 90 93 94 95 96 97 98 99 9a 9b 9c 9d 9e 9f a0 a1 a2",
			func(r Reason) []byte { return AppendDisconnect(nil, V5, r) }},
		{"AUTH of a client", FromClient, "18 19", authOf},
		{"AUTH of a server", FromServer, "00 18", authOf},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := unhex(t, tt.codes)
			for code := range 256 {
				_, _, err := parseAny(tt.packet(Reason(code)), V5, tt.from)
				if (err == nil) != slices.Contains(want, byte(code)) {
					t.Errorf("0x%02x: %v", code, err)
				}
			}
		})
	}
}

func ackOf(typ PacketType) func(Reason) []byte {
	return func(r Reason) []byte { return AppendAck(nil, V5, Ack{Type: typ, PacketID: 1, Reason: r}) }
}

func authOf(r Reason) []byte {
	return AppendAuth(nil, Auth{Reason: r, Properties: Properties(nil).AppendText(PropAuthenticationMethod, "m")})
}
