package session

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// publisher is a correct client that publishes with QoS 2 through a broker that
// follows what Publish, Stored, Pubrel and Forgotten say, and a store that
// confirms in its own time. It may crash and the client may reconnect at any
// point. What must hold: each message is in the log once.
type publisher struct {
	t *rapid.T

	// The client.
	published int
	mine      []exchange // in the order of their PUBLISHes
	up, down  []inPacket // to and from the server

	// The server.
	s *Session
	c *Connection

	// The store.
	records map[uint16]int // packet identifier to dedup id
	log     []int          // messages
	dedup   map[int]bool
	nextID  int
	under   []op // way, in order
}

type exchange struct {
	id       uint16
	message  int
	released bool
}

type inPacket struct {
	t       mqtt.PacketType
	id      uint16
	message int
}

type op struct {
	do   func() // makes it durable
	then func() // tells the server
}

func (p *publisher) connect() {
	p.up, p.down = nil, nil
	if p.c != nil {
		p.c.Lost(t0)
	}
	p.c = p.s.Connect(v5(60), t0)
	for _, e := range p.mine {
		if e.released {
			p.up = append(p.up, inPacket{mqtt.TypePubrel, e.id, 0})
		} else {
			p.up = append(p.up, inPacket{mqtt.TypePublish, e.id, e.message})
		}
	}
}

func (p *publisher) publish() {
	const window = 3
	if len(p.mine) == window {
		return
	}
	p.published++
	id := uint16(1)
	for slices.ContainsFunc(p.mine, func(e exchange) bool { return e.id == id }) {
		id++
	}
	p.mine = append(p.mine, exchange{id: id, message: p.published})
	p.up = append(p.up, inPacket{mqtt.TypePublish, id, p.published})
}

// hear is the client's next packet from the server.
func (p *publisher) hear() {
	in := p.down[0]
	p.down = p.down[1:]
	i := slices.IndexFunc(p.mine, func(e exchange) bool { return e.id == in.id })
	switch {
	case i < 0:
		p.t.Fatalf("%s for packet identifier %d, which is in no use", in.t, in.id)
	case in.t == mqtt.TypePubrec:
		p.mine[i].released = true
		p.up = append(p.up, inPacket{mqtt.TypePubrel, in.id, 0})
	case in.t == mqtt.TypePubcomp:
		p.mine = slices.Delete(p.mine, i, i+1)
	}
}

// serve is the server's next packet from the client.
func (p *publisher) serve() {
	in := p.up[0]
	p.up = p.up[1:]
	if in.t == mqtt.TypePubrel {
		r, err := p.c.Pubrel(in.id)
		switch {
		case err != nil:
			p.t.Fatal(err)
		case r == Unknown:
			p.answer(p.c, mqtt.TypePubcomp, in.id)
		case r == Forget:
			p.under = append(p.under, op{
				do:   func() { delete(p.records, in.id) },
				then: func() { p.answer(p.s.Forgotten(in.id), mqtt.TypePubcomp, in.id) },
			})
		}
		return
	}
	r, err := p.c.Publish(2, in.id)
	if err != nil {
		p.t.Fatal(err)
	}
	dedup := p.nextID
	switch r {
	case Wait:
		return
	case Repeat:
		p.answer(p.c, mqtt.TypePubrec, in.id)
		return
	case Redo:
		dedup = p.records[in.id]
	case Fresh:
		p.nextID++
		p.under = append(p.under, op{do: func() { p.records[in.id] = dedup }, then: func() {}})
	}
	p.under = append(p.under, op{
		do: func() {
			if !p.dedup[dedup] {
				p.dedup[dedup] = true
				p.log = append(p.log, in.message)
			}
		},
		then: func() { p.answer(p.s.Stored(in.id, mqtt.Success), mqtt.TypePubrec, in.id) },
	})
}

func (p *publisher) answer(c *Connection, t mqtt.PacketType, id uint16) {
	if c == nil {
		return
	}
	if c != p.c {
		p.t.Fatalf("%s goes to an older connection", t)
	}
	p.down = append(p.down, inPacket{t, id, 0})
}

func (p *publisher) confirm() {
	o := p.under[0]
	p.under = p.under[1:]
	o.do()
	o.then()
}

// crash ends the server. Of what was under way, the first has made it.
func (p *publisher) crash(durable int) {
	for _, o := range p.under[:durable] {
		o.do()
	}
	p.under, p.c = nil, nil
	p.s = throughRecordOf(p.s)
	p.s.Remember(slices.Collect(maps.Keys(p.records))...)
	p.connect()
}

func throughRecordOf(s *Session) *Session { return Restore(s.Snapshot(nil), s.limits, t0) }

func TestAQoS2PublicationIsInTheLogOnceWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &publisher{t: t, s: newSession(Limits{ReceiveMaximum: 3}), records: map[uint16]int{}, dedup: map[int]bool{}}
		p.connect()
		t.Repeat(map[string]func(*rapid.T){
			"publish":   func(t *rapid.T) { p.publish() },
			"hear":      func(t *rapid.T) { ifAny(len(p.down), p.hear) },
			"serve":     func(t *rapid.T) { ifAny(len(p.up), p.serve) },
			"confirm":   func(t *rapid.T) { ifAny(len(p.under), p.confirm) },
			"reconnect": func(t *rapid.T) { p.connect() },
			"crash":     func(t *rapid.T) { p.crash(rapid.IntRange(0, len(p.under)).Draw(t, "durable")) },
		})
		p.connect()
		for len(p.mine) > 0 {
			switch {
			case len(p.up) > 0:
				p.serve()
			case len(p.under) > 0:
				p.confirm()
			case len(p.down) > 0:
				p.hear()
			default:
				t.Fatalf("%v wait for ever", p.mine)
			}
		}
		slices.Sort(p.log)
		for i := range p.published {
			if i >= len(p.log) || p.log[i] != i+1 {
				t.Fatalf("of %d messages, these are in the log: %v", p.published, p.log)
			}
		}
		if len(p.log) != p.published || len(p.records) != 0 || len(p.s.Inbound()) != 0 || p.c.Pending() != 0 {
			t.Fatalf("log %v, records %v, identifiers %v, %d pending", p.log, p.records, p.s.Inbound(), p.c.Pending())
		}
	})
}
