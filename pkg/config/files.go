package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// checkFiles reports the files that can't be opened, and the folders that are
// none. What is in them is for the parts that use them to judge.
func (c *checker) checkFiles() {
	var pairs []string
	for _, f := range c.files {
		if f.folder {
			if fault := noFolder(f.path); fault != nil {
				c.report(f.key, fault)
			}
			continue
		}
		if fault := unreadable(f.path, c.program.name); fault != nil {
			c.report(f.key, fault)
			pairs = append(pairs, parent(f.key))
		}
	}
	// Half a pair can't be judged: whoever tries would tell the same again.
	for _, pair := range pairs {
		for _, half := range []string{"cert", "certificate", "key"} {
			c.bad[join(pair, half)] = true
		}
	}
}

// noFolder takes a path that does not exist, if a folder can be made there.
func noFolder(path string) *fault {
	for at := path; ; at = filepath.Dir(at) {
		switch info, err := os.Stat(at); {
		case err == nil && info.IsDir():
			return nil
		case err == nil:
			return &fault{strconv.Quote(at) + " is not a folder", "name a folder, or where one can be made"}
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR): // that one is further up
			return &fault{strconv.Quote(at) + " can't be used: " + reason(err), "name a folder, or where one can be made"}
		case at == filepath.Dir(at):
			return nil // not even a root; whoever makes it will tell
		}
	}
}

func unreadable(path, program string) *fault {
	// Stat comes first, since opening a named pipe would wait for a writer.
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		return &fault{strconv.Quote(path) + " is a folder", "name the file in it"}
	}
	if err == nil && info.Mode().IsRegular() {
		var f *os.File
		if f, err = os.Open(path); err == nil {
			_ = f.Close()
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return &fault{strconv.Quote(path) + " does not exist", "make the file, or mend the path; a relative one starts at the folder of the configuration file"}
	case errors.Is(err, fs.ErrPermission):
		return &fault{strconv.Quote(path) + " can't be read: permission denied", "let the user that " + program + " runs as read it"}
	default:
		return &fault{strconv.Quote(path) + " can't be read: " + reason(err), "mend the path"}
	}
}

// reason is the error without the operation and the path, which the message
// around it has already.
func reason(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err.Error()
	}
	return err.Error()
}
