package cluster

// shardOf gives the shard of a topic, the same on every node and in every
// version: FNV-1a, whose high bits decide, since its low ones are the weak ones.
func shardOf(topic string, shards int) int {
	h := uint64(14695981039346656037)
	for i := range len(topic) {
		h = (h ^ uint64(topic[i])) * 1099511628211
	}
	h ^= h >> 29
	h *= 0x9e3779b97f4a7c15
	return int((h >> 32) * uint64(shards) >> 32)
}
