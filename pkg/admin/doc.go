// Package admin is what operators and their tools see of mqttlb and of the
// broker over HTTP: whether it lives (/healthz), whether it can serve (/readyz),
// and its metrics (/metrics). It reads; it changes nothing.
package admin
