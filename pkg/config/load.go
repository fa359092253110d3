package config

import (
	"bytes"
	"cmp"
	_ "embed"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"
)

//go:embed default.yaml
var defaultFile []byte

// DefaultName stands for a file name in problems of the built-in default.
const DefaultName = "built-in default"

// Loader reads configurations. The zero Loader sees no environment and checks
// that the files which a configuration names can be read.
type Loader struct {
	// Environ holds "NAME=value" as [os.Environ] gives it. MQTTLB_ variables
	// win over what the file says.
	Environ []string
	// SkipFiles leaves the named files alone.
	SkipFiles bool
	// Also looks for more problems, so that one run tells them all. It may be
	// given a configuration that has problems already: what is wrong is left
	// out or zero there. What it says of a key that has a problem, or of a pair
	// of cert and key half of which can't be read, is dropped.
	Also func(*Config) []Problem
}

// Load reads the file with the environment of the process. An empty path
// stands for the built-in default. The error is a [*Problems].
func Load(path string) (*Config, error) {
	return Loader{Environ: os.Environ()}.Load(path)
}

// Default is the configuration that counts where no file is given, untouched
// by the environment.
func Default() *Config {
	c, err := Loader{}.Load("")
	if err != nil {
		panic(err) // the file is part of the program, and a test loads it
	}
	return c
}

// formats are the file formats, by the ending of the name.
var formats = map[string]func([]byte) (*node, *syntaxError){
	".yaml": parseYAML, ".yml": parseYAML, ".toml": parseTOML, ".json": parseJSON,
}

// Load reads the file at path; see [Load].
func (l Loader) Load(path string) (*Config, error) {
	if path == "" {
		return l.load(DefaultName, defaultFile, parseYAML)
	}
	parse, ok := formats[strings.ToLower(filepath.Ext(path))]
	if !ok {
		return nil, &Problems{[]Problem{{File: path, What: "the name does not tell the format", Mend: "let it end in .yaml, .toml or .json"}}}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, &Problems{[]Problem{{File: path, What: "can't be read: " + reason(err), Mend: "name a file that mqttlb may read"}}}
	}
	return l.load(path, bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), parse)
}

func (l Loader) load(name string, data []byte, parse func([]byte) (*node, *syntaxError)) (*Config, error) {
	c := checker{
		source: source{file: name, places: map[string]place{}},
		dir:    filepath.Dir(name),
		bad:    map[string]bool{},
		lost:   map[string]bool{},
	}
	root, syntax := parse(data)
	switch {
	case syntax != nil:
		c.problems = []Problem{{File: name, Line: syntax.line, What: syntax.what, Mend: syntax.mend}}
		return nil, c.sorted()
	case root.kind == null:
		root.kind = object
	case root.kind != object:
		c.problems = []Problem{{File: name, Line: root.line, What: "is " + root.kind.String() + ", not a configuration", Mend: `begin with a key, e.g. "listeners:"`}}
		return nil, c.sorted()
	}
	c.environment(root, l.Environ)
	values := c.object(root, reflect.TypeFor[Config](), "")
	cfg, err := decode(values)
	if err != nil {
		c.problems = append(c.problems, Problem{File: name, What: "can't be decoded: " + err.Error()})
		return nil, c.sorted()
	}
	cfg.src = &c.source
	c.complete(cfg)
	c.checkRules(cfg)
	if !l.SkipFiles {
		c.checkFiles()
	}
	if l.Also != nil {
		for _, p := range l.Also(cfg) {
			c.report(p.Key, &fault{p.What, p.Mend})
		}
	}
	if len(c.problems) > 0 {
		return nil, c.sorted()
	}
	return cfg, nil
}

// decode fills the structs from values that the checker has found right. Viper
// would lower-case keys and split them at dots, hence the delimiter; the exact
// form fails on whatever the schema walk might have let through.
func decode(values map[string]any) (*Config, error) {
	v := viper.NewWithOptions(viper.KeyDelimiter("::"))
	if err := v.MergeConfigMap(values); err != nil {
		return nil, err
	}
	var cfg Config
	err := v.UnmarshalExact(&cfg, func(d *mapstructure.DecoderConfig) {
		d.TagName = "key"
		d.WeaklyTypedInput = false
		d.DecodeHook = mapstructure.ComposeDecodeHookFunc(
			mapstructure.StringToTimeDurationHookFunc(),
			mapstructure.StringToNetIPPrefixHookFunc(),
		)
	})
	return &cfg, err
}

// sorted gives the problems in the order of the file, those of the environment
// last.
func (c *checker) sorted() *Problems {
	slices.SortStableFunc(c.problems, func(a, b Problem) int {
		if (a.File == c.file) != (b.File == c.file) {
			if a.File == c.file {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Line, b.Line)
	})
	return &Problems{c.problems}
}
