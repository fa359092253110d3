//go:build !unix

package cluster

// dirLock would keep a second process out of the folder; here nothing does.
type dirLock struct{}

func lockDir(string) (*dirLock, error) { return &dirLock{}, nil }

func (*dirLock) unlock() {}
