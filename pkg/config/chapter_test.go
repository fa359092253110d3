package config

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// The broker's chapter has a row for every key: key, default, unit and bounds,
// effect.
func TestTheBrokersChapterHasEveryKey(t *testing.T) {
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, chapter, _ := strings.Cut(string(text), "\n## The broker\n")
	chapter, _, _ = strings.Cut(chapter, "\n## ")
	rows := map[string][]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]*)` \\| ([^|]*) \\| ([^|]*) \\| ([^|]*) \\|$").FindAllStringSubmatch(chapter, -1) {
		rows[strings.ReplaceAll(m[1], "[]", "")] = m[2:]
	}
	keys := map[string]field{}
	keysBelow(reflect.TypeFor[Broker](), "", keys)
	for key, f := range keys {
		if f.typ.Kind() == reflect.Struct || f.typ.Kind() == reflect.Pointer || key == "listeners" || key == "listeners.tls.certificates" {
			continue // a group
		}
		row, there := rows[key]
		delete(rows, key)
		if !there {
			t.Errorf("%s is missing", key)
			continue
		}
		value, bounds := row[0], row[1]
		switch {
		case f.required && value != "required":
			t.Errorf("%s: default %q, but it is required", key, value)
		case f.has && value != "`"+f.fallback+"`":
			t.Errorf("%s: default %q, the code says %q", key, value, f.fallback)
		}
		for _, word := range f.oneof {
			if !strings.Contains(bounds, "`"+word+"`") {
				t.Errorf("%s: the word %s is missing in %q", key, word, bounds)
			}
		}
		if f.max != "" && !strings.Contains(bounds, f.max) || f.min != "" && !strings.Contains(bounds, f.min) {
			t.Errorf("%s: bounds %q, the code says %s to %s", key, bounds, f.min, f.max)
		}
	}
	for key := range rows {
		t.Errorf("%s is no key of the broker", key)
	}
}
