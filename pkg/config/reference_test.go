package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestEveryExampleLoads(t *testing.T) {
	paths, err := filepath.Glob("../../configs/*")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range paths {
		name := filepath.Base(path)
		names = append(names, name)
		// The certificates that examples name are the reader's to make.
		_, err := (Loader{SkipFiles: true}).Load(path)
		if strings.HasPrefix(name, "broker") {
			_, err = (BrokerLoader{SkipFiles: true}).Load(path)
		}
		if err != nil {
			t.Error(err)
		}
	}
	for _, want := range []string{"plain.yaml", "tls-offload.yaml", "mtls.yaml", "passthrough.yaml", "mixed.yaml", "reference.yaml", "broker.yaml", "broker-cluster.yaml"} {
		if !slices.Contains(names, want) {
			t.Errorf("configs/%s is missing", want)
		}
	}
}

// keysBelow gives every key with its field, under a path without numbers.
func keysBelow(t reflect.Type, path string, all map[string]field) {
	for _, f := range fieldsOf(t) {
		key := join(path, f.key)
		all[key] = f
		elem := f.typ
		for elem.Kind() == reflect.Slice || elem.Kind() == reflect.Pointer {
			elem = elem.Elem()
		}
		if elem.Kind() == reflect.Struct && elem != prefixType {
			keysBelow(elem, key, all)
		}
	}
}

// comments gives what stands above each key of a YAML file, under the same
// paths; of several items of a list the first counts.
func comments(n *yaml.Node, path string, all map[string]string) {
	switch n.Kind {
	case yaml.DocumentNode, yaml.SequenceNode:
		for _, c := range n.Content {
			comments(c, path, all)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, above := join(path, n.Content[i].Value), n.Content[i].HeadComment
			if i == 0 && above == "" { // in front of a list's item, it belongs to the item
				above = n.HeadComment
			}
			if all[key] == "" {
				all[key] = strings.Join(strings.Fields(strings.ReplaceAll(above, "#", " ")), " ")
			}
			comments(n.Content[i+1], key, all)
		}
	}
}

// references are the files that tell of each key what it does, its default, its
// bounds or words, and the code that they are held against.
var references = map[string]reflect.Type{
	"reference.yaml": reflect.TypeFor[Config](),
	"broker.yaml":    reflect.TypeFor[Broker](),
}

func TestReferencesDocumentEveryKey(t *testing.T) {
	for name, schema := range references {
		t.Run(name, func(t *testing.T) { checkReference(t, filepath.Join("../../configs", name), schema) })
	}
}

func checkReference(t *testing.T, path string, schema reflect.Type) {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	keys, above := map[string]field{}, map[string]string{}
	keysBelow(schema, "", keys)
	comments(&doc, "", above)

	facts := regexp.MustCompile(`(?:^|\. )(Required|Default: .*)\.$`)
	for key, f := range keys {
		comment, there := above[key]
		group := f.typ.Kind() == reflect.Struct
		switch said := facts.FindStringSubmatch(comment); {
		case !there:
			t.Errorf("%s is missing", key)
		case group:
			if strings.Contains(comment, "Default:") {
				t.Errorf("%s is a group and has no default", key)
			}
		case said == nil:
			t.Errorf("%s: neither required nor a default in %q", key, comment)
		case strings.TrimSpace(strings.TrimSuffix(comment, said[0])) == "":
			t.Errorf("%s: no word on what it does", key)
		default:
			checkFacts(t, key, f, said[1])
		}
	}
}

func checkFacts(t *testing.T, key string, f field, said string) {
	want := "Required"
	if !f.required {
		want = "Default: "
		if f.has {
			want += strings.Join(strings.Fields(f.fallback), " ")
		}
	}
	if f.typ.Kind() == reflect.Slice && f.has {
		want = "Default: " + strings.Join(strings.Fields(f.fallback), ", ")
	}
	if f.is == "size" {
		want = "Default: " + f.fallback
	}
	bounds := ""
	switch {
	case f.min != "":
		bounds = ". Bounds: " + f.min + " to " + f.max
	case f.max != "":
		bounds = ". Bounds: 0 to " + f.max
	case len(f.oneof) > 0:
		bounds = ". One of: " + strings.Join(f.oneof, ", ")
	}
	if f.has || f.required {
		if said != want+bounds {
			t.Errorf("%s: the reference says %q, the code %q", key, said, want+bounds)
		}
	} else if !strings.HasPrefix(said, want) || !strings.HasSuffix(said, bounds) {
		t.Errorf("%s: the reference says %q, the code %q", key, said, want+"…"+bounds)
	}
}

// A default must be a value that a file could hold, or it could not be written
// out in full.
func TestDefaultsAreWithinTheirBounds(t *testing.T) {
	for _, schema := range references {
		keys := map[string]field{}
		keysBelow(schema, "", keys)
		for key, f := range keys {
			if !f.has {
				continue
			}
			c := checker{bad: map[string]bool{}, lost: map[string]bool{}, source: source{places: map[string]place{}}}
			if _, ok := c.value(f.fallbackNode(), f.typ, f, key); !ok {
				t.Errorf("%s", c.problems[0])
			}
		}
	}
}
