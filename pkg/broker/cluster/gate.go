package cluster

import "sync"

// gate bounds how many writes are under way, and how many bytes they hold.
// Whoever comes when it is full waits in line. How long is up to the writes:
// each ends, one way or the other.
type gate struct {
	maxCount, maxBytes int

	mu           sync.Mutex
	count, bytes int
	line         []*waiter // first come, first served
	closed       bool
	empty        chan struct{} // closed when closed and nobody is inside
}

type waiter struct {
	bytes int
	in    chan struct{} // closed when let in, or turned away with err
	err   error
}

func newGate(maxCount, maxBytes int) *gate {
	return &gate{maxCount: maxCount, maxBytes: maxBytes, empty: make(chan struct{})}
}

// enter waits until there is room, or gives [ErrClosed]. What is larger than
// all the room goes alone.
func (g *gate) enter(bytes int) error {
	g.mu.Lock()
	bytes = min(bytes, g.maxBytes)
	switch {
	case g.closed:
		g.mu.Unlock()
		return ErrClosed
	case len(g.line) == 0 && g.fits(bytes):
		g.take(bytes)
		g.mu.Unlock()
		return nil
	}
	w := &waiter{bytes: bytes, in: make(chan struct{})}
	g.line = append(g.line, w)
	g.mu.Unlock()
	<-w.in
	return w.err
}

// leave gives the room back that enter took for as many bytes.
func (g *gate) leave(bytes int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count--
	g.bytes -= min(bytes, g.maxBytes)
	for len(g.line) > 0 && g.fits(g.line[0].bytes) {
		g.take(g.line[0].bytes)
		close(g.line[0].in)
		g.line[0] = nil
		g.line = g.line[1:]
	}
	if g.closed && g.count == 0 {
		close(g.empty)
	}
}

// close turns away who waits and who comes, and waits until all have left. It
// is safe to repeat.
func (g *gate) close() {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		for _, w := range g.line {
			w.err = ErrClosed
			close(w.in)
		}
		g.line = nil
		if g.count == 0 {
			close(g.empty)
		}
	}
	g.mu.Unlock()
	<-g.empty
}

func (g *gate) fits(bytes int) bool {
	return g.count < g.maxCount && (g.count == 0 || g.bytes+bytes <= g.maxBytes)
}

func (g *gate) take(bytes int) {
	g.count++
	g.bytes += bytes
}
