package session

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// world is a publisher's log, a broker with one session, a correct client, the
// wires between them, and a store that confirms records when it likes. It may
// crash and the client may reconnect at any point. What must hold: nothing of
// the log is lost, QoS 2 arrives once, everything arrives for the first time in
// its order.
type world struct {
	t *rapid.T

	log [shardsOfWorld][]byte // QoS by sequence number, less one

	s      *Session
	c      *Connection
	tail   []uint64
	record []byte   // the last one that is durable
	first  []uint64 // the log is trimmed below
	writes []write  // under way, in order

	down []Packet       // to the client
	up   []mqtt.Ack     // to the server
	ids  map[uint16]Ref // the client's QoS 2, released
	got  map[Ref]int
	last [shardsOfWorld]uint64 // the highest that arrived of each shard
	open map[uint16]bool       // what the client has not answered on this connection
	max  int                   // its Receive Maximum
}

const shardsOfWorld = 2

// write is a record under way, and what waits for it.
type write struct {
	record []byte
	then   []Packet
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, ids: map[uint16]Ref{}, got: map[Ref]int{}}
	w.tail, w.first = make([]uint64, shardsOfWorld), make([]uint64, shardsOfWorld)
	w.s = newSession(Limits{})
	w.connect(w.drawMax())
	w.record = w.snapshot()
	return w
}

func (w *world) drawMax() int { return rapid.IntRange(1, 6).Draw(w.t, "receive maximum") }

func (w *world) snapshot() []byte {
	r := w.s.Snapshot(w.tail)
	return r.Append(nil)
}

func (w *world) connect(max int) {
	w.lose()
	w.max = max
	w.open = map[uint16]bool{}
	c := v311(false)
	if max%2 == 0 {
		c = v5(60)
	}
	c.ReceiveMaximum = uint16(max)
	w.s.limits = &Limits{Inflight: uint16(max)}
	w.c = w.s.Connect(c, t0)
	w.send()
}

// lose ends the connection, with all that is on the wire or waits to be.
func (w *world) lose() {
	if w.c != nil {
		w.c.Lost(t0)
	}
	w.down, w.up = nil, nil
	for i := range w.writes {
		w.writes[i].then = nil
	}
}

// publish appends to the log; dispatch brings it to the session.
func (w *world) publish(shard int, qos byte) { w.log[shard] = append(w.log[shard], qos) }

func (w *world) dispatch(shard int) {
	seq := w.tail[shard] + 1
	w.tail[shard] = seq
	r := Ref{shard, seq}
	w.s.Queue(Delivery{Ref: r, Message: w.message(r), QoS: w.log[shard][seq-1]}, t0)
}

func (w *world) message(r Ref) *Message {
	return &Message{Topic: "t", Payload: fmt.Appendf(nil, "%d/%d", r.Shard, r.Seq), QoS: 2}
}

// send lets packets go, behind the record that they need.
func (w *world) send(packets ...Packet) {
	if w.s.Checkpoint() == First {
		w.writes = append(w.writes, write{record: w.snapshot()})
	}
	if n := len(w.writes); n > 0 {
		w.writes[n-1].then = append(w.writes[n-1].then, packets...)
	} else {
		w.down = append(w.down, packets...)
	}
}

func (w *world) pump(n int) {
	for ; n > 0 && w.c.Current(); n-- {
		switch p, step := w.c.Next(t0); step {
		case Send:
			w.send(p)
		case Fetch:
			want := w.s.Missing(1)[0]
			if want.Ref.Seq < w.first[want.Ref.Shard] {
				w.t.Fatalf("%v is needed, and trimmed", want.Ref)
			}
			w.s.Attach(want, w.message(want.Ref))
		case Idle:
			return
		}
	}
}

// confirm makes the oldest write durable.
func (w *world) confirm() {
	done := w.writes[0]
	w.writes = w.writes[1:]
	w.record = done.record
	w.down = append(w.down, done.then...)
}

