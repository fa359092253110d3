package topics

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"
)

// maxLength is of a name or filter, in bytes [MQTT-4.7.3-3].
const maxLength = 1<<16 - 1

// ValidName says what keeps b from being a Topic Name: it is text that holds no
// wildcard.
func ValidName(b []byte) error {
	if err := validText("topic name", b); err != nil {
		return err
	}
	if i := bytes.IndexAny(b, "+#"); i >= 0 {
		return fmt.Errorf("topic name holds the wildcard %q at byte %d [MQTT-3.3.2-2]", b[i], i)
	}
	return nil
}

// ValidFilter says what keeps b from being a Topic Filter: it is text in which
// each wildcard is a whole level, and # is the last. A shared subscription's
// filter has more rules; see [ParseShare].
func ValidFilter(b []byte) error {
	if err := validText("topic filter", b); err != nil {
		return err
	}
	for i, c := range b {
		if c != singleLevel[0] && c != multiLevel[0] {
			continue
		}
		last := i == len(b)-1
		if i > 0 && b[i-1] != separator || !last && b[i+1] != separator {
			return fmt.Errorf("topic filter holds the wildcard %q at byte %d, which is not a whole level %s", c, i, clause(c))
		}
		if c == multiLevel[0] && !last {
			return fmt.Errorf("topic filter goes on behind the wildcard '#' at byte %d %s", i, clause(c))
		}
	}
	return nil
}

// clause is the rule for a wildcard. Clauses are those of 5.0; 3.1.1 has these
// two as [MQTT-4.7.1-3] and [MQTT-4.7.1-2].
func clause(wildcard byte) string {
	if wildcard == singleLevel[0] {
		return "[MQTT-4.7.1-2]"
	}
	return "[MQTT-4.7.1-1]"
}

// validText holds the rules that names and filters share (5 §4.7.3).
func validText(what string, b []byte) error {
	switch {
	case len(b) == 0:
		return errors.New(what + " is empty [MQTT-4.7.3-1]")
	case len(b) > maxLength:
		return fmt.Errorf("%s has %d bytes, %d at most [MQTT-4.7.3-3]", what, len(b), maxLength)
	case !utf8.Valid(b):
		return errors.New(what + " is not UTF-8 [MQTT-1.5.4-1]")
	}
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return fmt.Errorf("%s holds U+0000 at byte %d [MQTT-4.7.3-2]", what, i)
	}
	return nil
}
