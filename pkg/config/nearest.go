package config

import "strings"

// nearest gives the word among known that word was most likely meant to be,
// or "" when none is near enough.
func nearest(word string, known []string) string {
	plain := fold(word)
	best, least := "", max(1, len(plain)/3)+1
	for _, k := range known {
		if d := distance(plain, fold(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// fold takes away what differs between ways of writing the same word:
// maxConnections, Max-Connections, max_connections.
func fold(word string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(word))
}

// distance counts the bytes to insert, delete, replace or swap with their
// neighbour to turn a into b (optimal string alignment).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
