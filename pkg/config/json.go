package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// parseJSON reads one JSON value.
func parseJSON(data []byte) (*node, *syntaxError) {
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		e := &syntaxError{0, "not valid JSON: " + err.Error(), "mend the line, or the one before it"}
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			e.line = lineAt(data, syntax.Offset)
		}
		return nil, e
	}
	r := jsonReader{data: data, d: json.NewDecoder(bytes.NewReader(data))}
	r.d.UseNumber()
	root := r.read(maxDepth)
	return root, r.err
}

// lineAt is the line of the byte before the offset.
func lineAt(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:max(0, min(offset, int64(len(data))))], []byte("\n"))
}

// jsonReader builds nodes from tokens; the input is known to be valid.
type jsonReader struct {
	data []byte
	d    *json.Decoder
	err  *syntaxError
}

func (r *jsonReader) token() json.Token {
	t, err := r.d.Token()
	if err != nil && r.err == nil {
		r.err = &syntaxError{r.line(), "not valid JSON", ""}
	}
	return t
}

// line is where the last token ended, which is where it began: no token spans
// lines.
func (r *jsonReader) line() int { return lineAt(r.data, r.d.InputOffset()) }

func (r *jsonReader) read(depth int) *node {
	t := r.token()
	n := &node{line: r.line()}
	if depth == 0 {
		r.err = &syntaxError{n.line, "nested too deep", ""}
		return n
	}
	switch t := t.(type) {
	case json.Delim:
		if t == '[' {
			n.kind = list
			for r.d.More() && r.err == nil {
				n.items = append(n.items, r.read(depth-1))
			}
		} else {
			n.kind = object
			for r.d.More() && r.err == nil {
				key, _ := r.token().(string)
				line := r.line()
				n.add(key, line, r.read(depth-1))
			}
		}
		r.token() // the closing one
	case string:
		n.kind, n.text = text, t
	case json.Number:
		n.kind, n.text = integer, t.String()
		if strings.ContainsAny(n.text, ".eE") {
			n.kind = float
		}
	case bool:
		n.kind, n.text = boolean, "false"
		if t {
			n.text = "true"
		}
	}
	return n
}
