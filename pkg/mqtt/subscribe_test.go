package mqtt

import (
	"reflect"
	"slices"
	"testing"
)

var subscribeAccepted = []acceptedPacket{
	{"3.1.1, the specification's example", V311, 0, "820e 000a 0003612f62 01 0003632f64 02",
		Subscribe{PacketID: 10, Subscriptions: Subscriptions("\x00\x03a/b\x01\x00\x03c/d\x02")}, ""},
	{"3.1 again", V31, 0, "8a06 000a 000161 00", Subscribe{PacketID: 10, Subscriptions: Subscriptions("\x00\x01a\x00")}, "8206 000a 000161 00"},
	{"3.1.1 what is no valid filter is not judged here", V311, 0, "8208 000a 0003" + hexOf("#/a") + "00",
		Subscribe{PacketID: 10, Subscriptions: Subscriptions("\x00\x03#/a\x00")}, ""},
	{"3.1.1 the same filter twice", V311, 0, "820a 000a 000161 00 000161 01",
		Subscribe{PacketID: 10, Subscriptions: Subscriptions("\x00\x01a\x00\x00\x01a\x01")}, ""},
	{"5.0, the specification's example", V5, 0, "820f 000a 00 0003612f62 01 0003632f64 02",
		Subscribe{PacketID: 10, Properties: Properties{}, Subscriptions: Subscriptions("\x00\x03a/b\x01\x00\x03c/d\x02")}, ""},
	{"5.0 with an identifier and all options", V5, 0, "8213 000a 0c 0bffffff7f 2600016b000176 000161 2e",
		Subscribe{PacketID: 10, SubscriptionID: maxVarint, Properties: Properties("\x0b\xff\xff\xff\x7f\x26\x00\x01k\x00\x01v"),
			Subscriptions: Subscriptions("\x00\x01a\x2e")}, ""},
	{"5.0 shared, with No Local 0", V5, 0, "820f 000a 00 0009" + hexOf("$share/g/") + "02",
		Subscribe{PacketID: 10, Properties: Properties{}, Subscriptions: Subscriptions("\x00\x09$share/g/\x02")}, ""},
	{"5.0 No Local on what only looks shared", V5, 0, "820d 000a 00 0007" + hexOf("$shared") + "04",
		Subscribe{PacketID: 10, Properties: Properties{}, Subscriptions: Subscriptions("\x00\x07$shared\x04")}, ""},
}

