package health

import (
	"testing"

	"pgregory.net/rapid"
)

func TestStreak(t *testing.T) {
	for _, tc := range []struct {
		name       string
		rise, fall int
		outcomes   string // + passes, - fails
		verdicts   string // after each: u up, d down, capital where it is new
	}{
		{"first pass decides", 2, 3, "+", "U"},
		{"first failure decides", 2, 3, "-", "D"},
		{"up until the third failure in a row", 2, 3, "+---", "UuuD"},
		{"a pass forgives the failures before it", 2, 3, "+--+--", "Uuuuuu"},
		{"down until the second pass in a row", 2, 3, "-++", "DdU"},
		{"a failure forgets the passes before it", 2, 3, "-+-+-++", "DdddddU"},
		{"the streak begins anew after a change", 2, 3, "+---++---", "UuuDdUuuD"},
		{"rise and fall of one follow each outcome", 1, 1, "+-+-", "UDUD"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s streak
			var got []byte
			for _, o := range tc.outcomes {
				changed := s.count(o == '+', tc.rise, tc.fall)
				v := byte('d')
				if s.up {
					v = 'u'
				}
				if changed {
					v -= 'a' - 'A'
				}
				got = append(got, v)
			}
			if string(got) != tc.verdicts {
				t.Fatalf("outcomes %s gave %s, want %s", tc.outcomes, got, tc.verdicts)
			}
		})
	}
}

// The verdict differs from the newest outcome only while fewer than rise or fall
// outcomes in a row have said otherwise, and that is when the streak is under way.
func TestStreakFollowsTheNewestRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rise, fall := rapid.IntRange(1, 5).Draw(t, "rise"), rapid.IntRange(1, 5).Draw(t, "fall")
		outcomes := rapid.SliceOfN(rapid.Bool(), 1, 60).Draw(t, "outcomes")
		var s streak
		if !s.underWay() {
			t.Fatal("nothing known is a reason to check fast")
		}
		run := 0
		for i, pass := range outcomes {
			before := s.up
			changed := s.count(pass, rise, fall)
			if i > 0 && pass == outcomes[i-1] {
				run++
			} else {
				run = 1
			}
			need := fall
			if pass {
				need = rise
			}
			if run >= need && s.up != pass {
				t.Fatalf("%d outcomes %v in a row and the verdict is %v", run, pass, s.up)
			}
			if s.underWay() != (s.up != pass) {
				t.Fatalf("under way %v, verdict %v, outcome %v", s.underWay(), s.up, pass)
			}
			if changed != (i == 0 || s.up != before) {
				t.Fatalf("changed %v, verdict %v then %v", changed, before, s.up)
			}
		}
	})
}
