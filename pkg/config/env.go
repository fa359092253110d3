package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

const envPrefix = "MQTTLB_"

// envConfig names the file that the commands read; it is no key.
const envConfig = envPrefix + "CONFIG"

// variables lists the keys that the environment can set: the single values
// outside of lists, under MQTTLB_ and the path in capitals.
func variables(t reflect.Type, path []string) map[string][]string {
	vars := map[string][]string{}
	for _, f := range fieldsOf(t) {
		at := append(slices.Clone(path), f.key)
		switch f.typ.Kind() {
		case reflect.Slice, reflect.Pointer:
		case reflect.Struct:
			for name, keys := range variables(f.typ, at) {
				vars[name] = keys
			}
		default:
			vars[envPrefix+strings.ToUpper(strings.Join(at, "_"))] = at
		}
	}
	return vars
}

// fromCluster recognises the variables that Kubernetes sets in every pod
// beside a Service that is called mqttlb; they are not meant for us.
func fromCluster(name string) bool {
	rest := strings.TrimPrefix(name, envPrefix)
	return rest == "PORT" || strings.HasPrefix(rest, "PORT_") || strings.HasPrefix(rest, "SERVICE_")
}

// environment lays the variables over the file's tree and reports those that
// it does not know. An empty variable counts as not set.
func (c *checker) environment(root *node, environ []string) {
	vars := variables(reflect.TypeFor[Config](), nil)
	known := []string{envConfig}
	for name := range vars {
		known = append(known, name)
	}
	slices.Sort(known)
	for _, assignment := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(assignment, "=")
		if !strings.HasPrefix(name, envPrefix) || name == envConfig || value == "" || fromCluster(name) {
			continue
		}
		from := "environment variable " + name
		if keys, ok := vars[name]; ok {
			overlay(root, keys, &node{kind: text, text: value, from: from})
			continue
		}
		mend := "known are " + strings.Join(known, ", ")
		if near := nearest(name, known); near != "" {
			mend = fmt.Sprintf("did you mean %s?", near)
		}
		c.problems = append(c.problems, Problem{File: from, What: "unknown", Mend: mend})
	}
}

// overlay puts the value in place of what the file has for the key.
func overlay(at *node, keys []string, value *node) {
	for _, key := range keys[:len(keys)-1] {
		next := at.find(key)
		if next == nil {
			next = &node{kind: object, from: value.from}
			at.add(key, 0, next)
		}
		at = next
	}
	last := keys[len(keys)-1]
	for i := range at.entries {
		if at.entries[i].key == last {
			at.entries[i].line, at.entries[i].value = 0, value
			return
		}
	}
	at.add(last, 0, value)
}
