package mqtt

import (
	"encoding/hex"
	"strings"
	"testing"
)

var (
	topicAB = []byte("a/b")
	payload = []byte("hi")
)

var publishAccepted = []acceptedPacket{
	{"3.1.1 QoS 0", V311, 0, "3007 0003612f62 6869", Publish{Topic: topicAB, Payload: payload}, ""},
	{"3.1.1 QoS 1, the specification's example", V311, 0, "3207 0003612f62 000a", Publish{QoS: 1, Topic: topicAB, PacketID: 10, Payload: []byte{}}, ""},
	{"3.1.1 QoS 2 again, retained", V311, 0, "3d09 0003612f62 ffff 6869",
		Publish{Dup: true, QoS: 2, Retain: true, Topic: topicAB, PacketID: 65535, Payload: payload}, ""},
	{"3.1.1 remaining length longer than need be", V311, 0, "308700 0003612f62 6869", Publish{Topic: topicAB, Payload: payload}, "3007 0003612f62 6869"},
	{"3.1 disregards DUP at QoS 0", V31, 0, "3807 0003612f62 6869", Publish{Topic: topicAB, Payload: payload}, "3007 0003612f62 6869"},
	{"a topic of slashes", V311, 0, "3004 00022f2f", Publish{Topic: []byte("//"), Payload: []byte{}}, ""},
	{"a payload that is no text", V311, 0, "3005 000161 00ff", Publish{Topic: []byte("a"), Payload: []byte{0, 0xff}}, ""},
	{"5.0 QoS 0", V5, 0, "3008 0003612f62 00 6869", Publish{Topic: topicAB, Properties: Properties{}, Payload: payload}, ""},
	{"5.0 QoS 1, the specification's example", V5, 0, "3208 0003612f62 000a 00",
		Publish{QoS: 1, Topic: topicAB, PacketID: 10, Properties: Properties{}, Payload: []byte{}}, ""},
	{"5.0 by alias alone", V5, 0, "3008 0000 03 230007 6869",
		Publish{TopicAlias: 7, Topic: []byte{}, Properties: Properties("\x23\x00\x07"), Payload: payload}, ""},
	{"5.0 with all properties", V5, 0, "3231 0003612f62 000a 27" +
		"0101" + "020000003c" + "03000174" + "080003" + hexOf("r/1") + "090002cafe" + "230001" + "2600016b000176" + "2600016b000177" + "6869",
		Publish{
			QoS: 1, Topic: topicAB, PacketID: 10, Payload: payload,
			Properties: Properties("\x01\x01" + "\x02\x00\x00\x00\x3c" + "\x03\x00\x01t" + "\x08\x00\x03r/1" + "\x09\x00\x02\xca\xfe" +
				"\x23\x00\x01" + "\x26\x00\x01k\x00\x01v" + "\x26\x00\x01k\x00\x01w"),
			PayloadFormat: 1, HasPayloadFormat: true, MessageExpiry: 60, HasMessageExpiry: true, TopicAlias: 1,
			ResponseTopic: []byte("r/1"), CorrelationData: []byte{0xca, 0xfe}, ContentType: []byte("t"),
		}, ""},
	{"5.0 zeros are there, too", V5, 0, "300b 000161 07 0100 0200000000",
		Publish{Topic: []byte("a"), Properties: Properties("\x01\x00\x02\x00\x00\x00\x00"), Payload: []byte{}, HasPayloadFormat: true, HasMessageExpiry: true}, ""},
	{"5.0 an identifier for each subscription that it matches", V5, FromServer, "3009 000161 05 0b05 0b8001",
		Publish{Topic: []byte("a"), Properties: Properties("\x0b\x05\x0b\x80\x01"), Payload: []byte{}, HasSubscriptionID: true}, ""},
}

