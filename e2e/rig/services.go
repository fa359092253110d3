package rig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// policy is what invoke-rc.d asks before it starts a service; 101 means
// "action forbidden by policy". Its text tells our file from anyone else's.
const policy = `#!/bin/sh
# Written by mqttlb's test rig while it installs packages, so that their
# services do not start. Safe to delete.
exit 101
`

// savedSuffix names the file that was at the policy's path before.
const savedSuffix = ".mqttlb-saved"

// holdServices keeps packages that are installed from now on from starting
// their services, until restore puts the file at path back as it was: it is
// moved aside and back, so bytes, mode, owner and times stay. What a killed
// run left behind is put right first. The caller holds the install lock.
func holdServices(path string) (restore func() error, err error) {
	restore = func() error {
		if err := restorePolicy(path); err != nil {
			return fmt.Errorf("restore %s: %w", path, err)
		}
		return nil
	}
	if err := restore(); err != nil {
		return nil, err
	}
	if err := os.Rename(path, path+savedSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("keep services from starting: %w", err)
	}
	if err := writePolicy(path); err != nil {
		return nil, errors.Join(fmt.Errorf("keep services from starting: %w", err), restore())
	}
	return restore, nil
}

// writePolicy puts our file at path whole or not at all.
func writePolicy(path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(policy)
	if err := errors.Join(err, f.Chmod(0o755), f.Close()); err != nil {
		os.Remove(f.Name())
		return err
	}
	return os.Rename(f.Name(), path)
}

// restorePolicy undoes what holdServices did, in this process or in one that
// was killed. It does nothing where nothing is to be undone, and leaves alone
// what somebody else has written in the meantime.
func restorePolicy(path string) error {
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && string(b) != policy {
		if _, err := os.Lstat(path + savedSuffix); err == nil {
			return fmt.Errorf("it was replaced while packages were installed; the file that was there before is %s: keep one of them", path+savedSuffix)
		}
		return nil
	}
	err = os.Rename(path+savedSuffix, path)
	if errors.Is(err, fs.ErrNotExist) { // there was none before
		err = os.Remove(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return err
}