// arrive lets the client have its next packet, and answer.
func (w *world) arrive() {
	p := w.down[0]
	w.down = w.down[1:]
	if p.Type == mqtt.TypePubrel {
		delete(w.ids, p.PacketID)
		delete(w.open, p.PacketID)
		w.up = append(w.up, mqtt.Ack{Type: mqtt.TypePubcomp, PacketID: p.PacketID})
		return
	}
	if w.open[p.PacketID] {
		w.t.Fatalf("packet identifier %d is used twice on one connection", p.PacketID)
	}
	w.open[p.PacketID] = true
	if len(w.open) > w.max {
		w.t.Fatalf("%d publications at once, Receive Maximum is %d", len(w.open), w.max)
	}
	if string(p.Message.Payload) != string(w.message(p.Ref).Payload) {
		w.t.Fatalf("message %s as %v", p.Message.Payload, p.Ref)
	}
	if p.QoS == 1 {
		w.deliver(p)
		delete(w.open, p.PacketID)
		w.up = append(w.up, mqtt.Ack{Type: mqtt.TypePuback, PacketID: p.PacketID})
		return
	}
	if known, ok := w.ids[p.PacketID]; !ok {
		w.deliver(p)
		w.ids[p.PacketID] = p.Ref
	} else if known != p.Ref {
		w.t.Fatalf("%v comes with packet identifier %d, which the client holds for %v: it is lost", p.Ref, p.PacketID, known)
	}
	w.up = append(w.up, mqtt.Ack{Type: mqtt.TypePubrec, PacketID: p.PacketID})
}

func (w *world) deliver(p Packet) {
	if w.got[p.Ref]++; w.got[p.Ref] > 1 {
		if p.QoS == 2 {
			w.t.Fatalf("QoS 2 message %v comes twice", p.Ref)
		}
		return
	}
	if p.Ref.Seq <= w.last[p.Ref.Shard] {
		w.t.Fatalf("%v comes behind %d", p.Ref, w.last[p.Ref.Shard])
	}
	w.last[p.Ref.Shard] = p.Ref.Seq
}

// answer lets the server have the client's next answer.
func (w *world) answer() {
	a := w.up[0]
	w.up = w.up[1:]
	var err error
	switch a.Type {
	case mqtt.TypePuback:
		_, err = w.c.Puback(a.PacketID, a.Reason)
	case mqtt.TypePubcomp:
		_, err = w.c.Pubcomp(a.PacketID, a.Reason)
	case mqtt.TypePubrec:
		var send bool
		if _, send, err = w.c.Pubrec(a.PacketID, a.Reason); send {
			w.send(Packet{Type: mqtt.TypePubrel, PacketID: a.PacketID})
		}
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// trim forgets what no restart can need.
func (w *world) trim() {
	r, err := ParseRecord(w.record)
	if err != nil {
		w.t.Fatal(err)
	}
	for shard, seq := range r.Needs() {
		if seq < w.first[shard] {
			w.t.Fatalf("shard %d is needed from %d on, and was from %d on", shard, seq, w.first[shard])
		}
		w.first[shard] = seq
	}
}

// crash ends the process. Of the writes under way, the first ones have made it.
func (w *world) crash(durable int) {
	if durable > 0 {
		w.record = w.writes[durable-1].record
	}
	w.writes, w.c = nil, nil
	r, err := ParseRecord(w.record)
	if err != nil {
		w.t.Fatal(err)
	}
	w.s = Restore(r, nil, t0)
	end := w.tail
	w.tail = make([]uint64, shardsOfWorld)
	for shard := range w.tail {
		w.tail[shard] = max(w.first[shard], 1) - 1 // other sessions may be far behind
		for w.tail[shard] < end[shard] {
			w.dispatch(shard)
		}
	}
	w.s.CaughtUp()
}

func TestNothingIsLostDoubledOrReorderedWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		shard := rapid.IntRange(0, shardsOfWorld-1)
		t.Repeat(map[string]func(*rapid.T){
			"publish": func(t *rapid.T) {
				w.publish(shard.Draw(t, "shard"), byte(rapid.IntRange(1, 2).Draw(t, "qos")))
			},
			"dispatch": func(t *rapid.T) {
				if i := shard.Draw(t, "shard"); w.tail[i] < uint64(len(w.log[i])) {
					w.dispatch(i)
				}
			},
			"pump":    func(t *rapid.T) { w.pump(rapid.IntRange(1, 4).Draw(t, "packets")) },
			"arrive":  func(t *rapid.T) { ifAny(len(w.down), w.arrive) },
			"answer":  func(t *rapid.T) { ifAny(len(w.up), w.answer) },
			"confirm": func(t *rapid.T) { ifAny(len(w.writes), w.confirm) },
			"checkpoint": func(t *rapid.T) {
				w.writes = append(w.writes, write{record: w.snapshot()})
			},
			"lose": func(t *rapid.T) { w.lose() },
			"unload": func(t *rapid.T) {
				if w.s.Unload(); w.s.loaded != 0 {
					t.Fatalf("%d are still loaded", w.s.loaded)
				}
			},
			"trim":      func(t *rapid.T) { w.trim() },
			"reconnect": func(t *rapid.T) { w.connect(w.drawMax()) },
			"crash": func(t *rapid.T) {
				w.crash(rapid.IntRange(0, len(w.writes)).Draw(t, "durable"))
				w.connect(w.drawMax())
			},
			"": func(t *rapid.T) { w.check(t) },
		})
		w.settle()
	})
}