var publishRefused = []refusedPacket{
	{"QoS 3", V311, 0, "3607 0003612f62 000a", 1, MalformedPacket, "[MQTT-3.3.1-4]"},
	{"QoS 3 in 3.1", V31, 0, "3e07 0003612f62 000a", 1, MalformedPacket, "[MQTT-3.3.1-4]"},
	{"DUP at QoS 0", V311, 0, "3807 0003612f62 6869", 1, MalformedPacket, "[MQTT-3.3.1-2]"},
	{"5.0 DUP at QoS 0", V5, 0, "3808 0003612f62 00 6869", 1, MalformedPacket, "[MQTT-3.3.1-2]"},
	{"5.0 remaining length longer than need be", V5, 0, "308800 0003612f62 00 6869", 3, MalformedPacket, "[MQTT-1.5.5-1]"},
	{"remaining length of five bytes", V5, 0, "30ffffffff01", 5, MalformedPacket, "fourth byte"},
	{"no room for a topic", V311, 0, "3001 00", 2, MalformedPacket, "Topic Name"},
	{"nothing at all", V311, 0, "3000", 2, MalformedPacket, "Topic Name"},
	{"no room for a Packet Identifier", V311, 0, "3203 000161", 2, MalformedPacket, "Topic Name"},
	{"topic past the end", V311, 0, "3004 00036162", 4, MalformedPacket, "Topic Name"},
	{"topic past the end by its first length byte", V311, 0, "3004 01036162", 3, MalformedPacket, "Topic Name"},
	{"topic takes the Packet Identifier's room", V311, 0, "3206 0003616263 0a", 4, MalformedPacket, "Topic Name"},
	{"topic takes the properties' room", V5, 0, "3005 0003616263", 4, MalformedPacket, "Topic Name"},
	{"Packet Identifier 0", V311, 0, "3207 0003612f62 0000", 9, ProtocolError, "[MQTT-2.3.1-1]"},
	{"5.0 Packet Identifier 0", V5, 0, "3408 0003612f62 0000 00", 9, ProtocolError, "[MQTT-2.2.1-3]"},
	{"topic with +", V311, 0, "3006 0003612f2b 6d", 7, ProtocolError, "[MQTT-3.3.2-2]"},
	{"topic with #", V5, 0, "3007 0003612f23 00 6d", 7, ProtocolError, "[MQTT-3.3.2-2]"},
	{"wildcard within a level", V311, 0, "3006 0003612b62 6d", 6, ProtocolError, "[MQTT-3.3.2-2]"},
	{"topic with U+0000", V311, 0, "3006 0003610062 6d", 6, MalformedPacket, "[MQTT-1.5.4-2]"},
	{"topic not UTF-8", V5, 0, "3006 0002c080 00 6d", 5, MalformedPacket, "[MQTT-1.5.4-1]"},
	{"topic with a surrogate", V5, 0, "3007 0003eda080 00 6d", 6, MalformedPacket, "[MQTT-1.5.4-1]"},
	{"topic empty", V311, 0, "3003 0000 6d", 4, ProtocolError, "[MQTT-4.7.3-1]"},
	{"5.0 topic empty and no alias", V5, 0, "3004 0000 00 6d", 5, ProtocolError, "no Topic Alias"},
	{"5.0 topic empty and other properties", V5, 0, "3006 0000 02 0101 6d", 7, ProtocolError, "no Topic Alias"},
	{"5.0 Topic Alias 0", V5, 0, "3008 0000 03 230000 6869", 8, TopicAliasInvalid, "[MQTT-3.3.2-8]"},
	{"5.0 Topic Alias 0 beside a topic", V5, 0, "3007 000161 03 230000", 9, TopicAliasInvalid, "[MQTT-3.3.2-8]"},
	{"5.0 Topic Alias twice", V5, 0, "300a 000161 06 230001 230001", 10, ProtocolError, "twice"},
	{"5.0 Payload Format twice", V5, 0, "3008 000161 04 0101 0101", 9, ProtocolError, "twice"},
	{"5.0 Message Expiry twice", V5, 0, "300e 000161 0a 0200000000 0200000001", 12, ProtocolError, "twice"},
	{"5.0 Content Type twice", V5, 0, "300a 000161 06 030000 030000", 10, ProtocolError, "twice"},
	{"5.0 Response Topic twice", V5, 0, "300c 000161 08 08000172 08000172", 11, ProtocolError, "twice"},
	{"5.0 Correlation Data twice", V5, 0, "300a 000161 06 090000 090000", 10, ProtocolError, "twice"},
	{"5.0 Response Topic with a wildcard", V5, 0, "3008 000161 04 0800012b", 10, ProtocolError, "Response Topic"},
	{"5.0 Payload Format 2", V5, 0, "3006 000161 02 0102", 8, ProtocolError, "neither 0 nor 1"},
	{"5.0 Subscription Identifier 0", V5, FromServer, "3006 000161 02 0b00", 8, ProtocolError, "Subscription Identifier"},
	{"5.0 Subscription Identifier longer than need be", V5, FromServer, "3007 000161 03 0b8100", 0, MalformedPacket, "[MQTT-1.5.5-1]"},
	{"5.0 a property of another packet", V5, 0, "3007 000161 03 130001", 7, MalformedPacket, "Server Keep Alive"},
	{"5.0 a property of the will", V5, 0, "3009 000161 05 1800000001", 7, MalformedPacket, "Will Delay Interval"},
	{"5.0 an unknown property", V5, 0, "3006 000161 02 7f00", 7, MalformedPacket, "0x7f"},
	{"5.0 properties past the end", V5, 0, "3005 000161 05 00", 6, MalformedPacket, "properties"},
	{"5.0 property length longer than need be", V5, 0, "308701 000161 8000" + strings.Repeat("00", 130), 8, MalformedPacket, "[MQTT-1.5.5-1]"},
	{"5.0 User Property not UTF-8", V5, 0, "300b 000161 07 260001ff000176", 10, MalformedPacket, "User Property"},
}

