package rig

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fakeApt puts an apt-get and a dpkg-query before the real ones in PATH. The
// first has each package "installed" by making a file, and notes its calls
// and the policy that it finds; the second looks for the file.
func fakeApt(t *testing.T, policyFile, then string) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("without root Install refuses before it calls apt-get")
	}
	dir = t.TempDir()
	write(t, filepath.Join(dir, "dpkg-query"), `#!/bin/sh
for p; do :; done
test -e `+dir+`/got-$p && printf installed
`, 0o755)
	write(t, filepath.Join(dir, "apt-get"), `#!/bin/sh
echo "$@" >>`+dir+`/calls
cat `+policyFile+` >`+dir+`/policy-seen
case "$*" in *install*) `+then+`;; esac
for p; do touch `+dir+`/got-$p 2>/dev/null; done
`, 0o755)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return dir
}

func installer(t *testing.T) *Installer {
	dir := t.TempDir()
	return &Installer{PolicyFile: filepath.Join(dir, "policy-rc.d"), LockFile: filepath.Join(dir, "lock")}
}

func calls(t *testing.T, dir string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil {
		return nil
	}
	return slices.Collect(strings.Lines(string(b)))
}

func TestInstallHoldsServicesAndPutsThePolicyBack(t *testing.T) {
	for _, tc := range []struct {
		name, then string
		wantErr    string
	}{
		{"when all goes well", "true", ""},
		{"when apt-get fails", "echo no such package; exit 100", "no such package"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := installer(t)
			write(t, in.PolicyFile, "the owner's", 0o700)
			dir := fakeApt(t, in.PolicyFile, tc.then)
			err := in.Install(t.Context(), "one-package", "other-package")
			if tc.wantErr == "" && err != nil || tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)) {
				t.Errorf("error %v, want %q in it", err, tc.wantErr)
			}
			want(t, filepath.Join(dir, "policy-seen"), policy, 0o644)
			want(t, in.PolicyFile, "the owner's", 0o700)
			if c := calls(t, dir); len(c) != 2 || !strings.HasSuffix(c[1], "install -y --no-install-recommends one-package other-package\n") {
				t.Errorf("apt-get was called with %q", c)
			}
		})
	}
}

func TestInstallPutsThePolicyBackWhenCancelled(t *testing.T) {
	in := installer(t)
	write(t, in.PolicyFile, "the owner's", 0o700)
	dir := fakeApt(t, in.PolicyFile, "exec sleep 600")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		defer cancel(errors.New("the user typed Ctrl-C"))
		for range time.Tick(time.Millisecond) {
			if len(calls(t, dir)) == 2 || t.Context().Err() != nil {
				return
			}
		}
	}()
	if err := in.Install(ctx, "one-package"); err == nil {
		t.Error("no error")
	}
	want(t, in.PolicyFile, "the owner's", 0o700)
}

func TestInstallDoesNothingWhenAllIsThere(t *testing.T) {
	in := installer(t)
	dir := fakeApt(t, in.PolicyFile, "true")
	write(t, filepath.Join(dir, "got-one-package"), "", 0o644)
	if err := in.Install(t.Context(), "one-package"); err != nil {
		t.Fatal(err)
	}
	if c := calls(t, dir); c != nil {
		t.Errorf("apt-get was called with %q", c)
	}
	wantNothing(t, in.LockFile)
}

func TestOneOfManyInstallsAndTheOthersWaitForIt(t *testing.T) {
	in := installer(t)
	dir := fakeApt(t, in.PolicyFile, "true")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := in.Install(t.Context(), "one-package"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if c := calls(t, dir); len(c) != 2 {
		t.Errorf("apt-get was called %d times, want update and install once: %q", len(c), c)
	}
	wantNothing(t, in.PolicyFile)
}

func TestTheLockIsHeldByOneAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var inside atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			unlock, err := lockFile(t.Context(), path)
			if err != nil {
				t.Error(err)
				return
			}
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d hold the lock", n)
			}
			inside.Add(-1)
			unlock()
		})
	}
	wg.Wait()
}

func TestWaitingForTheLockEndsWithTheContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lockFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lockFile(ctx, path); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v", err)
	}
}

func TestWithoutRootTheCommandIsNamed(t *testing.T) {
	err := &NeedRootError{Packages: []string{"mosquitto", "mosquitto-clients"}}
	for _, part := range []string{
		"\n    sudo apt-get install -y mosquitto mosquitto-clients\n",
		"\n    sudo systemctl disable --now mosquitto\n",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in\n%s", part, err)
		}
	}
}
