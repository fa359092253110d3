//go:build race

package topics

// large is a number at which memory per entry shows. The race detector makes
// a million take half a minute.
const large = 200_000
