// Package e2e tries mqttlb from outside: the built binary, in front of real
// brokers, with real clients, over sockets.
//
// Each test tells one story. What it stands on is in package rig; the helpers
// beside the tests are lb_test.go (mqttlb itself), device_test.go (a client
// that sees every byte), libraries_test.go (clients that people use) and
// logs_test.go (what brokers saw). mqttlb is built with the race detector, and
// every test fails on a race that it has found.
package e2e