func TestParsePublish(t *testing.T) { testAccepted(t, publishAccepted) }

func TestParsePublishRefusesAsEarlyAsItCanTell(t *testing.T) { testRefused(t, publishRefused) }

func TestPublishOfTheLongestTopic(t *testing.T) {
	topic := []byte(strings.Repeat("x", 65535))
	b := AppendPublish(nil, V311, Publish{QoS: 1, PacketID: 1, Topic: topic, Payload: payload})
	m, n, err := ParsePublish(b, V311)
	if err != nil || n != len(b) || string(m.Topic) != string(topic) || string(m.Payload) != "hi" {
		t.Errorf("n %d of %d, topic of %d bytes, %v", n, len(b), len(m.Topic), err)
	}
}

func TestAppendPublishLeavesOutWhatHasNoPlace(t *testing.T) {
	m := Publish{Dup: true, Topic: topicAB, PacketID: 10, Properties: Properties("\x23\x00\x07"), Payload: payload}
	for v, want := range map[Version]string{
		V311: "30070003612f626869",
		V5:   "300b0003612f62032300076869",
	} {
		if got := AppendPublish(nil, v, m); hex.EncodeToString(got) != want {
			t.Errorf("%s: %x, want %s", v, got, want)
		}
	}
}

func BenchmarkParsePublish(b *testing.B) {
	for name, p := range benchmarkPublishes() {
		b.Run(name, func(b *testing.B) {
			packet := AppendPublish(nil, p.v, p.m)
			b.SetBytes(int64(len(packet)))
			for b.Loop() {
				if _, _, err := ParsePublish(packet, p.v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendPublish(b *testing.B) {
	for name, p := range benchmarkPublishes() {
		b.Run(name, func(b *testing.B) {
			var buf []byte
			for b.Loop() {
				buf = AppendPublish(buf[:0], p.v, p.m)
			}
			b.SetBytes(int64(len(buf)))
		})
	}
}

type benchmarkPublish struct {
	v Version
	m Publish
}

func benchmarkPublishes() map[string]benchmarkPublish {
	m := Publish{QoS: 1, PacketID: 10, Topic: []byte("plant/4/line/2/press/temperature"), Payload: make([]byte, 64)}
	five := m
	five.Properties = Properties(nil).AppendUint(PropMessageExpiryInterval, 60).AppendText(PropContentType, "application/json").AppendUser("site", "north")
	return map[string]benchmarkPublish{"3.1.1": {V311, m}, "5.0": {V5, five}}
}
