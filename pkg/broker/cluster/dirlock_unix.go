//go:build unix

package cluster

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// dirLock keeps a second process out of the folder: the engine itself does not,
// and two of them ruin it. It ends with the process, however that ends.
type dirLock struct{ f *os.File }

func lockDir(path string) (*dirLock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: another process has this store open", path)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &dirLock{f}, nil
}

func (l *dirLock) unlock() { _ = l.f.Close() }
