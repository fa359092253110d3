package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNamedFilesMustBeReadable(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good.pem")
	for path, mode := range map[string]os.FileMode{good: 0o600, filepath.Join(dir, "locked.pem"): 0} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct{ path, want string }{
		{good, ""},
		{filepath.Join(dir, "absent.pem"), "does not exist"},
		{dir, "is a folder"},
		{filepath.Join(good, "x"), "can't be read: not a directory"},
		{filepath.Join(dir, "locked.pem"), "can't be read: permission denied"},
	} {
		if strings.Contains(row.want, "permission") && os.Geteuid() == 0 {
			continue // root reads everything
		}
		fault := unreadable(row.path, "mqttlb")
		switch {
		case fault == nil && row.want != "", fault != nil && row.want == "":
			t.Errorf("%s: got %v, want %q", row.path, fault, row.want)
		case fault != nil && (!strings.Contains(fault.what, row.want) || fault.mend == ""):
			t.Errorf("%s: got %+v, want %q", row.path, fault, row.want)
		}
	}
}

func TestEveryKeyThatNamesAFileIsChecked(t *testing.T) {
	_, got := load(t, Loader{}, "c.yaml", lines(
		`listeners:`,
		`  - name: l`,
		`    address: ":1"`,
		`    pool: p`,
		`    tls:`,
		`      mode: terminate`,
		`      certificates:`,
		`        - cert: a.crt`,
		`          key: a.key`,
		`      verify: required`,
		`      client_ca: ca.crt`,
		`pools:`,
		`  - name: p`,
		`    tls:`,
		`      ca: b.ca`,
		`      cert: b.crt`,
		`      key: b.key`,
		`    backends: [{name: b1, address: "b:1"}]`))
	var places []string
	for line := range strings.Lines(got) {
		place, _, _ := strings.Cut(line, ` "`)
		places = append(places, place)
	}
	want := `c.yaml:8: listeners[0].tls.certificates[0].cert:
c.yaml:9: listeners[0].tls.certificates[0].key:
c.yaml:11: listeners[0].tls.client_ca:
c.yaml:15: pools[0].tls.ca:
c.yaml:16: pools[0].tls.cert:
c.yaml:17: pools[0].tls.key:`
	if strings.Join(places, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestHalfAPairIsToldOnce(t *testing.T) {
	l := Loader{Also: func(c *Config) []Problem {
		return []Problem{
			c.Problem("listeners[0].tls.certificates[0].cert", "its key can't be read", ""),
			c.Problem("listeners[0].tls.certificates[1].cert", "is no certificate", ""),
		}
	}}
	_, got := load(t, l, "c.yaml", with("listeners[0]", "tls: {mode: terminate, certificates: [{cert: c.yaml, key: absent}, {cert: c.yaml, key: c.yaml}]}"))
	if strings.Count(got, "\n") != 1 || !strings.Contains(got, "[0].key: ") || !strings.Contains(got, "[1].cert: is no certificate") {
		t.Errorf("got\n%s", got)
	}
}
