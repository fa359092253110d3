package session

import (
	"bytes"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

func TestAliasesTowardsTheClient(t *testing.T) { // [MQTT-3.1.2-26], [MQTT-3.1.2-27]
	for _, tt := range []struct {
		name    string
		ours    uint16
		connect *mqtt.Connect
		topics  []string
		want    []string
	}{
		{"the client allows none", 9, v5(60), []string{"long/topic", "long/topic"},
			[]string{"PUBLISH 0 # qos0", "PUBLISH 0 # qos0"}},
		{"we want none", 0, v5(60, aliases(9)), []string{"long/topic", "long/topic"},
			[]string{"PUBLISH 0 # qos0", "PUBLISH 0 # qos0"}},
		{"set, then used", 9, v5(60, aliases(9)), []string{"long/topic", "other/topic", "long/topic", "other/topic"},
			[]string{"PUBLISH 0 # qos0 alias 1", "PUBLISH 0 # qos0 alias 2", "PUBLISH 0 # qos0 alias 1 known", "PUBLISH 0 # qos0 alias 2 known"}},
		{"the first topics keep them", 9, v5(60, aliases(1)), []string{"long/topic", "other/topic", "long/topic", "other/topic"},
			[]string{"PUBLISH 0 # qos0 alias 1", "PUBLISH 0 # qos0", "PUBLISH 0 # qos0 alias 1 known", "PUBLISH 0 # qos0"}},
		{"our own bound", 1, v5(60, aliases(9)), []string{"long/topic", "other/topic", "other/topic"},
			[]string{"PUBLISH 0 # qos0 alias 1", "PUBLISH 0 # qos0", "PUBLISH 0 # qos0"}},
		{"not where it saves nothing", 9, v5(60, aliases(9)), []string{"t/1", "t/1", "t/10", "t/10"},
			[]string{"PUBLISH 0 # qos0", "PUBLISH 0 # qos0", "PUBLISH 0 # qos0 alias 1", "PUBLISH 0 # qos0 alias 1 known"}},
		{"3.x has none", 9, v311(false), []string{"long/topic", "long/topic"},
			[]string{"PUBLISH 0 # qos0", "PUBLISH 0 # qos0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, c := online(Limits{TopicAliases: tt.ours}, tt.connect)
			for _, topic := range tt.topics {
				s.Queue(Delivery{Message: &Message{Topic: topic}}, t0)
			}
			same(t, "sent", sentBy(c, t0), tt.want)
		})
	}
}

func TestAliasesEndWithTheConnection(t *testing.T) { // [MQTT-3.3.2-7]
	l := Limits{TopicAliases: 9, TopicAliasMaximum: 9}
	s, c := online(l, v5(60, aliases(9)))
	s.Queue(Delivery{Message: &Message{Topic: "long/topic"}, QoS: 1}, t0)
	same(t, "first", sentBy(c, t0), []string{"PUBLISH 1 # qos1 alias 1"})
	c.Topic([]byte("in"), 1)
	c = reconnect(s, v5(60, aliases(9)), t0)
	same(t, "sent again", sentBy(c, t0), []string{"PUBLISH 1 # qos1 dup alias 1"})
	_, err := c.Topic(nil, 1)
	closes(t, err, mqtt.ProtocolError)
}

func TestAliasesFromTheClient(t *testing.T) { // 5 §3.3.4
	_, c := online(Limits{TopicAliasMaximum: 3}, v5(60))
	for _, tt := range []struct {
		name, topic string
		alias       uint16
		want        string
		reason      mqtt.Reason
	}{
		{"no alias", "a", 0, "a", 0},
		{"never set", "", 1, "", mqtt.ProtocolError},
		{"set", "a", 1, "a", 0},
		{"used", "", 1, "a", 0},
		{"lower ones stay unset", "b", 3, "b", 0},
		{"never set, below one that is", "", 2, "", mqtt.ProtocolError},
		{"the other is as it was", "", 1, "a", 0},
		{"changed", "longer/than/before", 1, "longer/than/before", 0},
		{"used after the change", "", 1, "longer/than/before", 0},
		{"above the maximum", "a", 4, "", mqtt.TopicAliasInvalid},
		{"above the maximum, no topic", "", 65535, "", mqtt.TopicAliasInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			buffer := []byte(tt.topic)
			got, err := c.Topic(buffer, tt.alias)
			if tt.reason != 0 {
				closes(t, err, tt.reason)
				return
			}
			if err != nil || string(got) != tt.want {
				t.Fatalf("%q, %v", got, err)
			}
			for i := range buffer { // the connection's copy does not live in the packet
				buffer[i] = '!'
			}
		})
	}
	t.Run("none allowed", func(t *testing.T) {
		_, c := online(Limits{}, v5(60))
		_, err := c.Topic([]byte("a"), 1)
		closes(t, err, mqtt.TopicAliasInvalid)
	})
	t.Run("no allocation once they are set", func(t *testing.T) {
		name := bytes.Repeat([]byte("x"), 40)
		if n := testing.AllocsPerRun(100, func() { c.Topic(name, 2); c.Topic(nil, 2); c.Topic(name, 0) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}
