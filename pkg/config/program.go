package config

// program is what the configuration of one binary has of its own.
type program struct {
	name     string // in messages
	prefix   string // of its environment variables
	reserved string // of those below prefix that are another program's; empty for none
	builtin  []byte // what counts without a file, in YAML
}

// schema is a configuration as the machinery of this package sees it. The
// fields and their tags are the schema proper; these are the rules beyond.
type schema[C any] interface {
	*C
	program() program
	// complete fills in the defaults that hang on other keys.
	complete(*checker)
	// rules reports what is wrong between keys; each on its own is right.
	rules(*checker)
	// locate keeps where each key stands, for problems that show up later.
	locate(*source)
}
