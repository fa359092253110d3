package config

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"
)

// DefaultName stands for a file name in problems of the built-in default.
const DefaultName = "built-in default"

type (
	// Loader reads configurations of mqttlb.
	Loader = LoaderOf[Config, *Config]
	// BrokerLoader reads configurations of the broker.
	BrokerLoader = LoaderOf[Broker, *Broker]
)

// LoaderOf reads configurations of the kind C. The zero value sees no
// environment and checks that the files which a configuration names can be
// read.
type LoaderOf[C any, P schema[C]] struct {
	// Environ holds "NAME=value" as [os.Environ] gives it. MQTTLB_ variables,
	// or MQTTLB_BROKER_ ones for the broker, win over what the file says.
	Environ []string
	// Overrides win over both.
	Overrides []Override
	// SkipFiles leaves the named files alone.
	SkipFiles bool
	// Also looks for more problems, so that one run tells them all. It may be
	// given a configuration that has problems already: what is wrong is left
	// out or zero there. What it says of a key that has a problem, or of a pair
	// of cert and key half of which can't be read, is dropped.
	Also func(*C) []Problem
}

// Load reads a configuration of mqttlb with the environment of the process. An
// empty path stands for the built-in default. The error is a [*Problems].
func Load(path string) (*Config, error) {
	return Loader{Environ: os.Environ()}.Load(path)
}

// LoadBroker reads a configuration of the broker; see [Load].
func LoadBroker(path string) (*Broker, error) {
	return BrokerLoader{Environ: os.Environ()}.Load(path)
}

// Default is what mqttlb does where no file is given, untouched by the
// environment.
func Default() *Config { return builtin[Config]() }

// DefaultBroker is what the broker does where no file is given, untouched by
// the environment.
func DefaultBroker() *Broker { return builtin[Broker]() }

func builtin[C any, P schema[C]]() *C {
	c, err := LoaderOf[C, P]{}.Load("")
	if err != nil {
		panic(err) // the file is part of the program, and a test loads it
	}
	return c
}

// formats are the file formats, by the ending of the name.
var formats = map[string]func([]byte) (*node, *syntaxError){
	".yaml": parseYAML, ".yml": parseYAML, ".toml": parseTOML, ".json": parseJSON,
}

// Load reads the file at path; an empty path stands for the built-in default.
// The error is a [*Problems].
func (l LoaderOf[C, P]) Load(path string) (*C, error) {
	prog := P(nil).program()
	if path == "" {
		return l.load(DefaultName, prog.builtin, parseYAML)
	}
	parse, ok := formats[strings.ToLower(filepath.Ext(path))]
	if !ok {
		return nil, &Problems{[]Problem{{File: path, What: "the name does not tell the format", Mend: "let it end in .yaml, .toml or .json"}}}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, &Problems{[]Problem{{File: path, What: "can't be read: " + reason(err), Mend: "name a file that " + prog.name + " may read"}}}
	}
	return l.load(path, bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), parse)
}

func (l LoaderOf[C, P]) load(name string, data []byte, parse func([]byte) (*node, *syntaxError)) (*C, error) {
	c := checker{
		source:  source{file: name, places: map[string]place{}},
		program: P(nil).program(),
		dir:     filepath.Dir(name),
		bad:     map[string]bool{},
		lost:    map[string]bool{},
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
	c.environment(root, reflect.TypeFor[C](), l.Environ)
	for _, o := range l.Overrides {
		o.lay(root)
	}
	values := c.object(root, reflect.TypeFor[C](), "")
	cfg, err := decode[C](values)
	if err != nil {
		c.problems = append(c.problems, Problem{File: name, What: "can't be decoded: " + err.Error()})
		return nil, c.sorted()
	}
	P(cfg).locate(&c.source)
	P(cfg).complete(&c)
	P(cfg).rules(&c)
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
func decode[C any](values map[string]any) (*C, error) {
	v := viper.NewWithOptions(viper.KeyDelimiter("::"))
	if err := v.MergeConfigMap(values); err != nil {
		return nil, err
	}
	var cfg C
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
