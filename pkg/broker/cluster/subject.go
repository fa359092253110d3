package cluster

import (
	"errors"
	"strings"
)

// A topic or key becomes the subject that the engine files it under: "/"
// becomes ".", so that levels stay levels, and what the engine gives a meaning
// of its own is written as "=" and two hexadecimal digits. An empty level,
// which a subject may not have, is a lone "=". Both ways are unambiguous:
// different topics have different subjects.
//
//	a/b.c//d  →  a.b=2Ec.=.d
//
// A subject is at most three times as long as its topic, and one byte more.

const hexDigits = "0123456789ABCDEF"

// plain says which bytes stand for themselves. Not spaces and control bytes,
// which end a subject (and 127 upsets the engine's subject tree), not the
// separator, the wildcards and the escape. Bytes of UTF-8 sequences do.
var plain = func() (t [256]bool) {
	for b := range t {
		t[b] = b > ' ' && b != 0x7f
	}
	for _, b := range []byte(".*>=/") {
		t[b] = false
	}
	return t
}()

// appendSubject appends the subject of a topic or key.
func appendSubject(dst []byte, topic string) []byte {
	level := 0 // bytes in this one
	for i := range len(topic) {
		switch b := topic[i]; {
		case b == '/':
			if level == 0 {
				dst = append(dst, '=')
			}
			dst = append(dst, '.')
			level = -1
		case plain[b]:
			dst = append(dst, b)
		default:
			dst = append(dst, '=', hexDigits[b>>4], hexDigits[b&15])
		}
		level++
	}
	if level == 0 {
		dst = append(dst, '=')
	}
	return dst
}

func subject(prefix, topic string) string {
	return string(appendSubject(append(make([]byte, 0, len(prefix)+len(topic)+16), prefix...), topic))
}

var errSubject = errors.New("not the subject of a topic")

// parseSubject is the way back.
func parseSubject(s string) (string, error) {
	var topic strings.Builder
	topic.Grow(len(s))
	for i, level := range strings.Split(s, ".") {
		if i > 0 {
			topic.WriteByte('/')
		}
		if level == "=" {
			continue
		}
		if level == "" {
			return "", errSubject
		}
		for j := 0; j < len(level); j++ {
			b := level[j]
			switch {
			case plain[b]:
			case b == '=' && j+2 < len(level):
				hi, lo := strings.IndexByte(hexDigits, level[j+1]), strings.IndexByte(hexDigits, level[j+2])
				if hi < 0 || lo < 0 || plain[hi<<4|lo] || hi<<4|lo == '/' {
					return "", errSubject
				}
				b = byte(hi<<4 | lo)
				j += 2
			default:
				return "", errSubject
			}
			topic.WriteByte(b)
		}
	}
	return topic.String(), nil
}
