package cluster

import (
	"strings"
	"testing"
)

func TestSubjectsOfTopics(t *testing.T) {
	for _, tc := range []struct{ topic, want string }{
		{"a", "a"},
		{"a/b/c", "a.b.c"},
		{"", "="},
		{"/", "=.="},
		{"a//b/", "a.=.b.="},
		{"a.b", "a=2Eb"},
		{"*", "=2A"},
		{"a/>", "a.=3E"},
		{"=", "=3D"},
		{"=/=2E", "=3D.=3D2E"},
		{"two words", "two=20words"},
		{"\x00\t\r\n\x7f", "=00=09=0D=0A=7F"},
		{"$SYS/broker", "$SYS.broker"},
		{"größe/日本", "größe.日本"},
		{"+/#", "+.#"}, // no topic has them, and the engine gives them no meaning
	} {
		if got := subject("", tc.topic); got != tc.want {
			t.Errorf("%q: subject %q, want %q", tc.topic, got, tc.want)
		}
		if got, err := parseSubject(tc.want); err != nil || got != tc.topic {
			t.Errorf("%q: topic %q, %v, want %q", tc.want, got, err, tc.topic)
		}
	}
}

func TestWhatIsNoSubject(t *testing.T) {
	for _, s := range []string{"", ".", "a.", ".a", "a..b", "a b", "*", "a.>", "=2", "=2e", "=41", "a=", "=ZZ", "=2F", "==", "a/b"} {
		if got, err := parseSubject(s); err == nil {
			t.Errorf("%q: topic %q", s, got)
		}
	}
}

// Different topics have different subjects, since each subject leads back to
// its topic; and the engine takes each for one subject of whole tokens.
func FuzzSubject(f *testing.F) {
	for _, name := range oddNames {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, topic string) {
		s := subject("", topic)
		back, err := parseSubject(s)
		if err != nil || back != topic {
			t.Fatalf("%q → %q → %q, %v", topic, s, back, err)
		}
		if len(s) > 3*len(topic)+1 {
			t.Errorf("%d bytes of %d", len(s), len(topic))
		}
		for token := range strings.SplitSeq(s, ".") {
			if token == "" || token == "*" || token == ">" {
				t.Errorf("%q: token %q", s, token)
			}
		}
		for i := range len(s) {
			if s[i] <= ' ' || s[i] == 0x7f {
				t.Errorf("%q: byte %#x", s, s[i])
			}
		}
		if n := strings.Count(s, "."); n != strings.Count(topic, "/") {
			t.Errorf("%q has %d dots", s, n)
		}
	})
}

// There is one way only to write a subject.
func FuzzParseSubject(f *testing.F) {
	for _, s := range []string{"a.b", "=", "=.=2E", "=41", "a..b", "=2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		topic, err := parseSubject(s)
		if err != nil {
			return
		}
		if again := subject("", topic); again != s {
			t.Errorf("%q is %q, whose subject is %q", s, topic, again)
		}
	})
}

func TestTopicsAreSpreadOverShards(t *testing.T) {
	const shards, n = 4, 40_000
	for _, scheme := range []string{"site/%/temperature", "device%", "%", "a/b/c/%/state"} {
		var count [shards]int
		for i := range n {
			topic := strings.ReplaceAll(scheme, "%", itoa(i))
			shard := shardOf(topic, shards)
			if shardOf(topic, shards) != shard || shardOf(topic, 1) != 0 {
				t.Fatal("a topic moves")
			}
			count[shard]++
		}
		for shard, c := range count {
			if c < n/shards*95/100 || c > n/shards*105/100 {
				t.Errorf("%s: shard %d has %d topics of %d", scheme, shard, c, n)
			}
		}
	}
	// The places that are on disks.
	for topic, want := range map[string]int{"": 0, "a": 0, "site/1/temperature": 0, "日本/語": 3, "x/y": 3} {
		if got := shardOf(topic, shards); got != want {
			t.Errorf("%q is in shard %d, was in %d", topic, got, want)
		}
	}
}
