package topics

import (
	"slices"
	"testing"
)

// What each filter matches among all names of the table.
var matches = []struct {
	filter string
	names  []string
}{
	// The examples of 5 §4.7.1.
	{"sport/tennis/player1/#", []string{"sport/tennis/player1", "sport/tennis/player1/ranking", "sport/tennis/player1/score/wimbledon"}},
	{"sport/tennis/+", []string{"sport/tennis/player1", "sport/tennis/player2"}},
	{"sport/+", []string{"sport/"}},
	{"+/tennis/#", []string{"sport/tennis/player1", "sport/tennis/player1/ranking", "sport/tennis/player1/score/wimbledon", "sport/tennis/player2"}},
	{"+/monitor/Clients", []string{"any/monitor/Clients"}},
	{"+/+", []string{"sport/", "/sport", "/finance", "/", "a/$x"}},
	{"/+", []string{"/sport", "/finance", "/"}},
	{"+", []string{"sport", "ACCOUNTS", "Accounts"}},
	{"ACCOUNTS", []string{"ACCOUNTS"}},

	// C024: what begins with a wildcard does not see what begins with $.
	{"#", notSystem},
	{"+/#", notSystem},
	{"+/broker/#", nil},
	{"+/broker/x", nil},
	{"+/x", nil},
	{"$SYS/#", []string{"$SYS", "$SYS/broker/x", "$SYS/monitor/Clients"}},
	{"$SYS/+/x", []string{"$SYS/broker/x"}},
	{"$SYS/monitor/+", []string{"$SYS/monitor/Clients"}},
	{"$internal/x", []string{"$internal/x"}},
	{"a/+", []string{"a/$x"}},
	{"a/#", []string{"a//b", "a/$x"}},
	{"sport/#", []string{"sport", "sport/", "sport/tennis/player1", "sport/tennis/player1/ranking", "sport/tennis/player1/score/wimbledon", "sport/tennis/player2"}},
	{"a/+/b", []string{"a//b"}},

	// Empty levels are levels.
	{"/", []string{"/"}},
	{"/#", []string{"/sport", "/finance", "/"}},
	{"sport/", []string{"sport/"}},
	{"+/", []string{"sport/", "/"}},
	{"a//#", []string{"a//b"}},
	{"a/+/+", []string{"a//b"}},
	{"+/+/+/#", []string{"sport/tennis/player1", "sport/tennis/player1/ranking", "sport/tennis/player1/score/wimbledon", "sport/tennis/player2", "any/monitor/Clients", "a//b"}},

	// A level is whole or nothing.
	{"spor", nil},
	{"sports", nil},
	{"sport/tennis/player", nil},
	{"sport/tennis/player1/ranking/x", nil},
}

var notSystem = []string{
	"sport", "sport/", "/sport", "/finance", "/", "ACCOUNTS", "Accounts", "a//b", "a/$x", "any/monitor/Clients",
	"sport/tennis/player1", "sport/tennis/player1/ranking", "sport/tennis/player1/score/wimbledon", "sport/tennis/player2",
}

var names = append([]string{"$SYS", "$SYS/broker/x", "$SYS/monitor/Clients", "$internal/x"}, notSystem...)

func TestFiltersMatchAsTheSpecificationSays(t *testing.T) {
	for _, tc := range matches {
		for _, name := range names {
			want := slices.Contains(tc.names, name)
			if got := Match(tc.filter, name); got != want {
				t.Errorf("%s and %s: %v, want %v", tc.filter, name, got, want)
			}
		}
	}
}

// All filters at once and each alone: they share nodes in the first case, and
// have long labels in the second.
func TestTheTreeMatchesAsTheSpecificationSays(t *testing.T) {
	var all Tree[string, struct{}]
	for _, tc := range matches {
		all.Subscribe(tc.filter, tc.filter, struct{}{})
	}
	for _, name := range names {
		var want []string
		for _, tc := range matches {
			matched := slices.Contains(tc.names, name)
			if matched {
				want = append(want, tc.filter)
			}
			var one Tree[string, struct{}]
			one.Subscribe(tc.filter, tc.filter, struct{}{})
			if got := len(matching(&one, name)) == 1; got != matched {
				t.Errorf("%s alone, and %s: %v, want %v", tc.filter, name, got, matched)
			}
		}
		slices.Sort(want)
		if got := matching(&all, name); !slices.Equal(got, want) {
			t.Errorf("%s: matched by %q, want %q", name, got, want)
		}
	}
}

// matching gives the subscribers whose filters match name, sorted.
func matching[O any](tree *Tree[string, O], name string) (who []string) {
	tree.Match([]byte(name), func(s string, _ O) { who = append(who, s) })
	slices.Sort(who)
	return who
}

// Retained messages come by the same rules, C024's among them.
func TestTheIndexMatchesAsTheSpecificationSays(t *testing.T) {
	var all Index
	for _, name := range names {
		all.Set(name)
	}
	for _, tc := range matches {
		want := slices.Sorted(slices.Values(tc.names))
		if got := found(&all, tc.filter); !slices.Equal(got, want) {
			t.Errorf("%s: found %q, want %q", tc.filter, got, want)
		}
		for _, name := range names {
			var one Index
			one.Set(name)
			if got, want := len(found(&one, tc.filter)) == 1, slices.Contains(want, name); got != want {
				t.Errorf("%s, and %s alone: %v, want %v", tc.filter, name, got, want)
			}
		}
	}
}

// found gives the names that filter matches, sorted.
func found(x *Index, filter string) (names []string) {
	x.Match(filter, func(name string) bool {
		names = append(names, name)
		return true
	})
	slices.Sort(names)
	return names
}

// C024's shared subscriptions follow the rule by what stands behind the group.
func TestSharedFiltersDoNotLeakSystemNames(t *testing.T) {
	var groups Tree[string, struct{}]
	for _, filter := range []string{"$share/g/#", "$share/h/+/x", "$share/i/$SYS/#"} {
		group, rest, _, err := ParseShare(filter)
		if err != nil {
			t.Fatal(err)
		}
		groups.Subscribe(rest, group, struct{}{})
	}
	for name, want := range map[string][]string{
		"$SYS/x":      {"i"},
		"$internal/x": nil,
		"sport/x":     {"g", "h"},
		"/sport":      {"g"},
	} {
		if got := matching(&groups, name); !slices.Equal(got, want) {
			t.Errorf("%s: groups %q, want %q", name, got, want)
		}
	}
}
