package config

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
)

// checkFiles reports the files that can't be opened. What is in them is for
// the parts that use them to judge.
func (c *checker) checkFiles() {
	var pairs []string
	for _, f := range c.files {
		if fault := unreadable(f.path); fault != nil {
			c.report(f.key, fault)
			pairs = append(pairs, parent(f.key))
		}
	}
	// Half a pair can't be judged: whoever tries would tell the same again.
	for _, pair := range pairs {
		c.bad[join(pair, "cert")], c.bad[join(pair, "key")] = true, true
	}
}

func unreadable(path string) *fault {
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
		return &fault{strconv.Quote(path) + " can't be read: permission denied", "let the user that mqttlb runs as read it"}
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
