//go:build !linux

package main

import "syscall"

// apart keeps the terminal's Ctrl-C from the nodes, which are ended in order.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
