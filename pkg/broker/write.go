package broker

import (
	"sync"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/session"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

const (
	// writeBatch is how many bytes are gathered for one system call, at least.
	writeBatch = 32 << 10
	// farewell is how long a client that is sent away may take to read why.
	farewell      = time.Second
	farewellBytes = 64 << 10
)

var writeBuffers = sync.Pool{New: func() any { b := make([]byte, 0, writeBatch+4<<10); return &b }}

// write sends whatever may be sent, and ends when there is nothing more: an idle
// connection has no writer. Many small packets share one system call. What the
// session's record must hold before they go out is written first, once for all
// of them.
func (l *link) write() {
	buf := writeBuffers.Get().(*[]byte)
	defer func() {
		if cap(*buf) <= 2*writeBatch {
			writeBuffers.Put(buf)
		}
	}()
	for {
		l.cl.mu.Lock()
		welcome := !l.greeted
		out, fetch := l.gather((*buf)[:0], time.Now())
		*buf = out
		l.room.Broadcast()
		closing := l.closing.Load()
		if fetch {
			l.startFetch()
		}
		if len(out) == 0 {
			l.writing = false
			l.closed = closing
			l.cl.mu.Unlock()
			if closing {
				l.conn.CloseLingering(farewell, farewellBytes)
			}
			return
		}
		err := l.secure() // unlocks
		switch {
		case err != nil && welcome:
			_ = l.send(mqtt.AppendConnack(nil, l.version, mqtt.ServerUnavailable))
		case err == nil:
			err = l.send(out)
		}
		if err != nil {
			l.broken()
			return
		}
	}
}

// broken stops the writer for good; the reader finds the socket closed.
func (l *link) broken() {
	l.cl.mu.Lock()
	l.writing, l.closed = false, true
	l.room.Broadcast()
	l.cl.mu.Unlock()
	l.conn.Close()
}

func (l *link) send(out []byte) error {
	_ = l.conn.Conn.SetWriteDeadline(time.Now().Add(l.b.o.WriteTimeout))
	_, err := l.conn.Conn.Write(out)
	return err
}

// gather appends what may be sent now: answers first, then messages. fetch says
// that the next message has to be fetched first. cl.mu is held.
func (l *link) gather(buf []byte, now time.Time) (out []byte, fetch bool) {
	l.greeted = true
	buf = append(buf, l.control...)
	l.control = nil
	defer func() {
		l.b.stats.drop(l.c.Session().TakeDrops())
		l.cl.settleShared()
	}()
	for !l.closing.Load() && len(buf) < writeBatch {
		p, step := l.c.Next(now)
		if step != session.Send {
			return buf, step == session.Fetch
		}
		buf = l.appendPacket(buf, &p)
	}
	return buf, false
}

func (l *link) appendPacket(buf []byte, p *session.Packet) []byte {
	l.out.Add(1)
	if p.Type == mqtt.TypePubrel {
		return mqtt.AppendAck(buf, l.version, mqtt.Ack{Type: mqtt.TypePubrel, PacketID: p.PacketID})
	}
	l.b.stats.sent[p.QoS].Add(1)
	return appendPublish(buf, l.version, p)
}

// secure waits until the record holds what the gathered packets rely on. It
// takes cl.mu held and gives it back.
func (l *link) secure() error {
	cl := l.cl
	if cl.ses != l.c.Session() { // it is over: nothing relies on its record any more
		cl.mu.Unlock()
		return nil
	}
	written := make(chan error, 1)
	then := func(err error) { written <- err }
	switch {
	case cl.ses.Checkpoint() == session.First:
		cl.save(then)
	case cl.record.urgent: // somebody else has begun to write it
		cl.record.now = append(cl.record.now, then)
	default:
		cl.settle()
		then(nil)
	}
	cl.mu.Unlock()
	return <-written
}
