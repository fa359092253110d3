package main

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// lines brings the output of several nodes into one stream, whole lines at a
// time, each behind the name of its node.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

// linesOf is the output of one node.
type linesOf struct {
	all     *lines
	name    string
	partial []byte
}

func (l *lines) of(name string) *linesOf { return &linesOf{all: l, name: name} }

// mostPartial is how long a line may get before it is cut.
const mostPartial = 64 << 10

// Write takes a piece of output, whole lines or not.
func (o *linesOf) Write(p []byte) (int, error) {
	o.partial = append(o.partial, p...)
	for {
		line, rest, found := bytes.Cut(o.partial, []byte("\n"))
		if !found {
			break
		}
		o.put(line)
		o.partial = rest
	}
	if len(o.partial) > mostPartial {
		o.end()
	}
	return len(p), nil
}

// end takes what has no end of line.
func (o *linesOf) end() {
	if len(o.partial) > 0 {
		o.put(o.partial)
		o.partial = nil
	}
}

func (o *linesOf) put(line []byte) {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	fmt.Fprintf(o.all.w, "%s | %s\n", o.name, line)
}
