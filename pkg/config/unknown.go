package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// fieldWords are what LoadMaster, other load balancers, mosquitto and NATS call our
// keys.
var fieldWords = map[string]string{
	"virtual_services":  "listeners",
	"virtual_service":   "listeners",
	"frontends":         "listeners",
	"real_servers":      "backends",
	"real_server":       "backends",
	"servers":           "backends",
	"scheduling_method": "balance",
	"persistence":       "hash_key",
	"real_server_check": "health",
	"health_check":      "health",

	"persistence_location":         "data",
	"persistent_client_expiration": "max_session_expiry",
	"max_queued_messages":          "max_queued",
	"max_inflight_messages":        "inflight",
	"message_size_limit":           "max_packet_size",
	"max_topic_alias":              "topic_alias_maximum",
	"require_certificate":          "verify",
	"cafile":                       "client_ca",
	"certfile":                     "cert",
	"keyfile":                      "key",

	"routes":   "join",
	"seeds":    "join",
	"peers":    "join",
	"replicas": "size",
}

// unknown reports a key of n that the schema does not have, with the one that
// was most likely meant. If that one is not there, its value counts as lost,
// so that nobody reports it missing as well.
func (c *checker) unknown(n *node, e entry, fields []field, path string) {
	shown, glued := showKey(e.key)
	keys := keysOf(fields)
	meant, mend := "", "known here are "+strings.Join(keys, ", ")
	group, sub := groupWith(e.key, fields)
	switch word, near := fieldWords[e.key], nearest(e.key, keys); {
	case glued:
		mend = "write a space after the colon"
	case slices.Contains(keys, word):
		meant, mend = word, fmt.Sprintf("it is called %q here", word)
	case near != "":
		meant, mend = near, fmt.Sprintf("did you mean %q?", near)
	case group != "":
		meant, mend = join(group, sub), fmt.Sprintf("it is %q below %q here", sub, group)
	}
	c.problems = append(c.problems, Problem{File: c.file, Line: e.line, Key: join(path, shown), What: "unknown key", Mend: mend})
	if meant == "" {
		return
	}
	there := n
	for _, part := range strings.Split(meant, ".") {
		if there = there.find(part); there == nil {
			c.lost[join(path, meant)] = true
			return
		}
	}
}

// groupWith looks for the key in the groups, and in the items of the lists,
// that the fields hold: attempts, or dial_attempts, is attempts in dial.
func groupWith(key string, fields []field) (group, sub string) {
	for _, f := range fields {
		t := f.typ
		if t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			continue
		}
		for _, k := range keysOf(fieldsOf(t)) {
			if key == k || key == f.key+"_"+k {
				return f.key, k
			}
		}
	}
	return "", ""
}

// showKey cuts what is shown of an unknown key: in {password:topsecret} YAML
// takes all of it for a key, for want of a space.
func showKey(key string) (shown string, glued bool) {
	key, _, glued = strings.Cut(key, ":")
	if glued {
		key += ":…"
	}
	return strings.Trim(quote(key), `"`), glued
}

// twice reports a key that is written again.
func (c *checker) twice(e entry, key string, first place) {
	what := "is written twice"
	if first.line > 0 {
		what += fmt.Sprintf(", first in line %d", first.line)
	}
	c.problems = append(c.problems, Problem{File: c.file, Line: e.line, Key: key, What: what, Mend: "keep one of them"})
}
