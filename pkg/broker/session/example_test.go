package session_test

import (
	"fmt"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/session"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// connect is what a broker does with a CONNECT: s is the session that there is
// with its Client Identifier, or nil.
func connect(s *session.Session, c *mqtt.Connect, now time.Time) *session.Connection {
	if s != nil {
		switch old := s.Connection(); {
		case old != nil:
			old.TakenOver(c.CleanStart, now) // and DISCONNECT 0x8E, and close
		case c.CleanStart:
			s.Discard(now)
		}
		if will, _ := s.Due(now); will != nil {
			fmt.Println("will:", will.Topic)
		}
	}
	present := s != nil && s.Resumable(c, now)
	if !present {
		s = session.New(session.Options{ClientID: string(c.ClientID), Limits: &session.Limits{Inflight: 100}})
	}
	n := s.Connect(c, now)
	save(s)
	fmt.Println("CONNACK, session present", present)
	return n
}

// save writes the record as urgently as it has to be.
func save(s *session.Session) {
	if s.Checkpoint() == session.First {
		r := s.Snapshot(nil)
		_ = r.Append(nil) // to the store, and wait until it is durable
	}
}

// flush sends what may be sent.
func flush(c *session.Connection, now time.Time) {
	var batch []session.Packet
	for p, step := c.Next(now); step == session.Send; p, step = c.Next(now) {
		batch = append(batch, p)
	}
	save(c.Session()) // once for all of them
	for _, p := range batch {
		fmt.Printf("%s %d, QoS %d, DUP %v\n", p.Type, p.PacketID, p.QoS, p.Dup)
	}
}

func Example() {
	now := time.Now()
	hello := &mqtt.Connect{
		Version: mqtt.V5, ClientID: []byte("meter"), SessionExpiry: 3600, ReceiveMaximum: 10,
		HasWill: true, WillTopic: []byte("meter/lost"),
	}
	c := connect(nil, hello, now)
	s := c.Session()
	sub := s.Subscribe(session.Subscription{Filter: "meter/#", QoS: 2}, nil)
	save(s)
	fmt.Println("SUBACK, retained messages wanted:", sub.Retained)

	for seq := uint64(1); seq <= 2; seq++ {
		m := &session.Message{Topic: "meter/read", QoS: 2}
		if d, ok := s.Merge(m, session.Ref{Seq: seq}, sub.Now); ok {
			s.Queue(d, now)
		}
	}
	flush(c, now)
	if reason, send, err := c.Pubrec(1, mqtt.Success); send && err == nil {
		save(s)
		fmt.Println("PUBREL 1,", reason)
	}

	c = connect(s, hello, now)
	flush(c, now)

	// Output:
	// CONNACK, session present false
	// SUBACK, retained messages wanted: true
	// PUBLISH 1, QoS 2, DUP false
	// PUBLISH 2, QoS 2, DUP false
	// PUBREL 1, Success
	// will: meter/lost
	// CONNACK, session present true
	// PUBREL 1, QoS 0, DUP false
	// PUBLISH 2, QoS 2, DUP true
}
