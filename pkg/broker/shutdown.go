package broker

import (
	"context"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// Shutdown stops accepting, sends the clients away (5.0 reads 0x8B, Server
// shutting down), writes all records and ends everything that Start began.
// Wills are not published: the sessions go on when the broker is back. It
// returns ctx's error if connections had to be cut.
func (b *Broker) Shutdown(ctx context.Context) error {
	defer b.CancelDrain() // whoever starts one from here on is refused
	b.mu.Lock()
	b.draining = true
	for l := range b.sockets {
		l.Close()
	}
	links := make([]*link, 0, len(b.links))
	for l := range b.links {
		links = append(links, l)
	}
	b.mu.Unlock()
	for _, l := range links {
		l.sendAway(mqtt.ServerShuttingDown)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		b.serving.Wait()
	}()
	var err error
	select {
	case <-over:
	case <-ctx.Done():
		err = ctx.Err()
		for _, l := range links {
			l.socket.Close()
		}
		<-over
	}
	if b.stop != nil {
		b.stop()
	}
	b.released.stop()
	b.working.Wait()
	b.writes.Wait()
	for _, cl := range b.all() {
		cl.mu.Lock()
		if cl.timer != nil {
			cl.timer.Stop()
		}
		cl.mu.Unlock()
	}
	return err
}

// sendAway ends a connection, whether or not its CONNECT has come.
func (l *link) sendAway(reason mqtt.Reason) {
	if !l.joined.Load() {
		_ = l.socket.Close()
		return
	}
	l.cl.mu.Lock()
	defer l.cl.mu.Unlock()
	l.bye(reason, SentAway)
}
