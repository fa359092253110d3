package cluster

import (
	"context"
	"slices"
	"sync"
	"time"
)

// memoryLog is a shard. Its sequence numbers have gaps, so that nobody learns
// to count on there being none.
type memoryLog struct {
	mu       sync.Mutex
	messages []*Message // from first on
	first    uint64     // number of the first, or of the next if there is none
	changed  chan struct{}
}

func (l *memoryLog) append(m *Message) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == 0 {
		l.first = 1
	}
	l.messages = append(l.messages, m)
	close(l.changed)
	l.changed = make(chan struct{})
	return seqOf(l.first+uint64(len(l.messages))-1, 0)
}

func (l *memoryLog) bounds() (first, last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	start := max(l.first, 1)
	return seqOf(start, 0), seqOf(start+uint64(len(l.messages)), 0) - 1
}

// at gives the message with the number, or else the next one.
func (l *memoryLog) at(seq uint64) (m *Message, at uint64, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := engineSeq(seq)
	if seqOf(n, 0) < seq {
		n++
	}
	n = max(n, l.first)
	if n < l.first+uint64(len(l.messages)) {
		return l.messages[n-l.first], seqOf(n, 0), nil
	}
	return nil, 0, l.changed
}

func (l *memoryLog) get(seq uint64) (*Message, error) {
	m, at, _ := l.at(seq)
	if m == nil || at != seq || m.expired(time.Now()) {
		return nil, ErrNotFound
	}
	return m, nil
}

func (l *memoryLog) trim(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := engineSeq(seq + maxPack - 1)
	if n <= l.first {
		return
	}
	drop := min(n-l.first, uint64(len(l.messages)))
	l.messages = slices.Delete(l.messages, 0, int(drop))
	l.first += drop
}

func (l *memoryLog) tail(ctx context.Context, seq uint64, f func(uint64, *Message), ready func()) error {
	for ctx.Err() == nil {
		m, at, changed := l.at(seq)
		if m != nil {
			if m.expired(time.Now()) {
				m = nil
			}
			f(at, m)
			seq = at + 1
			continue
		}
		if ready != nil {
			ready()
			ready = nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return nil
}
