package cluster

import (
	"sync"
	"time"
)

// disk knows whether there is room for more.
type disk struct {
	dir     string
	minFree int64

	mu     sync.Mutex
	next   time.Time // when to look again
	unseen int64     // bytes that were written since
	full   bool
}

// diskInterval is how old an answer may be, if little is written meanwhile.
const diskInterval = 100 * time.Millisecond

func (d *disk) isFull() bool {
	if d.minFree < 0 {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); !now.Before(d.next) || d.unseen > d.minFree/8 {
		d.next, d.unseen = now.Add(diskInterval), 0
		free, ok := freeBytes(d.dir)
		d.full = ok && free < d.minFree
	}
	return d.full
}

// wrote counts what goes to the disk.
func (d *disk) wrote(bytes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unseen += int64(bytes)
}
