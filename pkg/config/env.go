package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// variable is a key that the environment can set.
type variable struct {
	path []string
	typ  reflect.Type
}

// variables lists them: the single values outside of lists, under the path in
// capitals behind the program's prefix.
func (p program) variables(t reflect.Type, path []string) map[string]variable {
	vars := map[string]variable{}
	for _, f := range fieldsOf(t) {
		at := append(slices.Clone(path), f.key)
		switch f.typ.Kind() {
		case reflect.Slice, reflect.Pointer:
		case reflect.Struct:
			maps.Copy(vars, p.variables(f.typ, at))
		default:
			vars[p.prefix+strings.ToUpper(strings.Join(at, "_"))] = variable{at, f.typ}
		}
	}
	return vars
}

// value is what the environment says, as a file would say it: numbers and truth
// without quotes.
func (v variable) value(s, from string) *node {
	n := &node{kind: text, text: s, from: from}
	switch {
	case v.typ.Kind() == reflect.Int && isNumber(s):
		n.kind = integer
	case v.typ.Kind() == reflect.Bool && (s == "true" || s == "false"):
		n.kind = boolean
	}
	return n
}

// config is the variable that names the file which the commands read; it is no
// key.
func (p program) config() string { return p.prefix + "CONFIG" }

// owns says whether a variable is meant for the program, and so must be one
// that it knows. Kubernetes sets some in every pod beside a Service that is
// called like the program; they are not.
func (p program) owns(name string) bool {
	rest, ok := strings.CutPrefix(name, p.prefix)
	switch {
	case !ok, p.reserved != "" && strings.HasPrefix(name, p.reserved):
		return false
	default:
		return rest != "PORT" && !strings.HasPrefix(rest, "PORT_") && !strings.HasPrefix(rest, "SERVICE_")
	}
}

// environment lays the variables over the file's tree and reports those that
// it does not know. An empty variable counts as not set.
func (c *checker) environment(root *node, t reflect.Type, environ []string) {
	vars := c.program.variables(t, nil)
	known := slices.AppendSeq([]string{c.program.config()}, maps.Keys(vars))
	slices.Sort(known)
	for _, assignment := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(assignment, "=")
		if !c.program.owns(name) || name == c.program.config() || value == "" {
			continue
		}
		from := "environment variable " + name
		if v, ok := vars[name]; ok {
			overlay(root, v.path, v.value(value, from))
			continue
		}
		mend := "known are " + strings.Join(known, ", ")
		if near := nearest(name, known); near != "" {
			mend = fmt.Sprintf("did you mean %s?", near)
		}
		c.problems = append(c.problems, Problem{File: from, What: "unknown", Mend: mend})
	}
}

// overlay puts the value in place of what the file has for the key.
func overlay(at *node, keys []string, value *node) {
	for _, key := range keys[:len(keys)-1] {
		next := at.find(key)
		if next == nil {
			next = &node{kind: object, from: value.from}
			at.add(key, 0, next)
		}
		at = next
	}
	last := keys[len(keys)-1]
	for i := range at.entries {
		if at.entries[i].key == last {
			at.entries[i].line, at.entries[i].value = 0, value
			return
		}
	}
	at.add(last, 0, value)
}
