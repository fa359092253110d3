package cluster

import "syscall"

// freeBytes is what an ordinary user can still write to the file system that
// dir is on.
func freeBytes(dir string) (int64, bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, false
	}
	return int64(st.Bavail) * st.Bsize, true
}
