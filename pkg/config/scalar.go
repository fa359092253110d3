package config

import (
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// scalar checks a single value. Messages show the value unless it is secret.
func (c *checker) scalar(n *node, t reflect.Type, f field) (any, *fault) {
	switch {
	case !n.kind.scalar():
		return nil, &fault{"is " + n.kind.String() + " where a single value belongs", "write " + f.wants(t)}
	case t == secretType:
		if n.kind != text {
			return nil, &fault{"is " + n.kind.String() + ", not text", "put it in quotes"}
		}
		return n.text, nil
	case len(f.oneof) > 0:
		return f.word(n)
	case t == durationType:
		return f.duration(n)
	case f.is == "size":
		return f.size(n)
	case t.Kind() == reflect.Int:
		return f.integer(n)
	case t.Kind() == reflect.Float64:
		return f.float(n)
	case t.Kind() == reflect.Bool:
		if n.kind != boolean {
			return nil, &fault{quote(n.text) + " is not true or false", "write true or false, without quotes"}
		}
		return strings.EqualFold(n.text, "true"), nil // YAML has True and TRUE as well
	default:
		return c.text(n, f)
	}
}

// path says whether the value is the path of a file or folder.
func (f field) path() bool { return f.is == "file" || f.is == "folder" }

// wants says in words what a value of the key looks like.
func (f field) wants(t reflect.Type) string {
	switch kind, ok := textKinds[f.is]; {
	case len(f.oneof) > 0:
		return "one of " + strings.Join(f.oneof, ", ")
	case ok:
		return kind.example
	case t == durationType:
		return `a time with its unit, e.g. "30s"`
	case f.is == "size":
		return `a size, e.g. "64 KiB"`
	case t.Kind() == reflect.Int || t.Kind() == reflect.Float64:
		return "a number"
	case t.Kind() == reflect.Bool:
		return "true or false"
	default:
		return "text"
	}
}

// word takes numbers too if they are on the list, for min_version: 1.2.
func (f field) word(n *node) (any, *fault) {
	if n.kind != boolean && slices.Contains(f.oneof, n.text) {
		return n.text, nil
	}
	if n.kind == boolean && strings.EqualFold(n.text, "false") && slices.Contains(f.oneof, "off") {
		return nil, &fault{"is false", `write "off"`}
	}
	mend := "write one of " + strings.Join(f.oneof, ", ")
	if near := nearest(n.text, f.oneof); near != "" {
		mend = fmt.Sprintf("did you mean %q? Allowed are %s", near, strings.Join(f.oneof, ", "))
	}
	return nil, &fault{quote(n.text) + " is not a word that this key knows", mend}
}

func (f field) duration(n *node) (any, *fault) {
	d, err := time.ParseDuration(n.text)
	switch {
	case n.kind == integer || n.kind == float || err != nil && isNumber(n.text):
		return nil, &fault{quote(n.text) + " has no unit", fmt.Sprintf("write %q for seconds; ms, s, m and h are known", n.text+"s")}
	case n.kind != text || err != nil:
		return nil, &fault{quote(n.text) + " is not a time", `write a number with its unit, e.g. "30s"; ms, s, m and h are known`}
	}
	least, _ := time.ParseDuration(f.min)
	most, _ := time.ParseDuration(f.max)
	if d < least || d > most {
		return nil, f.outside(n)
	}
	return n.text, nil
}

func isNumber(v string) bool {
	_, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
	return err == nil
}

var sizeUnits = []struct {
	name  string
	bytes int
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"B", 1}}

// parseSize reads "64 KiB" and, as bytes, a bare number.
func parseSize(v string) (int, bool) {
	unit := 1
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(v, u.name); ok {
			v, unit = strings.TrimRight(rest, " "), u.bytes
			break
		}
	}
	n, err := strconv.Atoi(v)
	if err != nil || n > math.MaxInt/unit || n < math.MinInt/unit {
		return 0, false
	}
	return n * unit, true
}

func (f field) size(n *node) (any, *fault) {
	v, ok := parseSize(n.text)
	if !ok || n.kind != text && n.kind != integer {
		return nil, &fault{quote(n.text) + " is not a size", `write a number of bytes, or one with the unit B, KiB or MiB, e.g. "64 KiB"`}
	}
	least, _ := parseSize(f.min)
	most, _ := parseSize(f.max)
	if v < least || v > most {
		return nil, f.outside(n)
	}
	return v, nil
}

func (f field) integer(n *node) (any, *fault) {
	digits := strings.ReplaceAll(n.text, "_", "")
	v, err := strconv.ParseInt(digits, 10, 64) // first, so that 0100 is a hundred
	if err != nil {
		v, err = strconv.ParseInt(digits, 0, 64)
	}
	switch {
	case n.kind == text && err == nil:
		return nil, &fault{quote(n.text) + " is text, not a number", "write it without quotes"}
	case err != nil:
		return nil, &fault{quote(n.text) + " is not a whole number", fmt.Sprintf("write a number from %s to %s", f.min, f.max)}
	}
	least, _ := strconv.ParseInt(f.min, 10, 64)
	most, _ := strconv.ParseInt(f.max, 10, 64)
	if v < least || v > most {
		return nil, f.outside(n)
	}
	return v, nil
}

func (f field) float(n *node) (any, *fault) {
	v, err := strconv.ParseFloat(strings.ReplaceAll(n.text, "_", ""), 64)
	switch {
	case n.kind == text && err == nil:
		return nil, &fault{quote(n.text) + " is text, not a number", "write it without quotes"}
	case err != nil || math.IsNaN(v) || math.IsInf(v, 0):
		return nil, &fault{quote(n.text) + " is not a number", "write e.g. 1.25"}
	}
	least, _ := strconv.ParseFloat(f.min, 64)
	most, _ := strconv.ParseFloat(f.max, 64)
	if v < least || v > most {
		return nil, f.outside(n)
	}
	return v, nil
}

func (f field) outside(n *node) *fault {
	mend := fmt.Sprintf("write a value from %s to %s", f.min, f.max)
	if f.hint != "" {
		mend += "; " + f.hint
	}
	return &fault{n.text + " is out of bounds", mend}
}

func (c *checker) text(n *node, f field) (any, *fault) {
	kind, known := textKinds[f.is]
	switch {
	case n.kind == integer && (f.is == "listen" || f.is == "dial"): // a port alone: the check says so
	case n.kind != text:
		return nil, &fault{quote(n.text) + " is " + n.kind.String() + ", not text", "put it in quotes"}
	case n.text == "" && (f.required || known && !kind.empty):
		return nil, &fault{"is empty", "write " + f.wants(reflect.TypeFor[string]())}
	case n.text == "" || !known:
		return n.text, nil
	}
	v, fault := kind.check(n.text)
	if fault == nil && f.path() && !filepath.IsAbs(v) {
		v = filepath.Join(c.dir, v)
	}
	return v, fault
}
