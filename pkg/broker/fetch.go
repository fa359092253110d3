package broker

import (
	"context"
	"errors"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
)

const (
	// fetchBatch is how many messages are fetched from the store at once.
	fetchBatch = 64
	// fetchTimeout bounds one batch.
	fetchTimeout = 3 * time.Second
	// After a fetch that failed there is a pause, which doubles each time up to
	// the longest.
	fetchPause        = 200 * time.Millisecond
	longestFetchPause = 10 * time.Second
)

// startFetch gets messages that the session knows only by their place, in a
// goroutine of its own: a store that is slow or fails must not hold up what the
// writer has beside them. cl.mu is held.
func (l *link) startFetch() {
	if l.stopFetch != nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	l.stopFetch = stop
	l.b.serving.Go(func() {
		l.fetch(ctx)
		stop()
		l.cl.mu.Lock()
		defer l.cl.mu.Unlock()
		l.stopFetch = nil
		l.kick() // which starts the next one if there is more to fetch
	})
}

// fetch tries until it has a batch, or the connection is over.
func (l *link) fetch(ctx context.Context) {
	var pause time.Duration
	for {
		err := l.fetchSome(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		pause = nextFetchPause(pause)
		l.b.log.Warn("messages not fetched, trying again", "client_id", l.cl.id, "err", err, "pause", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

func nextFetchPause(last time.Duration) time.Duration {
	return min(max(2*last, fetchPause), longestFetchPause)
}

func (l *link) fetchSome(ctx context.Context) error {
	cl, ses := l.cl, l.c.Session()
	cl.mu.Lock()
	wants := ses.Missing(fetchBatch)
	cl.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	for _, w := range wants {
		m, err := l.b.fetch(ctx, w)
		if err != nil && !errors.Is(err, cluster.ErrNotFound) {
			return err
		}
		cl.mu.Lock()
		ses.Attach(w, m)
		cl.mu.Unlock()
	}
	return nil
}

// fetch gives the message that is wanted; nil and ErrNotFound if there is none
// any more.
func (b *Broker) fetch(ctx context.Context, w session.Want) (*session.Message, error) {
	if w.Ref.Seq == 0 {
		if m := b.retained.get(w.Topic); m != nil {
			return m, nil
		}
		return nil, cluster.ErrNotFound
	}
	m, err := b.store.Get(ctx, cluster.Pos{Shard: w.Ref.Shard, Seq: w.Ref.Seq})
	if err != nil {
		return nil, err
	}
	return fromStore(m), nil
}
