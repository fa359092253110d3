package config

import "strings"

// source knows where in the file each key stands.
type source struct {
	file   string
	places map[string]place
}

type place struct {
	from string // where, if not in the file
	line int
}

// problem puts a problem at the key's place or, for a key that is not there,
// at that of the group it belongs in.
func (s *source) problem(key, what, mend string) Problem {
	p := Problem{File: s.file, Key: key, What: what, Mend: mend}
	for k := key; k != ""; k = parent(k) {
		if at, ok := s.places[k]; ok {
			p.Line = at.line
			if at.from != "" {
				p.File = at.from
			}
			break
		}
	}
	return p
}

// given says whether the key is written, rather than a default.
func (s *source) given(key string) bool {
	_, ok := s.places[key]
	return ok
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// parent is the group or the list that the key is in.
func parent(key string) string {
	return key[:max(0, strings.LastIndexAny(key, ".["))]
}
