// Package pkg_test holds what is true of the whole house.
package pkg_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/mqttlb/mqttlb"

// Imports go down only. A package that is not listed may not be.
// "broker/*" is each folder below broker.
var floors = []struct {
	floor int
	pkg   string
	may   string // import these of ours
}{
	{0, "mqtt", ""},
	{0, "pp", ""},
	{0, "auth", ""},
	{0, "backend", ""},
	{0, "certs", ""},
	{0, "config", ""},
	{1, "listen", "mqtt pp"},
	{1, "affinity", "backend"},
	{1, "health", "backend mqtt pp"},
	{3, "broker/transfer", "broker broker/cluster broker/session"}, // before broker/*, which it is none of
	{1, "broker/*", "mqtt auth"},
	{2, "proxy", "listen affinity backend mqtt pp auth"},
	{2, "broker", "broker/session broker/topics broker/cluster broker/auth broker/bridge broker/integration listen mqtt pp"},
	{3, "admin", "proxy health affinity backend certs"},
	{3, "admin/brokeradmin", "admin broker"},
}

// Above the floors: cmd imports anything; what the commands share is theirs
// alone. The rig of e2e tries the binaries from outside, so it knows nothing of
// their inside. The load of benchmarks has to be faster than what it measures:
// it speaks MQTT with our own codec.
const (
	cmd    = "cmd/"
	shared = "cmd/internal/"
	e2e    = "e2e/"
	rig    = "e2e/rig"
	bench  = "e2e/bench"
	codec  = "pkg/mqtt"
)

// Each third-party name has few homes. A home ending in "/" is all below it.
var homes = []struct{ name, homes string }{
	{"github.com/spf13/viper", "pkg/config"},
	{"github.com/cespare/xxhash", "pkg/affinity"},
	{"github.com/pires/go-proxyproto", "pkg/pp"},
	{"github.com/nats-io", "pkg/broker/cluster pkg/broker/integration cmd/mqttlb"},
	{"github.com/eclipse/paho.mqtt.golang", "pkg/health pkg/broker/bridge e2e/"},
	{"github.com/eclipse/paho.golang", "pkg/health pkg/broker/bridge e2e/"},
	{"github.com/spf13/cobra", "cmd/"},
}

// judge says which rule an import breaks; "" for none. Tests may look around
// more freely, but commands are at the top for them too.
func judge(importer, imported string, test bool) string {
	ours, isOurs := strings.CutPrefix(imported, module+"/")
	switch {
	case isOurs && under(ours, shared) && under(importer, cmd):
		return ""
	case isOurs && under(ours, cmd) && importer != ours:
		return "nothing imports a command"
	case test || under(importer, cmd) && isOurs:
		return ""
	case isOurs:
		return judgeFloor(importer, ours)
	default:
		return judgeHome(importer, imported)
	}
}

func judgeFloor(importer, ours string) string {
	if under(importer, e2e) {
		if ours == rig || under(ours, rig+"/") || strings.HasPrefix(importer, bench) && ours == codec {
			return ""
		}
		return "e2e tries the binaries from outside: of ours it imports only " + rig
	}
	from, to := strings.TrimPrefix(importer, "pkg/"), strings.TrimPrefix(ours, "pkg/")
	for _, f := range floors {
		if !matches(f.pkg, from) {
			continue
		}
		if slices.ContainsFunc(strings.Fields(f.may), func(may string) bool { return matches(may, to) }) {
			return ""
		}
		if f.may == "" {
			return fmt.Sprintf("floor %d: %s imports none of ours", f.floor, f.pkg)
		}
		return fmt.Sprintf("floor %d: %s imports only %s of ours", f.floor, f.pkg, f.may)
	}
	return "has no floor: give it one in pkg/floors_test.go"
}

func judgeHome(importer, imported string) string {
	for _, h := range homes {
		if imported != h.name && !under(imported, h.name+"/") {
			continue
		}
		for home := range strings.FieldsSeq(h.homes) {
			if importer == home || strings.HasSuffix(home, "/") && under(importer, home) {
				return ""
			}
		}
		return h.name + " lives only in " + strings.Join(strings.Fields(h.homes), ", ")
	}
	return ""
}

// matches tells whether a name of the table, maybe "broker/*", is pkg's.
func matches(name, pkg string) bool {
	if parent, ok := strings.CutSuffix(name, "*"); ok {
		return under(pkg, parent)
	}
	return name == pkg
}

// under tells whether pkg is below dir, which ends in "/".
func under(pkg, dir string) bool { return strings.HasPrefix(pkg, dir) }

func TestImportsKeepToTheFloors(t *testing.T) {
	files := 0
	for file := range goFiles(t) {
		files++
		for _, imported := range imports(t, file) {
			importer := path.Dir(filepath.ToSlash(file))
			if rule := judge(importer, imported, strings.HasSuffix(file, "_test.go")); rule != "" {
				t.Errorf("%s imports %s\n\trule: %s", file, imported, rule)
			}
		}
	}
	if files == 0 {
		t.Fatal("no Go files found: the test looks in the wrong place")
	}
}