// ifAny does something if there is what it takes.
func ifAny(n int, do func()) {
	if n > 0 {
		do()
	}
}

// check compares the session's counts with what they count.
func (w *world) check(t *rapid.T) {
	s := w.s
	var bytes int64
	held, lacking, loaded, busy := make([]int, len(s.shards)), 0, 0, 0
	for i := range s.queued.n {
		it := s.queued.at(i)
		bytes += int64(it.size)
		if it.flags.has(absent) {
			lacking++
		}
		if it.holds() {
			held[it.shard]++
		}
		if it.loaded() {
			loaded++
		}
	}
	s.flight.each(func(it *item) {
		if it.flags.has(absent) {
			lacking++
		}
		if it.flags.has(active) {
			busy++
		}
		if it.loaded() {
			loaded++
		}
	})
	for i, sh := range s.shards {
		if sh.held != held[i] {
			t.Fatalf("shard %d: held %d of %d", i, sh.held, held[i])
		}
	}
	if s.bytes != bytes || s.absent != lacking || s.loaded != loaded {
		t.Fatalf("%d bytes of %d, %d absent of %d, %d loaded of %d", s.bytes, bytes, s.absent, lacking, s.loaded, loaded)
	}
	if c := s.conn; c != nil && c.active != busy {
		t.Fatalf("%d active of %d", c.active, busy)
	}
}

// settle lets everything come to its end.
func (w *world) settle() {
	w.connect(3)
	for shard := range w.log {
		for w.tail[shard] < uint64(len(w.log[shard])) {
			w.dispatch(shard)
		}
	}
	for {
		w.pump(100)
		switch {
		case len(w.writes) > 0:
			w.confirm()
		case len(w.down) > 0:
			w.arrive()
		case len(w.up) > 0:
			w.answer()
		default:
			for shard, all := range w.log {
				for i := range all {
					if w.got[Ref{shard, uint64(i + 1)}] == 0 {
						w.t.Fatalf("message %d of shard %d is lost", i+1, shard)
					}
				}
			}
			if n, _ := w.s.Queued(); n != 0 || w.s.InFlight() != 0 || len(w.ids) != 0 {
				w.t.Fatalf("%d queued, %d in flight, the client holds %d", n, w.s.InFlight(), len(w.ids))
			}
			if got := w.s.Snapshot(w.tail); len(got.Unacknowledged) != 0 || fmt.Sprint(got.Cursors) != fmt.Sprint(w.tail) {
				w.t.Fatalf("%+v at %v", got, w.tail)
			}
			return
		}
	}
}
