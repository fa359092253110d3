package config

// node is one value of a file, whatever the file's format. Unlike a decoded
// map it knows its line, keeps keys that are written twice, and has scalars as
// they were written.
type node struct {
	kind    kind
	line    int
	from    string  // where it was written, if not in the file
	text    string  // of a scalar, without quotes
	entries []entry // of an object, in the order of the file
	items   []*node // of a list
}

type entry struct {
	key   string
	line  int
	value *node
}

type kind int

const (
	null kind = iota
	object
	list
	text
	integer
	float
	boolean
	other // dates and tagged values, which no key takes
)

// String names the kind in the words that fit every format.
func (k kind) String() string {
	return [...]string{"nothing", "a group of keys", "a list", "text", "a whole number", "a number with a fraction", "true or false", "a date or a tagged value"}[k]
}

func (k kind) scalar() bool { return k >= text }

// maxDepth and maxNodes bound what a file may unfold to; YAML aliases can make
// a small file a very large one, or one without end.
const (
	maxDepth = 64
	maxNodes = 1 << 16
)

// syntaxError is why a file could not be read as its format. The text must
// hold nothing of the file's values, which may be secret.
type syntaxError struct {
	line       int // 0 if unknown
	what, mend string
}

// find gives the first value under the key, or nil.
func (n *node) find(key string) *node {
	for i := range n.entries {
		if n.entries[i].key == key {
			return n.entries[i].value
		}
	}
	return nil
}

func (n *node) add(key string, line int, value *node) {
	n.entries = append(n.entries, entry{key, line, value})
}
