// Package e2e tries mqttlb and the broker from outside: the built binaries, with
// real brokers and real clients, over sockets.
//
// Each test tells one story. What it stands on is in package rig; the helpers
// beside the tests are lb_test.go (mqttlb itself), device_test.go (a client
// that sees every byte), libraries_test.go (clients that people use),
// logs_test.go (what brokers saw) and broker_test.go (our own broker, and a
// device that knows QoS); the other broker*_test.go are the broker's stories.
// Both programs are built with the race detector, but where a test says why
// not, and every test fails on a race that it has found.
package e2e
