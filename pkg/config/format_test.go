package config

import (
	"strings"
	"testing"
)

// dump writes a tree as key=value pairs with their lines.
func dump(n *node) string {
	switch n.kind {
	case object:
		var b strings.Builder
		for _, e := range n.entries {
			b.WriteString(e.key + "@" + string(rune('0'+e.line)) + "=" + dump(e.value) + " ")
		}
		return "{" + strings.TrimSpace(b.String()) + "}"
	case list:
		var items []string
		for _, i := range n.items {
			items = append(items, dump(i))
		}
		return "[" + strings.Join(items, " ") + "]"
	default:
		return n.text + "@" + string(rune('0'+n.line))
	}
}

func TestFormatsKeepLinesAndRepeatedKeys(t *testing.T) {
	for _, row := range []struct{ name, format, content, want string }{
		{"yaml", ".yaml", "a: 1\nb:\n  - c: x\n  - [y]\na: 2\n", "{a@1=1@1 b@2=[{c@3=x@3} [y@4]] a@5=2@5}"},
		{"yaml flow over lines", ".yaml", "{a: 1,\n b: [2,\n 3]}", "{a@1=1@1 b@2=[2@2 3@3]}"},
		{"yaml alias stands where it is used", ".yaml", "a: &x {c: 1}\nb: *x\n", "{a@1={c@1=1@1} b@2={c@1=1@1}}"},
		{"yaml merge gives way to what is written", ".yaml", "a: &x {c: 1, d: 2}\nb:\n  <<: *x\n  c: 3\n", "{a@1={c@1=1@1 d@1=2@1} b@2={c@4=3@4 d@1=2@1}}"},
		{"yaml merges of several", ".yaml", "a: &x {c: 1}\nb: &y {c: 2, d: 2}\ne: {<<: [*x, *y]}\n", "{a@1={c@1=1@1} b@2={c@2=2@2 d@2=2@2} e@3={c@1=1@1 d@2=2@2}}"},
		{"yaml of comments only", ".yaml", "# nothing\n", "{}"},

		{"toml", ".toml", "a = 1\n[b]\nc = \"x\"\n[b.d]\ne = [1,\n 2]\n", "{a@1=1@1 b@2={c@3=x@3 d@4={e@5=[1@5 2@6]}}}"},
		{"toml dotted keys", ".toml", "a.b = 1\na.c = 2\n[d]\ne.f = 3\n", "{a@1={b@1=1@1 c@2=2@2} d@3={e@4={f@4=3@4}}}"},
		{"toml lists of tables", ".toml", "[[a]]\nb = 1\n[a.c]\nd = 2\n[[a]]\n[[a.e]]\nf = 3\n", "{a@1=[{b@2=1@2 c@3={d@4=2@4}} {e@6=[{f@7=3@7}]}]}"},
		{"toml inline tables", ".toml", "a = [{ b = 1 },\n  # and\n  { b.c = true }]\n", "{a@1=[{b@1=1@1} {b@3={c@3=true@3}}]}"},
		{"toml repeats", ".toml", "a = 1\na = 2\n[b]\nc = 1\n[b]\nd = 1\n", "{a@1=1@1 a@2=2@2 b@3={c@4=1@4} b@5={d@6=1@6}}"},
		{"toml value for a table", ".toml", "a = 1\n[a]\nb = 2\n", "{a@1=1@1 a@2={b@3=2@3}}"},
		{"toml implicit table made explicit", ".toml", "[a.b]\nc = 1\n[a]\nd = 2\n", "{a@1={b@1={c@2=1@2} d@4=2@4}}"},

		{"json", ".json", "{\"a\": 1,\n \"b\": [\"x\", {\"c\":\n true}], \"a\": null}", "{a@1=1@1 b@2=[x@2 {c@2=true@3}] a@3=@3}"},
	} {
		t.Run(row.name, func(t *testing.T) {
			n, err := formats[row.format]([]byte(row.content))
			if err != nil {
				t.Fatal(*err)
			}
			if got := dump(n); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}

func TestSyntaxErrorsNameTheLine(t *testing.T) {
	for _, row := range []struct{ name, content, want string }{
		{"c.yaml", "a: 1\nb: [1, 2\nc: 3\n", "c.yaml:2: not valid YAML: did not find expected ',' or ']'; look here and just below for wrong indentation, or a missing quote, comma or bracket"},
		{"c.yaml", "a:\n  - b: 1\n   c: 2\n", "c.yaml:2: not valid YAML: did not find expected '-' indicator; look here and just below for wrong indentation, or a missing quote, comma or bracket"},
		{"c.yaml", "a: b: c\n", "c.yaml:1: not valid YAML: mapping values are not allowed in this context; mend the line, or the one before it"},
		{"c.yaml", "a: 1\nb: 2\nc: d: e\n", "c.yaml:3: not valid YAML: mapping values are not allowed in this context; mend the line, or the one before it"},
		{"c.yaml", "a: 1\n\tb: 2\n", "c.yaml:2: not valid YAML: found a tab character that violates indentation; mend the line, or the one before it"},
		{"c.yaml", "a: 1\nb: \"\xff\"\n", "c.yaml: not valid YAML: invalid leading UTF-8 octet; mend the line, or the one before it"},
		{"c.yaml", minimal + "---\na: 1\n", `c.yaml:4: a second document begins here; remove the line "---" and keep one document a file`},
		{"c.yaml", "a: 1\nb: *b\n", `c.yaml:2: a value begins with "*" and so stands for an anchor that the file does not have; put the value in quotes`},
		{"c.yaml", "a: &x [*x]\n", `c.yaml:1: nested too deep, or grown too large by its aliases; write it out with fewer aliases`},
		{"c.yaml", bomb(), `c.yaml:1: nested too deep, or grown too large by its aliases; write it out with fewer aliases`},
		{"c.toml", "a = 1\nb = \n", "c.toml:2: not valid TOML: toml: incomplete number; mend the line, or the one before it"},
		{"c.json", "{\n\"a\": 1,\n}", "c.json:3: not valid JSON: invalid character '}' looking for beginning of object key string; mend the line, or the one before it"},
		{"c.json", "{\n\"a\": 1", "c.json:2: not valid JSON: unexpected end of JSON input; mend the line, or the one before it"},
		{"c.json", "{}\n{}", "c.json:2: not valid JSON: invalid character '{' after top-level value; mend the line, or the one before it"},
		{"c.json", strings.Repeat("[", 100) + strings.Repeat("]", 100), "c.json:1: nested too deep"},
	} {
		if _, got := load(t, Loader{}, row.name, row.content); got != row.want {
			t.Errorf("%.40q:\ngot  %s\nwant %s", row.content, got, row.want)
		}
	}
}

// bomb doubles with each letter.
func bomb() string {
	b := "{a: &a [x]"
	for c := 'b'; c <= 'z'; c++ {
		b += ", " + string(c) + ": &" + string(c) + " [*" + string(c-1) + ", *" + string(c-1) + "]"
	}
	return b + "}"
}

func FuzzLoad(f *testing.F) {
	for _, content := range []string{minimal, minimalBroker, string(defaultFile), string(defaultBrokerFile), bomb(), "a: &x [*x]", "{<<: [{a: 1}], a: 2}", `{"a": [1, true, null]}`, "[[a.b]]\nc = {d.e = 1}\n", "listeners.x = 1\n[[listeners]]\n"} {
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content string) {
		for format, parse := range formats {
			c, err := Loader{SkipFiles: true}.load("c"+format, []byte(content), parse)
			if told(t, format, err) && (len(c.Listeners) == 0 || len(c.Pools) == 0 || len(c.Pools[0].Backends) == 0) {
				t.Fatalf("%s: accepted %+v", format, c)
			}
			b, err := BrokerLoader{SkipFiles: true}.load("b"+format, []byte(content), parse)
			if told(t, format, err) && (len(b.Listeners) == 0 || b.Data == "") {
				t.Fatalf("%s: accepted %+v", format, b)
			}
		}
	})
}

// told says that there is no error, and sees to it that one says what is wrong.
func told(t *testing.T, format string, err error) (fine bool) {
	if err == nil {
		return true
	}
	p, ok := err.(*Problems)
	if !ok || len(p.List) == 0 {
		t.Fatalf("%s: %T %v", format, err, err)
	}
	for _, one := range p.List {
		if one.File == "" || one.What == "" || strings.Contains(one.What, "decoded") {
			t.Fatalf("%s: %s", format, one)
		}
	}
	return false
}
