package cluster

import (
	"context"
	"sync"
)

// readers are those of one stream that somebody may wait for.
type readers struct {
	mu      sync.Mutex
	running map[*progress]struct{}
	changed chan struct{} // closed when one of them got further, or ended
}

// progress is how far one reader is. A nil one is of a reader that nobody waits
// for.
type progress struct {
	readers *readers
	told    uint64 // its function has had all up to this sequence number
	wanted  uint64 // and somebody waits for it to have all up to this one
}

func (r *readers) add() *progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == nil {
		r.running, r.changed = make(map[*progress]struct{}), make(chan struct{})
	}
	p := &progress{readers: r}
	r.running[p] = struct{}{}
	return p
}

func (r *readers) remove(p *progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, p)
	r.change()
}

// change tells those who wait; r.mu is held.
func (r *readers) change() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// reached notes that a reader's function has had all up to a sequence number.
func (p *progress) reached(seq uint64) {
	if p == nil {
		return
	}
	p.readers.mu.Lock()
	defer p.readers.mu.Unlock()
	if seq > p.told {
		p.told = seq
		if p.wanted > 0 {
			p.readers.change()
		}
	}
}

// behind says whether somebody waits for more than the reader has had.
func (p *progress) behind() bool {
	if p == nil {
		return false
	}
	p.readers.mu.Lock()
	defer p.readers.mu.Unlock()
	return p.told < p.wanted
}

// wait waits until all readers have had what is up to a sequence number.
func (r *readers) wait(ctx context.Context, seq uint64) error {
	for {
		r.mu.Lock()
		behind := false
		for p := range r.running {
			p.wanted = max(p.wanted, seq)
			behind = behind || p.told < seq
		}
		changed := r.changed
		r.mu.Unlock()
		if !behind {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// fresh asks for a sequence number for many at a time: each gets an answer to a
// question that was asked after its call.
type fresh struct {
	asking sync.Mutex // held while a question is under way

	mu   sync.Mutex
	next *freshAnswer // to the question that is not asked yet
}

type freshAnswer struct {
	there chan struct{} // closed when seq and err are
	seq   uint64
	err   error
}

// get asks by start, which runs a function in a goroutine of its own.
func (f *fresh) get(ctx context.Context, start func(func()), ask func() (uint64, error)) (uint64, error) {
	f.mu.Lock()
	a := f.next
	if a == nil {
		a = &freshAnswer{there: make(chan struct{})}
		f.next = a
		start(func() {
			f.asking.Lock()
			defer f.asking.Unlock()
			f.mu.Lock()
			f.next = nil
			f.mu.Unlock()
			a.seq, a.err = ask()
			close(a.there)
		})
	}
	f.mu.Unlock()
	select {
	case <-a.there:
		return a.seq, a.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}
