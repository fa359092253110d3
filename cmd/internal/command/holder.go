package command

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Holder says who listens on a port of this machine: "process 12 of mosquitto -c
// x.conf". It is empty where that can't be seen: another user's process, or a
// system without /proc.
func Holder(port int) string {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if inode := listener(table, port); inode != "" {
			return owner(inode)
		}
	}
	return ""
}

// listener gives the inode of the socket that listens on a port.
func listener(table string, port int) string {
	f, err := os.Open(table)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode …
		col := strings.Fields(lines.Text())
		const listening = "0A"
		if len(col) < 10 || col[3] != listening {
			continue
		}
		_, hex, _ := strings.Cut(col[1], ":")
		if p, err := strconv.ParseUint(hex, 16, 16); err == nil && int(p) == port {
			return col[9]
		}
	}
	return ""
}

// owner finds the process that holds a socket.
func owner(inode string) string {
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range files { // some are gone meanwhile, or not ours to see
		if to, err := os.Readlink(fd); err != nil || to != "socket:["+inode+"]" {
			continue
		}
		pid := strings.Split(fd, "/")[2]
		line, _ := os.ReadFile("/proc/" + pid + "/cmdline")
		words := strings.Join(strings.Fields(strings.ReplaceAll(string(line), "\x00", " ")), " ")
		const most = 100
		if cut := []rune(words); len(cut) > most {
			words = string(cut[:most-1]) + "…"
		}
		return fmt.Sprintf("process %s (%s)", pid, words)
	}
	return ""
}
