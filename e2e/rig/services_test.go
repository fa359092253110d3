package rig

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestServicesAreHeldAndThePolicyComesBack(t *testing.T) {
	old := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	for _, tc := range []struct {
		name  string
		setUp func(t *testing.T, path string)
		check func(t *testing.T, path string)
	}{
		{
			name:  "none before, none after",
			setUp: func(*testing.T, string) {},
			check: wantNothing,
		},
		{
			name: "one before: bytes, mode and time as they were",
			setUp: func(t *testing.T, path string) {
				write(t, path, "#!/bin/sh\nexit 104\x00 not even text", 0o741)
				if err := os.Chtimes(path, old, old); err != nil {
					t.Fatal(err)
				}
			},
			check: func(t *testing.T, path string) {
				want(t, path, "#!/bin/sh\nexit 104\x00 not even text", 0o741)
				if s, _ := os.Stat(path); !s.ModTime().Equal(old) {
					t.Errorf("modified at %v, was %v", s.ModTime(), old)
				}
			},
		},
		{
			name: "a symbolic link before stays one",
			setUp: func(t *testing.T, path string) {
				write(t, path+".real", "real", 0o755)
				if err := os.Symlink(path+".real", path); err != nil {
					t.Fatal(err)
				}
			},
			check: func(t *testing.T, path string) {
				if to, err := os.Readlink(path); err != nil || to != path+".real" {
					t.Errorf("link to %q, %v", to, err)
				}
				want(t, path+".real", "real", 0o755)
			},
		},
		{
			name: "left by a killed run that had found one",
			setUp: func(t *testing.T, path string) {
				write(t, path, policy, 0o755)
				write(t, path+savedSuffix, "the owner's", 0o700)
			},
			check: func(t *testing.T, path string) { want(t, path, "the owner's", 0o700) },
		},
		{
			name: "left by a run killed between its two steps",
			setUp: func(t *testing.T, path string) {
				write(t, path+savedSuffix, "the owner's", 0o700)
			},
			check: func(t *testing.T, path string) { want(t, path, "the owner's", 0o700) },
		},
		{
			name:  "left by a killed run that had found none",
			setUp: func(t *testing.T, path string) { write(t, path, policy, 0o755) },
			check: wantNothing,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "policy-rc.d")
			tc.setUp(t, path)
			restore, err := holdServices(path)
			if err != nil {
				t.Fatal(err)
			}
			want(t, path, policy, 0o755)
			if err := restore(); err != nil {
				t.Fatal(err)
			}
			tc.check(t, path)
			if _, err := os.Lstat(path + savedSuffix); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is left behind (%v)", path+savedSuffix, err)
			}
		})
	}
}

func TestAPolicyThatSomebodyReplacesMeanwhileIsNotOverwritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy-rc.d")
	write(t, path, "first", 0o755)
	restore, err := holdServices(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, "second", 0o755)
	if err := restore(); err == nil || !strings.Contains(err.Error(), path+savedSuffix) {
		t.Errorf("error %v does not name the saved file", err)
	}
	want(t, path, "second", 0o755)
	want(t, path+savedSuffix, "first", 0o755)
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != text {
		t.Errorf("%s holds %q, want %q", path, b, text)
	}
	if s, err := os.Stat(path); err != nil || s.Mode().Perm() != mode {
		t.Errorf("%s has mode %v (%v), want %v", path, s.Mode().Perm(), err, mode)
	}
}

func wantNothing(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is there (%v)", path, err)
	}
}
