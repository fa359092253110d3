package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

const (
	refuseQueue  = 20
	refuseBurst  = 400 // messages sent without waiting for an answer
	refuseLimits = "queue_policy: refuse, max_queued: 20, max_queued_bytes: 1 MiB, max_packet_size: 64 KiB"
)

// With queue_policy: refuse a session takes what has room, and publishers are
// told of the rest, however much they send before they read an answer: what is
// acknowledged arrives, and nothing else does.
func TestRefuseTellsPublishersAndLosesNothingAcknowledged(t *testing.T) {
	for _, v := range []mqtt.Version{mqtt.V311, mqtt.V5} {
		for _, qos := range []byte{1, 2} {
			t.Run(fmt.Sprintf("%v QoS %d", v, qos), func(t *testing.T) {
				b := startBroker(t, rig.BrokerOptions{Extra: "durability: 1s\nlimits: {" + refuseLimits + "}\n"})
				w := way{addr: b.Addr()}
				reader, _ := w.keeper(t, "reader")
				reader.wants(t, 2, "refuse/#")
				reader.leave()

				p := &refusedPublisher{w: w, o: mqtt.ConnectOptions{Version: v, ClientID: "publisher"}, qos: qos}
				if v == mqtt.V5 {
					p.o.Properties = kept
				}
				p.burst(t)
				if v == mqtt.V5 && p.refused != refuseBurst-refuseQueue {
					t.Errorf("%d of %d were refused with a queue of %d", p.refused, refuseBurst, refuseQueue)
				}
				if v != mqtt.V5 && !p.cut {
					t.Error("a 3.1.1 publisher was not disconnected")
				}
				if got := brokerFigure(t, b, "broker_queued"); got > refuseQueue {
					t.Errorf("%v messages are queued, want no more than %d", got, refuseQueue)
				}
				if got := brokerFigure(t, b, `broker_dropped_total{reason="queue_full"}`); got != 0 {
					t.Errorf("%v acknowledged messages were dropped", got)
				}

				reader, _ = w.keeper(t, "reader")
				came := make(chan []rig.Message, 1)
				go func() {
					defer close(came) // when the reader gives up, too
					came <- collectUntil(t, reader, "refuse/end")
				}()
				if v != mqtt.V5 { // it tries again, now that there is room
					p.rest(t)
				}
				p.release(t)
				other := w.guest(t, "other")
				await(t, "room for one more", func() bool {
					return other.says(t, rig.Message{Topic: "refuse/end", QoS: 1}) == mqtt.Success
				})
				p.judge(t, <-came)
			})
		}
	}
}

// collectUntil is hearsUntil for many messages in flight at once.
func collectUntil(t *testing.T, s *speaker, topic string) (all []rig.Message) {
	for {
		b, err := s.packet()
		if err != nil {
			t.Errorf("%s: %v after %d messages", s.id, err, len(all))
			return all
		}
		switch mqtt.PacketType(b[0] >> 4) {
		case mqtt.TypePublish:
			m, _, err := mqtt.ParsePublish(b, s.v)
			if err != nil {
				t.Errorf("%s: %v", s.id, err)
				return all
			}
			if string(m.Topic) == topic {
				return all
			}
			all = append(all, rig.Message{Topic: string(m.Topic), Payload: string(m.Payload), QoS: int(m.QoS)})
			answer := mqtt.TypePuback
			if m.QoS == 2 {
				answer = mqtt.TypePubrec
			}
			s.send(t, mqtt.AppendAck(nil, s.v, mqtt.Ack{Type: answer, PacketID: m.PacketID}))
		case mqtt.TypePubrel:
			a, _, _ := mqtt.ParseAck(b, s.v)
			s.send(t, mqtt.AppendAck(nil, s.v, mqtt.Ack{Type: mqtt.TypePubcomp, PacketID: a.PacketID}))
		}
	}
}

// refusedPublisher numbers its messages; their packet identifiers are one more.
type refusedPublisher struct {
	w       way
	o       mqtt.ConnectOptions
	qos     byte
	s       *speaker
	acked   [refuseBurst]bool
	refused int
	cut     bool
}

