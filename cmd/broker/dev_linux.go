package main

import "syscall"

// apart keeps the terminal's Ctrl-C from the nodes, which are ended in order, and
// ends them should broker dev itself be killed.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