// goFiles are the module's Go files, with paths as seen from its root.
func goFiles(t *testing.T) func(yield func(string) bool) {
	const root = ".."
	return func(yield func(string) bool) {
		err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name := d.Name()
			if d.IsDir() && file != root && (name[0] == '.' || name[0] == '_' || name == "testdata") {
				return filepath.SkipDir
			}
			if d.IsDir() || filepath.Ext(name) != ".go" {
				return nil
			}
			rel, err := filepath.Rel(root, file)
			if err != nil {
				return err
			}
			if !yield(rel) {
				return filepath.SkipAll
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func imports(t *testing.T, file string) (paths []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", file), nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range f.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}
	return paths
}

// The rules are tried on imports that break them, or they could be blind.
func TestTheRulesSeeWhatBreaksThem(t *testing.T) {
	const test = true
	for _, tc := range []struct {
		importer, imported string
		test               bool
		want               string // a part of the rule; "" for a fine import
	}{
		{"pkg/mqtt", "fmt", !test, ""},
		{"pkg/mqtt", module + "/pkg/pp", !test, "mqtt imports none of ours"},
		{"pkg/listen", module + "/pkg/mqtt", !test, ""},
		{"pkg/listen", module + "/pkg/proxy", !test, "listen imports only mqtt pp"},
		{"pkg/proxy", module + "/pkg/health", !test, "proxy imports only"},
		{"pkg/proxy", module + "/pkg/certs", !test, "proxy imports only"},
		{"pkg/proxy", module + "/pkg/broker", !test, "proxy imports only"},
		{"pkg/proxy", module + "/pkg/config", !test, "proxy imports only"},
		{"pkg/proxy", module + "/pkg/config", test, ""},
		{"pkg/broker", module + "/pkg/proxy", !test, "broker imports only"},
		{"pkg/broker", module + "/pkg/broker/session", !test, ""},
		{"pkg/broker/session", module + "/pkg/mqtt", !test, ""},
		{"pkg/broker/session", module + "/pkg/broker/cluster", !test, "broker/* imports only"},
		{"pkg/broker/session", module + "/pkg/broker", !test, "broker/* imports only"},
		{"pkg/broker/transfer", module + "/pkg/broker", !test, ""},
		{"pkg/broker/transfer", module + "/pkg/config", !test, "broker/transfer imports only"},
		{"pkg/broker", module + "/pkg/broker/transfer", !test, "broker imports only"},
		{"pkg/admin", module + "/pkg/broker", !test, "admin imports only"},
		{"pkg/admin/brokeradmin", module + "/pkg/broker", !test, ""},
		{"pkg/admin/brokeradmin", module + "/pkg/broker/session", !test, "admin/brokeradmin imports only"},
		{"pkg/other", module + "/pkg/mqtt", !test, "no floor"},
		{"cmd/mqttlb", module + "/pkg/config", !test, ""},
		{"cmd/broker", module + "/cmd/mqttlb", !test, "nothing imports a command"},
		{"cmd/broker", module + "/cmd/internal/command", !test, ""},
		{"pkg/admin", module + "/cmd/internal/command", !test, "nothing imports a command"},
		{"pkg/admin", module + "/cmd/mqttlb", test, "nothing imports a command"},
		{"e2e/run", module + "/e2e/rig", !test, ""},
		{"e2e/rig/rigtest", module + "/e2e/rig", !test, ""},
		{"e2e/rig", module + "/pkg/mqtt", !test, "from outside"},
		{"e2e/benchbroker", module + "/pkg/mqtt", !test, ""},
		{"e2e/benchbroker", module + "/pkg/broker", !test, "from outside"},
		{"pkg/config", "github.com/spf13/viper", !test, ""},
		{"cmd/mqttlb", "github.com/spf13/viper", !test, "lives only in pkg/config"},
		{"pkg/proxy", "github.com/cespare/xxhash/v2", !test, "lives only in pkg/affinity"},
		{"pkg/listen", "github.com/pires/go-proxyproto", !test, "lives only in pkg/pp"},
		{"pkg/broker", "github.com/nats-io/nats.go/jetstream", !test, "lives only in pkg/broker/cluster"},
		{"cmd/mqttlb", "github.com/nats-io/nats.go", !test, ""},
		{"pkg/proxy", "github.com/eclipse/paho.golang/paho", !test, "lives only in pkg/health"},
		{"e2e/rig", "github.com/eclipse/paho.mqtt.golang", !test, ""},
		{"pkg/proxy", "github.com/eclipse/paho.golang/paho", test, ""},
	} {
		got := judge(tc.importer, tc.imported, tc.test)
		if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s imports %s (test %v): rule %q, want %q", tc.importer, tc.imported, tc.test, got, tc.want)
		}
	}
}
