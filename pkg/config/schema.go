package config

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"
)

// field is one key of the schema: a struct field and its tags.
type field struct {
	key      string
	typ      reflect.Type
	fallback string // the default, as in a file
	has      bool   // there is a default
	required bool
	is       string
	oneof    []string
	min, max string
	hint     string
}

// fieldsOf reads the schema of a struct.
func fieldsOf(t reflect.Type) []field {
	var fields []field
	for i := range t.NumField() {
		f := t.Field(i)
		key, ok := f.Tag.Lookup("key")
		if !ok {
			continue
		}
		fallback, has := f.Tag.Lookup("default")
		fields = append(fields, field{
			key: key, typ: f.Type, fallback: fallback, has: has,
			required: f.Tag.Get("required") == "true",
			is:       f.Tag.Get("is"), oneof: strings.Fields(f.Tag.Get("oneof")),
			min: f.Tag.Get("min"), max: f.Tag.Get("max"), hint: f.Tag.Get("hint"),
		})
	}
	return fields
}

func keysOf(fields []field) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	return keys
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	prefixType   = reflect.TypeFor[netip.Prefix]()
	secretType   = reflect.TypeFor[Secret]()
)

// checker goes through a file's tree along the schema. It reports what does
// not fit, and gives the rest with the defaults as maps that fit for sure.
type checker struct {
	source
	program  program
	dir      string // what relative paths start from
	problems []Problem
	bad      map[string]bool // keys that have a problem already
	lost     map[string]bool // keys whose whole value could not be taken
	files    []namedFile
}

// namedFile is a file or folder that the configuration names, by the key that
// does.
type namedFile struct {
	key, path string
	folder    bool
}

// report adds a problem at the key's place. It stays silent where the key has
// a problem already, or is in a group that was lost: one mistake, one line.
func (c *checker) report(key string, f *fault) {
	if c.bad[key] {
		return
	}
	for k := key; k != ""; k = parent(k) {
		if c.lost[k] {
			return
		}
	}
	c.bad[key] = true
	c.problems = append(c.problems, c.problem(key, f.what, f.mend))
}

// object checks a group of keys against the struct t.
func (c *checker) object(n *node, t reflect.Type, path string) map[string]any {
	fields := fieldsOf(t)
	for _, e := range n.entries {
		key := join(path, e.key)
		if !slices.ContainsFunc(fields, func(f field) bool { return f.key == e.key }) {
			c.unknown(n, e, fields, path)
		} else if first, twice := c.places[key]; twice {
			c.twice(e, key, first)
		} else {
			c.places[key] = place{e.value.from, e.line}
		}
	}
	out := map[string]any{}
	for _, f := range fields {
		key, value := join(path, f.key), n.find(f.key)
		switch {
		case value != nil:
			if v, ok := c.value(value, f.typ, f, key); ok {
				out[f.key] = v
			}
		case f.required:
			c.report(key, f.missing())
		case f.typ.Kind() == reflect.Struct:
			out[f.key] = c.object(&node{kind: object}, f.typ, key)
		case f.has:
			out[f.key], _ = c.value(f.fallbackNode(), f.typ, f, key)
		}
	}
	return out
}

func (f field) missing() *fault {
	switch kind, ok := textKinds[f.is]; {
	case f.typ.Kind() == reflect.Slice:
		return &fault{"is missing", "list at least one"}
	case ok:
		return &fault{"is missing", "write " + kind.example}
	default:
		return &fault{"is missing", "add the key"}
	}
}

// fallbackNode is the default as if it stood in the file.
func (f field) fallbackNode() *node {
	switch {
	case f.typ.Kind() == reflect.Slice:
		n := &node{kind: list}
		for _, word := range strings.Fields(f.fallback) {
			n.items = append(n.items, &node{kind: text, text: word})
		}
		return n
	case f.typ == durationType || f.is == "size" || f.typ.Kind() == reflect.String:
		return &node{kind: text, text: f.fallback}
	case f.typ.Kind() == reflect.Bool:
		return &node{kind: boolean, text: f.fallback}
	default:
		return &node{kind: float, text: f.fallback}
	}
}

// value checks one value against the type t. The tags of f hold for it, or for
// its items when it is a list.
func (c *checker) value(n *node, t reflect.Type, f field, key string) (any, bool) {
	if n.kind == null {
		c.report(key, &fault{"has no value", "write one, or remove the key"})
		c.lost[key] = true
		return nil, false
	}
	switch {
	case t.Kind() == reflect.Pointer:
		return c.value(n, t.Elem(), f, key)
	case t.Kind() == reflect.Struct && t != prefixType:
		if n.kind != object {
			c.report(key, &fault{"is " + n.kind.String() + " where a group of keys belongs",
				"write keys of their own below it: " + strings.Join(keysOf(fieldsOf(t)), ", ")})
			c.lost[key] = true
			return nil, false
		}
		return c.object(n, t, key), true
	case t.Kind() == reflect.Slice:
		return c.list(n, t, f, key)
	}
	v, fault := c.scalar(n, t, f)
	if fault != nil {
		c.report(key, fault)
		return nil, false
	}
	if f.path() {
		c.files = append(c.files, namedFile{key, v.(string), f.is == "folder"})
	}
	return v, true
}

func (c *checker) list(n *node, t reflect.Type, f field, key string) (any, bool) {
	items, single := n.items, n.kind.scalar() && scalarType(t.Elem())
	if single { // one word does for a list of one
		items = []*node{n}
	} else if n.kind != list {
		c.report(key, &fault{"is " + n.kind.String() + " where a list belongs", "write a list, even of one item"})
		c.lost[key] = true
		return nil, false
	}
	if len(items) == 0 && f.required {
		c.report(key, &fault{"is an empty list", "list at least one"})
		return nil, false
	}
	values := make([]any, 0, len(items))
	for i, item := range items {
		at := key
		if !single {
			at = fmt.Sprintf("%s[%d]", key, i)
			c.places[at] = place{item.from, item.line}
		}
		v, ok := c.value(item, t.Elem(), f, at)
		switch {
		case !ok && !scalarType(t.Elem()):
			v = map[string]any{} // keeps the numbers of the items behind it
		case !ok:
			c.bad[key] = true // so that nobody calls the list empty
			continue
		case scalarType(t.Elem()) && slices.Contains(values, v):
			c.report(at, &fault{fmt.Sprintf("%s is in the list already", quote(item.text)), "keep it once"})
		}
		values = append(values, v)
	}
	return values, true
}

func scalarType(t reflect.Type) bool { return t.Kind() != reflect.Struct || t == prefixType }
