package config

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

var (
	yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)
	// yamlGrammar are the messages of the library's parser, which counts lines
	// from 0, unlike its scanner, and names where the broken part begins.
	yamlGrammar = regexp.MustCompile(`^did not find expected (key|node content|'-' indicator|',' or|<)`)
	// yamlBytes are the messages about bytes that are no text.
	yamlBytes  = regexp.MustCompile(`UTF-|control characters`)
	yamlAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
)

// parseYAML reads one YAML document.
func parseYAML(data []byte) (*node, *syntaxError) {
	d := yaml.NewDecoder(bytes.NewReader(data))
	var doc, next yaml.Node
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF): // nothing but comments
		return &node{kind: object, line: 1}, nil
	case err != nil:
		return nil, yamlSyntax(data, err)
	}
	switch err := d.Decode(&next); {
	case err == nil:
		return nil, &syntaxError{next.Line, "a second document begins here", `remove the line "---" and keep one document a file`}
	case !errors.Is(err, io.EOF):
		return nil, yamlSyntax(data, err)
	}
	r := yamlReader{left: maxNodes}
	root := r.read(doc.Content[0], maxDepth)
	return root, r.err
}

func yamlSyntax(data []byte, err error) *syntaxError {
	m := yamlError.FindStringSubmatch(err.Error())
	if m == nil {
		return &syntaxError{0, "can't be read as YAML", "write it anew"}
	}
	e := &syntaxError{what: "not valid YAML: " + m[2], mend: "mend the line, or the one before it"}
	e.line, _ = strconv.Atoi(m[1])
	switch anchor := yamlAnchor.FindStringSubmatch(m[2]); {
	case anchor != nil: // not to be shown: a password may begin with "*"
		e.line = lineAt(data, int64(bytes.Index(data, []byte("*"+anchor[1]))))
		e.what = `a value begins with "*" and so stands for an anchor that the file does not have`
		e.mend = "put the value in quotes"
	case yamlGrammar.MatchString(m[2]):
		e.line++
		e.mend = "look here and just below for wrong indentation, or a missing quote, comma or bracket"
	case e.line == 0 && !yamlBytes.MatchString(m[2]):
		e.line = 1
	}
	return e
}

// yamlReader turns the library's nodes into ours, aliases and merge keys
// resolved.
type yamlReader struct {
	left int
	err  *syntaxError
}

func (r *yamlReader) read(y *yaml.Node, depth int) *node {
	n := &node{line: y.Line}
	if r.left--; r.left < 0 || depth == 0 {
		r.err = &syntaxError{y.Line, "nested too deep, or grown too large by its aliases", "write it out with fewer aliases"}
		return n
	}
	switch y.Kind {
	case yaml.AliasNode:
		aliased := r.read(y.Alias, depth-1)
		aliased.line = y.Line
		return aliased
	case yaml.MappingNode:
		n.kind = object
		r.readObject(n, y, depth)
	case yaml.SequenceNode:
		n.kind = list
		for _, item := range y.Content {
			n.items = append(n.items, r.read(item, depth-1))
		}
	default:
		n.text = y.Value
		switch y.ShortTag() {
		case "!!null":
			n.kind = null
		case "!!str":
			n.kind = text
		case "!!int":
			n.kind = integer
		case "!!float":
			n.kind = float
		case "!!bool":
			n.kind = boolean
		default:
			n.kind = other
		}
	}
	return n
}

func (r *yamlReader) readObject(n *node, y *yaml.Node, depth int) {
	var merged []*node
	for i := 0; i+1 < len(y.Content) && r.err == nil; i += 2 {
		key, value := y.Content[i], r.read(y.Content[i+1], depth-1)
		switch {
		case key.ShortTag() != "!!merge":
			n.add(key.Value, key.Line, value)
		case value.kind == list:
			merged = append(merged, value.items...)
		default:
			merged = append(merged, value)
		}
	}
	for _, m := range merged {
		for _, e := range m.entries {
			if n.find(e.key) == nil { // what is written out wins, then the earlier merge
				n.entries = append(n.entries, e)
			}
		}
	}
}
