// Package admin is what operators and their tools see of mqttlb and of the
// broker over HTTP: whether it lives (/healthz), whether it can serve (/readyz),
// and its metrics (/metrics). These read and change nothing; what the broker's API
// below /api/v1 may change, it takes from its own machine only.
package admin
