package config

import (
	"errors"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// parseTOML reads a TOML document. The library's decoder stops at the first
// key that is written twice, so the tree is built from its syntax tree.
func parseTOML(data []byte) (*node, *syntaxError) {
	r := tomlReader{root: &node{kind: object, line: 1}, headers: map[*node]bool{}}
	r.p.Reset(data)
	table := r.root
	for r.p.NextExpression() {
		switch e := r.p.Expression(); e.Kind {
		case unstable.Table:
			table = r.table(e)
		case unstable.ArrayTable:
			table = r.item(e)
		case unstable.KeyValue:
			r.keyValue(table, e)
		}
	}
	if r.p.Error() != nil {
		return nil, tomlSyntax(data)
	}
	return r.root, nil
}

// tomlSyntax asks the decoder for the error, since it knows the position.
func tomlSyntax(data []byte) *syntaxError {
	e := &syntaxError{0, "not valid TOML", "mend the line, or the one before it"}
	err := toml.Unmarshal(data, &map[string]any{})
	if decode, ok := errors.AsType[*toml.DecodeError](err); ok {
		e.line, _ = decode.Position()
		e.what = "not valid TOML: " + decode.Error()
	}
	return e
}

type tomlReader struct {
	p       unstable.Parser
	root    *node
	headers map[*node]bool // tables that a [header] has opened
}

func (r *tomlReader) line(n *unstable.Node, fallback int) int {
	if n.Raw.Length == 0 {
		return fallback
	}
	return r.p.Shape(n.Raw).Start.Line
}

// descend goes along a dotted key from at, through tables that it makes where
// they are not there yet, and gives the last part with the table it is in.
func (r *tomlReader) descend(at *node, key unstable.Iterator) (table *node, last string, line int) {
	for key.Next() {
		part := key.Node()
		last, line = string(part.Data), r.line(part, at.line)
		if key.IsLast() {
			break
		}
		next := at.find(last)
		if next != nil && next.kind == list && len(next.items) > 0 {
			next = next.items[len(next.items)-1]
		}
		if next == nil || next.kind != object {
			next = &node{kind: object, line: line}
			at.add(last, line, next)
		}
		at = next
	}
	return at, last, line
}

func (r *tomlReader) table(e *unstable.Node) *node {
	at, last, line := r.descend(r.root, e.Key())
	t := at.find(last)
	if t == nil || t.kind != object || r.headers[t] {
		t = &node{kind: object, line: line}
		at.add(last, line, t)
	}
	r.headers[t] = true
	return t
}

func (r *tomlReader) item(e *unstable.Node) *node {
	at, last, line := r.descend(r.root, e.Key())
	l := at.find(last)
	if l == nil || l.kind != list {
		l = &node{kind: list, line: line}
		at.add(last, line, l)
	}
	t := &node{kind: object, line: line}
	l.items = append(l.items, t)
	return t
}

func (r *tomlReader) keyValue(table *node, e *unstable.Node) {
	at, last, line := r.descend(table, e.Key())
	at.add(last, line, r.value(e.Value(), line))
}

func (r *tomlReader) value(v *unstable.Node, line int) *node {
	n := &node{line: r.line(v, line), text: string(v.Data)}
	switch v.Kind {
	case unstable.Array:
		n.kind = list
		for items := v.Children(); items.Next(); {
			if item := items.Node(); item.Kind != unstable.Comment {
				n.items = append(n.items, r.value(item, n.line))
			}
		}
	case unstable.InlineTable:
		n.kind = object
		for pairs := v.Children(); pairs.Next(); {
			r.keyValue(n, pairs.Node())
		}
	case unstable.String:
		n.kind = text
	case unstable.Integer:
		n.kind = integer
	case unstable.Float:
		n.kind = float
	case unstable.Bool:
		n.kind = boolean
	default:
		n.kind = other
	}
	return n
}
