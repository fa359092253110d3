//go:build !race

package topics

// large is a number at which memory per entry shows.
const large = 1_000_000