func (p *refusedPublisher) publish(n int, dup bool) []byte {
	return mqtt.AppendPublish(nil, p.o.Version, mqtt.Publish{
		Dup: dup, QoS: p.qos, PacketID: uint16(n + 1), Topic: []byte("refuse/t"), Payload: []byte(strconv.Itoa(n)),
	})
}

// burst sends all messages at once, then reads the answers.
func (p *refusedPublisher) burst(t *testing.T) {
	t.Helper()
	p.s, _ = p.w.speak(t, p.o)
	var all []byte
	for n := range refuseBurst {
		all = append(all, p.publish(n, false)...)
	}
	p.s.send(t, all)
	for answered := 0; answered < refuseBurst; answered++ {
		n, err := p.answer()
		if isOver(err) {
			p.cut = true
			return
		}
		if err != nil {
			t.Fatalf("answer %d: %v", answered, err)
		}
		if n < 0 {
			p.refused++
		}
	}
}

// answer reads PUBACK or PUBREC and gives the message; -1 for a refused one.
func (p *refusedPublisher) answer() (int, error) {
	b, err := p.s.packet()
	if err != nil {
		return 0, err
	}
	a, _, err := mqtt.ParseAck(b, p.o.Version)
	want := mqtt.TypePuback
	if p.qos == 2 {
		want = mqtt.TypePubrec
	}
	switch {
	case err != nil || a.Type != want:
		return 0, fmt.Errorf("% x: %w", b, err)
	case a.Reason == mqtt.QuotaExceeded:
		return -1, nil
	case a.Reason >= 0x80:
		return 0, fmt.Errorf("%v", a.Reason)
	}
	p.acked[a.PacketID-1] = true
	return int(a.PacketID - 1), nil
}

// rest sends one by one, with DUP, what was not answered, over a new connection
// whenever the last was ended, until all of it is taken.
func (p *refusedPublisher) rest(t *testing.T) {
	t.Helper()
	next := 0
	await(t, "all being taken", func() bool {
		p.s, _ = p.w.speak(t, p.o)
		for ; next < refuseBurst; next++ {
			if p.acked[next] {
				continue
			}
			p.s.send(t, p.publish(next, true))
			if _, err := p.answer(); isOver(err) {
				return false
			} else if err != nil {
				t.Fatalf("message %d: %v", next, err)
			}
		}
		return true
	})
}

// release ends the QoS 2 messages that were taken.
func (p *refusedPublisher) release(t *testing.T) {
	t.Helper()
	for n, acked := range p.acked {
		if acked && p.qos == 2 {
			p.s.send(t, mqtt.AppendAck(nil, p.o.Version, mqtt.Ack{Type: mqtt.TypePubrel, PacketID: uint16(n + 1)}))
			p.s.answer(t, mqtt.TypePubcomp, uint16(n+1))
		}
	}
}

// judge compares what came with what was acknowledged: all of it, nothing
// else, in order, and nothing of QoS 2 twice.
func (p *refusedPublisher) judge(t *testing.T, came []rig.Message) {
	t.Helper()
	var seen [refuseBurst]bool
	last := -1
	for _, m := range came {
		n, err := strconv.Atoi(m.Payload)
		switch {
		case err != nil:
			t.Errorf("%+v came", m)
		case seen[n] && p.qos == 2:
			t.Errorf("%d came twice at QoS 2", n)
		case seen[n]:
		case n < last:
			t.Errorf("%d came after %d", n, last)
		default:
			seen[n], last = true, n
		}
	}
	for n := range seen {
		if seen[n] != p.acked[n] {
			t.Errorf("%d: acknowledged %t, came %t", n, p.acked[n], seen[n])
		}
	}
}

// brokerFigure reads a series of the broker's metrics; 0 if it is not there.
func brokerFigure(t *testing.T, b *rig.Broker, series string) float64 {
	t.Helper()
	resp := must(http.Get("http://" + b.Admin() + "/metrics"))(t)
	defer resp.Body.Close()
	for line := range strings.Lines(string(must(io.ReadAll(resp.Body))(t))) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return must(strconv.ParseFloat(strings.TrimSpace(value), 64))(t)
		}
	}
	return 0
}
