//go:build race

package listen

const raceEnabled = true
