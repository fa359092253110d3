// Package brokeradmin is the broker's part of admin. It is apart, so that mqttlb
// does not carry a broker and its store along for the sake of their figures.
package brokeradmin
