package mqtt

import (
	"reflect"
	"slices"
	"testing"
)

var unsubscribeAccepted = []acceptedPacket{
	{"3.1.1, the specification's example", V311, 0, "a20c 000a 0003612f62 0003632f64",
		Unsubscribe{PacketID: 10, Filters: Filters("\x00\x03a/b\x00\x03c/d")}, ""},
	{"3.1 again", V31, 0, "aa05 000a 000161", Unsubscribe{PacketID: 10, Filters: Filters("\x00\x01a")}, "a205 000a 000161"},
	{"5.0", V5, 0, "a206 000a 00 000161", Unsubscribe{PacketID: 10, Properties: Properties{}, Filters: Filters("\x00\x01a")}, ""},
	{"5.0 with properties", V5, 0, "a20d 000a 07 2600016b000176 000123",
		Unsubscribe{PacketID: 10, Properties: Properties("\x26\x00\x01k\x00\x01v"), Filters: Filters("\x00\x01#")}, ""},
}

var unsubscribeRefused = []refusedPacket{
	{"flags 0", V311, 0, "a005 000a 000161", 1, MalformedPacket, "have to be 0x2"},
	{"5.0 again", V5, 0, "aa06 000a 00 000161", 1, MalformedPacket, "have to be 0x2"},
	{"Packet Identifier 0", V311, 0, "a205 0000 000161", 4, ProtocolError, "[MQTT-2.3.1-1]"},
	{"no filter", V311, 0, "a202 000a", 2, ProtocolError, "[MQTT-3.10.3-2]"},
	{"5.0 no filter", V5, 0, "a203 000a 00", 2, ProtocolError, "[MQTT-3.10.3-2]"},
	{"5.0 no filter behind properties", V5, 0, "a20a 000a 07 2600016b000176", 5, ProtocolError, "[MQTT-3.10.3-2]"},
	{"filter empty", V5, 0, "a205 000a 00 0000", 7, ProtocolError, "[MQTT-4.7.3-1]"},
	{"filter past the end", V311, 0, "a205 000a 000261", 6, MalformedPacket, "Topic Filter"},
	{"half a filter behind the first", V311, 0, "a206 000a 000161 00", 7, MalformedPacket, "Topic Filter"},
	{"filter not UTF-8", V311, 0, "a205 000a 0001ff", 7, MalformedPacket, "[MQTT-1.5.4-1]"},
	{"5.0 a property of SUBSCRIBE", V5, 0, "a208 000a 02 0b01 000161", 6, MalformedPacket, "Subscription Identifier"},
}

func TestParseUnsubscribe(t *testing.T) { testAccepted(t, unsubscribeAccepted) }

func TestParseUnsubscribeRefusesAsEarlyAsItCanTell(t *testing.T) { testRefused(t, unsubscribeRefused) }

func TestFiltersAreReadAsAppended(t *testing.T) {
	want := [][]byte{[]byte("a/+"), []byte("#")}
	f := Filters(nil).Append(want[0]).Append(want[1])
	if got := slices.Collect(f.All()); !reflect.DeepEqual(got, want) || f.Len() != 2 {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for range f.All() {
		break // a caller may leave
	}
	if n := append(f, "\x00\x02a"...).Len(); n != 2 {
		t.Errorf("with half a filter behind them: %d", n)
	}
}
