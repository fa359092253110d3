package mqtt

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// maxField is the most bytes a string or binary field can hold: its length is
// an unsigned 16-bit number (§1.5.3; 5 §1.5.4, §1.5.6).
const maxField = 1<<16 - 1

// textFault checks a UTF-8 encoded string, or with whole false the beginning
// of one. It must be well-formed, surrogates excluded [MQTT-1.5.4-1] (3.1.1
// [MQTT-1.5.3-1]), and hold no U+0000 [MQTT-1.5.4-2]. Control characters and
// non-characters are discouraged, not forbidden, and pass.
func textFault(what string, s []byte, whole bool) *fault {
	if i := bytes.IndexByte(s, 0); i >= 0 {
		return malformed("%s holds U+0000 at byte %d [MQTT-1.5.4-2]", what, i)
	}
	if utf8.Valid(s) {
		return nil
	}
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRune(s[i:])
		if r == utf8.RuneError && n <= 1 {
			if !whole && !utf8.FullRune(s[i:]) {
				return nil
			}
			return malformed("%s is not UTF-8 at byte %d [MQTT-1.5.4-1]", what, i)
		}
		i += n
	}
	return nil
}

// topicFault checks a Topic Name as far as it has come: text that holds no
// wildcards [MQTT-3.3.2-2], [MQTT-3.3.2-14].
func topicFault(what string, s []byte, whole bool) *fault {
	if f := textFault(what, s, whole); f != nil {
		return f
	}
	if bytes.IndexByte(s, '+') < 0 && bytes.IndexByte(s, '#') < 0 { // far cheaper than IndexAny
		return nil
	}
	i := bytes.IndexAny(s, "+#")
	return protocolError("%s holds the wildcard %q at byte %d [MQTT-3.3.2-2]", what, s[i], i)
}

// validText says whether s may be sent as a UTF-8 encoded string.
func validText(s string) bool {
	return len(s) <= maxField && utf8.ValidString(s) && strings.IndexByte(s, 0) < 0
}

// appendField appends a string or binary field with its length before it.
func appendField[T string | []byte](dst []byte, f T) []byte {
	if len(f) > maxField {
		panic("mqtt: field is longer than 65,535 bytes")
	}
	dst = append(dst, byte(len(f)>>8), byte(len(f)))
	return append(dst, f...)
}
