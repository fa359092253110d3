package main

import (
	"slices"
	"testing"
)

func TestTargetsAreReadFromTheList(t *testing.T) {
	got := parseList(`FuzzParse
FuzzScanner
ok  	example.com/pkg/mqtt	0.010s
?   	example.com/pkg/none	[no test files]
ok  	example.com/pkg/tests-only	0.009s
FuzzParse
ok  	example.com/pkg/pp	0.010s
`)
	want := []target{
		{"example.com/pkg/mqtt", "FuzzParse"},
		{"example.com/pkg/mqtt", "FuzzScanner"},
		{"example.com/pkg/pp", "FuzzParse"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("targets %v, want %v", got, want)
	}
}

// A CI run failed with nothing found: the fuzzer's own end was taken for a
// failure. A finding must still be one.
func TestTheEndOfTimeAloneIsNoFailure(t *testing.T) {
	for _, tc := range []struct {
		name, out string
		want      bool
	}{
		{"the end of time", `fuzz: elapsed: 10s, execs: 4096 (0/sec), new interesting: 3 (total: 9)
--- FAIL: FuzzParse (10.05s)
    context deadline exceeded
FAIL
exit status 1
FAIL	example.com/pkg/pp	10.060s
`, true},
		{"a finding", `--- FAIL: FuzzParse (0.04s)
    --- FAIL: FuzzParse (0.00s)
        fuzz_test.go:9: context deadline exceeded

    Failing input written to testdata/fuzz/FuzzParse/0123456789abcdef
    To re-run:
    go test -run=FuzzParse/0123456789abcdef
FAIL
exit status 1
`, false},
		{"a seed that fails", `--- FAIL: FuzzParse (0.00s)
    --- FAIL: FuzzParse/seed#0 (0.00s)
        fuzz_test.go:9: context deadline exceeded
FAIL
`, false},
		{"a build that fails", "FAIL	example.com/pkg/pp [build failed]\nFAIL\n", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := deadlineOnly("FuzzParse", tc.out); got != tc.want {
				t.Errorf("deadlineOnly %v, want %v", got, tc.want)
			}
		})
	}
}