var subscribeRefused = []refusedPacket{
	{"flags 0", V311, 0, "8006 000a 000161 00", 1, MalformedPacket, "have to be 0x2"},
	{"3.1.1 again", V311, 0, "8a06 000a 000161 00", 1, MalformedPacket, "have to be 0x2"},
	{"5.0 flags", V5, 0, "8307 000a 00 000161 00", 1, MalformedPacket, "have to be 0x2"},
	{"3.1 flags", V31, 0, "8306 000a 000161 00", 1, MalformedPacket, "have to be 0x2"},
	{"no room for a Packet Identifier", V311, 0, "8201 00", 2, MalformedPacket, "Packet Identifier"},
	{"5.0 no room for properties", V5, 0, "8202 000a", 2, MalformedPacket, "Packet Identifier"},
	{"Packet Identifier 0", V311, 0, "8206 0000 000161 00", 4, ProtocolError, "[MQTT-2.3.1-1]"},
	{"no filter", V311, 0, "8202 000a", 2, ProtocolError, "3.1.1 [MQTT-3.8.3-3]"},
	{"5.0 no filter", V5, 0, "8203 000a 00", 2, ProtocolError, "[MQTT-3.8.3-2]"},
	{"5.0 no filter behind properties", V5, 0, "8205 000a 02 0b01", 5, ProtocolError, "[MQTT-3.8.3-2]"},
	{"filter empty", V311, 0, "8205 000a 0000 00", 6, ProtocolError, "[MQTT-4.7.3-1]"},
	{"filter without options", V311, 0, "8205 000a 000161", 6, MalformedPacket, "Topic Filter"},
	{"filter past the end", V5, 0, "8207 000a 00 000261 00", 7, MalformedPacket, "Topic Filter"},
	{"half a filter behind the first", V311, 0, "8207 000a 000161 00 00", 8, MalformedPacket, "Topic Filter"},
	{"filter with U+0000", V311, 0, "8206 000a 000100 00", 7, MalformedPacket, "[MQTT-1.5.4-2]"},
	{"filter not UTF-8", V5, 0, "8207 000a 00 0001ff 00", 8, MalformedPacket, "[MQTT-1.5.4-1]"},
	{"QoS 3", V311, 0, "8206 000a 000161 03", 8, MalformedPacket, "[MQTT-3-8.3-4]"},
	{"reserved bits", V311, 0, "8206 000a 000161 04", 8, MalformedPacket, "[MQTT-3-8.3-4]"},
	{"3.1 reserved bits", V31, 0, "8206 000a 000161 81", 8, MalformedPacket, "0x81"},
	{"the second filter's QoS", V311, 0, "820a 000a 000161 00 000161 03", 12, MalformedPacket, "[MQTT-3-8.3-4]"},
	{"5.0 QoS 3", V5, 0, "8207 000a 00 000161 03", 9, ProtocolError, "maximum QoS"},
	{"5.0 Retain Handling 3", V5, 0, "8207 000a 00 000161 30", 9, ProtocolError, "Retain Handling"},
	{"5.0 reserved bits", V5, 0, "8207 000a 00 000161 40", 9, MalformedPacket, "[MQTT-3.8.3-5]"},
	{"5.0 No Local on a shared subscription", V5, 0, "8210 000a 00 000a" + hexOf("$share/g/a") + "05", 18, ProtocolError, "[MQTT-3.8.3-4]"},
	{"5.0 Subscription Identifier 0", V5, 0, "8209 000a 02 0b00 000161 00", 7, ProtocolError, "Subscription Identifier"},
	{"5.0 Subscription Identifier twice", V5, 0, "820b 000a 04 0b01 0b01 000161 00", 8, ProtocolError, "twice"},
	{"5.0 Subscription Identifier of five bytes", V5, 0, "820d 000a 06 0bffffffff01 000161 00", 10, MalformedPacket, "[MQTT-1.5.5-1]"},
	{"5.0 a property of another packet", V5, 0, "820a 000a 03 1f0000 000161 00", 6, MalformedPacket, "Reason String"},
	{"5.0 properties past the end", V5, 0, "8207 000a 05 000161 00", 5, MalformedPacket, "properties"},
}

func TestParseSubscribe(t *testing.T) { testAccepted(t, subscribeAccepted) }

func TestParseSubscribeRefusesAsEarlyAsItCanTell(t *testing.T) { testRefused(t, subscribeRefused) }

func TestSubscriptionsAreReadAsAppended(t *testing.T) {
	want := []Subscription{
		{Filter: []byte("a/+"), QoS: 1},
		{Filter: []byte("#"), QoS: 2, NoLocal: true, RetainAsPublished: true, RetainHandling: DontSendRetained},
		{Filter: []byte("$share/g/a"), RetainHandling: SendRetainedIfNew},
	}
	var s Subscriptions
	for _, x := range want {
		s = s.Append(x)
	}
	if got := slices.Collect(s.All()); !reflect.DeepEqual(got, want) || s.Len() != 3 {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for range s.All() {
		break // a caller may leave
	}
}

func TestSubscriptionsEndAtWhatIsNone(t *testing.T) {
	for _, bad := range []string{"\x00", "\x00\x01", "\x00\x01a", "\x00\x03a\x00"} {
		if got := append(Subscriptions("\x00\x01a\x01"), bad...); got.Len() != 1 {
			t.Errorf("behind it %q: %d", bad, got.Len())
		}
	}
}
