package topics

import "strings"

// A path is a Topic Name, a Topic Filter or a piece of one: levels with '/'
// between them. A level may be empty: "/" has two, "" has one (5 §4.7.1.1).
//
// A place in a path is the index at which a level begins. Behind the last
// level it is len(path)+1: at len(path), "a/" has an empty level to come.

const (
	separator   = '/'
	singleLevel = "+"
	multiLevel  = "#"
)

// levelEnd is where the level that begins at place ends.
func levelEnd(path string, place int) int {
	for place < len(path) && path[place] != separator {
		place++
	}
	return place
}

// level is the one that begins at place.
func level(path string, place int) string { return path[place:levelEnd(path, place)] }

// ended tells whether path has no level at place.
func ended(path string, place int) bool { return place > len(path) }

// leads tells whether path begins with all levels of beginning: "a/b" leads
// "a/b" and "a/b/c", and not "a/bc".
func leads(beginning, path string) bool {
	return strings.HasPrefix(path, beginning) && (len(path) == len(beginning) || path[len(beginning)] == separator)
}

// common is how long the beginning is, in whole levels, that a and b have in
// common: 3 for "a/b" and "a/b/c", 1 for "a/b" and "a/bc". Their first level
// is the same.
func common(a, b string) int {
	whole := 0
	for i := 0; ; i++ {
		aEnds, bEnds := i == len(a), i == len(b)
		if (aEnds || a[i] == separator) && (bEnds || b[i] == separator) {
			whole = i
		}
		if aEnds || bEnds || a[i] != b[i] {
			return whole
		}
	}
}

// isSystem tells whether a name begins with '$'. A filter that begins with a
// wildcard does not match it [MQTT-4.7.2-1].
func isSystem(name string) bool { return name != "" && name[0] == '$' }
