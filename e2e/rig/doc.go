// Package rig holds the real parts that mqttlb is tried with: brokers,
// clients, certificates, and the processes that they run in.
//
// `make run` and the end-to-end tests both stand on it. It therefore imports
// no testing; package rigtest ties its parts to a test's life.
//
// Everything listens on 127.0.0.1 only, lives in a folder that its starter
// names, and ends with its starter: each child gets a process group of its
// own, which is ended as a whole, and the kernel kills the child when its
// starter dies first. Waits are for events (a line of a log, a whole answer),
// never for a length of time.
//
// Linux only. The brokers are Debian's packages, which [Install] fetches.
package rig
