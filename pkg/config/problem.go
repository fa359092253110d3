package config

import (
	"fmt"
	"strings"
)

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	File string // as given to Load, or "environment"
	Line int    // from 1; 0 where there is none
	Key  string // full path, such as pools[0].backends[2].address; empty for the file as a whole
	What string
	Mend string // what to do about it; may be empty
}

// String gives "file:line: key: what; mend".
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	b.WriteString(": ")
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	b.WriteString(p.What)
	if p.Mend != "" {
		b.WriteString("; " + p.Mend)
	}
	return b.String()
}

// Problems is the error of a configuration that can't be used: all that is
// wrong with it, in the order of the file.
type Problems struct{ List []Problem }

// Error gives one problem a line.
func (p *Problems) Error() string {
	lines := make([]string, len(p.List))
	for i, one := range p.List {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}
