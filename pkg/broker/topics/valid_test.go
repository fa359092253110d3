package topics

import (
	"strings"
	"testing"
)

// wantError compares an error with a part of what it must say; "" for none.
func wantError(t *testing.T, what string, err error, part string) {
	t.Helper()
	switch {
	case part == "" && err != nil:
		t.Errorf("%s: %v, want no error", what, err)
	case part != "" && (err == nil || !strings.Contains(err.Error(), part)):
		t.Errorf("%s: %v, want an error with %q", what, err, part)
	}
}

func TestWhatMayBeANameOrAFilter(t *testing.T) {
	long := strings.Repeat("/", 65_535)
	for _, tc := range []struct {
		of, text     string
		name, filter string // parts of the errors; "" for valid
	}{
		{"one level", "sport", "", ""},
		{"several levels", "sport/tennis/player1", "", ""},
		{"a slash alone", "/", "", ""},
		{"empty levels", "a//b/", "", ""},
		{"spaces", "Accounts payable", "", ""},
		{"beyond ASCII", "température/é\U0001F321", "", ""},
		{"a system name", "$SYS/broker/load", "", ""},
		{"as long as can be", long, "", ""},
		{"nothing", "", "empty [MQTT-4.7.3-1]", "empty [MQTT-4.7.3-1]"},
		{"too long", long + "a", "65536 bytes, 65535 at most [MQTT-4.7.3-3]", "65536 bytes, 65535 at most [MQTT-4.7.3-3]"},
		{"not UTF-8", "a/\xff", "not UTF-8 [MQTT-1.5.4-1]", "not UTF-8 [MQTT-1.5.4-1]"},
		{"a surrogate", "a/\xed\xa0\x80", "not UTF-8 [MQTT-1.5.4-1]", "not UTF-8 [MQTT-1.5.4-1]"},
		{"U+0000", "a/b\x00", "U+0000 at byte 3 [MQTT-4.7.3-2]", "U+0000 at byte 3 [MQTT-4.7.3-2]"},

		{"# alone", "#", "'#' at byte 0 [MQTT-3.3.2-2]", ""},
		{"# as the last level", "sport/tennis/#", "'#' at byte 13", ""},
		{"# behind an empty level", "/#", "'#' at byte 1", ""},
		{"+ alone", "+", "'+' at byte 0 [MQTT-3.3.2-2]", ""},
		{"+ everywhere", "+/tennis/+/+", "'+' at byte 0", ""},
		{"+ before #", "+/#", "'+' at byte 0", ""},
		{"+ between empty levels", "/+/", "'+' at byte 1", ""},
		{"system filter", "$SYS/#", "'#' at byte 5", ""},

		{"# behind text", "sport/tennis#", "'#'", "'#' at byte 12, which is not a whole level [MQTT-4.7.1-1]"},
		{"# before text", "sport/#tennis", "'#'", "'#' at byte 6, which is not a whole level [MQTT-4.7.1-1]"},
		{"# not last", "sport/#/ranking", "'#'", "goes on behind the wildcard '#' at byte 6 [MQTT-4.7.1-1]"},
		{"# before an empty level", "#/", "'#'", "goes on behind the wildcard '#' at byte 0 [MQTT-4.7.1-1]"},
		{"# twice", "##", "'#'", "'#' at byte 0, which is not a whole level [MQTT-4.7.1-1]"},
		{"+ behind text", "sport+", "'+'", "'+' at byte 5, which is not a whole level [MQTT-4.7.1-2]"},
		{"+ before text", "sport/+tennis", "'+'", "'+' at byte 6, which is not a whole level [MQTT-4.7.1-2]"},
		{"+ twice", "++", "'+'", "'+' at byte 0, which is not a whole level [MQTT-4.7.1-2]"},
		{"+ and #", "+#", "'+'", "'+' at byte 0, which is not a whole level [MQTT-4.7.1-2]"},
	} {
		wantError(t, "name of "+tc.of, ValidName([]byte(tc.text)), tc.name)
		wantError(t, "filter of "+tc.of, ValidFilter([]byte(tc.text)), tc.filter)
	}
}

func TestSharedSubscriptionsAreTakenApart(t *testing.T) {
	for _, tc := range []struct {
		filter, group, rest string
		shared              bool
		err                 string
	}{
		{"$share/g/sport/+", "g", "sport/+", true, ""},
		{"$share/g/#", "g", "#", true, ""},
		{"$share/g//", "g", "/", true, ""},
		{"$share/workers 1/$SYS/#", "workers 1", "$SYS/#", true, ""},
		{"$share/g/$share/h/x", "g", "$share/h/x", true, ""},
		{"sport/+", "", "sport/+", false, ""},
		{"$share", "", "$share", false, ""},
		{"$shared/g/x", "", "$shared/g/x", false, ""},
		{"/$share/g/x", "", "/$share/g/x", false, ""},
		{"$SHARE/g/x", "", "$SHARE/g/x", false, ""},
		{"$share/", "", "", true, "names no group [MQTT-4.8.2-1]"},
		{"$share//x", "", "", true, "names no group [MQTT-4.8.2-1]"},
		{"$share/+/x", "", "", true, "group holds a wildcard [MQTT-4.8.2-2]"},
		{"$share/#", "", "", true, "group holds a wildcard [MQTT-4.8.2-2]"},
		{"$share/g", "", "", true, "no topic filter behind its group [MQTT-4.8.2-2]"},
		{"$share/g/", "", "", true, "no topic filter behind its group [MQTT-4.8.2-2]"},
	} {
		wantError(t, tc.filter+" as a filter", ValidFilter([]byte(tc.filter)), "")
		group, rest, shared, err := ParseShare(tc.filter)
		wantError(t, tc.filter, err, tc.err)
		if group != tc.group || rest != tc.rest || shared != tc.shared {
			t.Errorf("%s: group %q, rest %q, shared %v; want %q, %q, %v", tc.filter, group, rest, shared, tc.group, tc.rest, tc.shared)
		}
	}
}
