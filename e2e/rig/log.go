package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
)

// maxLines bounds what a Log keeps of a process that runs for days.
const maxLines = 50_000

// Log keeps the last lines that a process has written, and lets others wait
// for one. Lines are numbered from 0 as they come, so a number taken before
// an action tells what came after it.
type Log struct {
	tee io.Writer // may be nil

	mu      sync.Mutex
	partial []byte
	lines   []string
	dropped int           // how many lines went before lines[0]
	grown   chan struct{} // closed and replaced when a line comes
	ended   bool
}

func newLog(tee io.Writer) *Log { return &Log{tee: tee, grown: make(chan struct{})} }

// Write takes a piece of output, whole lines or not.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tee != nil {
		l.tee.Write(p) // a full disk must not end the process that logs
	}
	l.partial = append(l.partial, p...)
	for {
		line, rest, found := bytes.Cut(l.partial, []byte("\n"))
		if !found {
			break
		}
		l.add(string(line))
		l.partial = rest
	}
	return len(p), nil
}

// add appends a line; l.mu is held.
func (l *Log) add(line string) {
	l.lines = append(l.lines, line)
	if len(l.lines) > maxLines {
		drop := maxLines / 10
		l.lines = append([]string(nil), l.lines[drop:]...)
		l.dropped += drop
	}
	l.wake()
}

func (l *Log) wake() {
	close(l.grown)
	l.grown = make(chan struct{})
}

// end says that no more comes: the process has ended.
func (l *Log) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.partial) > 0 {
		l.add(string(l.partial))
		l.partial = nil
	}
	l.ended = true
	l.wake()
}

// Len is the number of the next line.
func (l *Log) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped + len(l.lines)
}

// Since gives the lines numbered from and up, as far as they are kept.
func (l *Log) Since(from int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines[max(0, min(from-l.dropped, len(l.lines))):]...)
}

// Tail is the last n lines in one string.
func (l *Log) Tail(n int) string {
	lines := l.Since(0)
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// errEnded says that a process ended before it wrote what was waited for.
var errEnded = errors.New("the process ended first")

// Wait waits for a line numbered from or higher that match holds for, and
// gives it and its number.
func (l *Log) Wait(ctx context.Context, from int, match func(string) bool) (line string, number int, err error) {
	for {
		l.mu.Lock()
		first := max(from, l.dropped)
		fresh := l.lines[min(first-l.dropped, len(l.lines)):]
		grown, ended := l.grown, l.ended
		l.mu.Unlock()
		for i, line := range fresh {
			if match(line) {
				return line, first + i, nil
			}
		}
		from = first + len(fresh)
		if ended {
			return "", 0, errEnded
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return "", 0, context.Cause(ctx)
		}
	}
}

// WaitFor waits for a line numbered from or higher that contains text.
func (l *Log) WaitFor(ctx context.Context, from int, text string) (string, error) {
	line, _, err := l.Wait(ctx, from, func(s string) bool { return strings.Contains(s, text) })
	if err != nil {
		return "", fmt.Errorf("waiting for a line with %q: %w; the last lines are\n%s", text, err, l.Tail(20))
	}
	return line, nil
}
