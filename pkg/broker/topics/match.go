package topics

// Match tells whether filter matches name, both valid, as 5 §4.7 says it,
// level by level. It is what [Tree] and [Index] are held to.
func Match(filter, name string) bool {
	if isSystem(name) && (filter[0] == singleLevel[0] || filter[0] == multiLevel[0]) {
		return false // [MQTT-4.7.2-1]
	}
	f, n := 0, 0
	for !ended(filter, f) {
		want := level(filter, f)
		if want == multiLevel {
			return true // whether or not name goes on
		}
		if ended(name, n) || want != singleLevel && want != level(name, n) {
			return false
		}
		f, n = levelEnd(filter, f)+1, levelEnd(name, n)+1
	}
	return ended(name, n)
}
