package cluster

import (
	"fmt"
	"testing"
)

// The figures of docs/adr/0010-cluster-store.md: the same on a single node and on
// three of this machine, one after the other, so that the ratio holds.
//
//	go test ./pkg/broker/cluster -run '^$' -bench Cluster -benchtime 2s
func BenchmarkClusterAppend(b *testing.B) {
	for _, d := range []Durability{Always, EachSecond} {
		for _, window := range []int{1, 10, 100, 1000} {
			for _, nodes := range []int{1, 3} {
				b.Run(fmt.Sprintf("durability=%s/window=%d/nodes=%d", d, window, nodes), func(b *testing.B) {
					var stores []*JetStream
					if nodes == 1 {
						s := openJetStream(b, Options{Dir: b.TempDir(), Durability: d})
						defer s.Close()
						stores = []*JetStream{s}
					} else {
						c := newTestCluster(b, Options{Durability: d})
						defer c.close()
						stores = []*JetStream{c.node(0), c.node(1), c.node(2)}
					}
					// Publishers are spread over the nodes, as a load balancer would.
					benchmark(b, window, func(i int, done func(error)) {
						stores[i%nodes].Append(&Message{Topic: topics[i%len(topics)], Payload: payload, QoS: 1, Publisher: "publisher-1"}, func(_ Pos, err error) { done(err) })
					})
				})
			}
		}
	}
}

// BenchmarkClusterPut is the same for session records.
func BenchmarkClusterPut(b *testing.B) {
	for _, d := range []Durability{Always, EachSecond} {
		for _, window := range []int{1, 100} {
			for _, nodes := range []int{1, 3} {
				b.Run(fmt.Sprintf("durability=%s/window=%d/nodes=%d", d, window, nodes), func(b *testing.B) {
					var stores []*JetStream
					if nodes == 1 {
						s := openJetStream(b, Options{Dir: b.TempDir(), Durability: d})
						defer s.Close()
						stores = []*JetStream{s}
					} else {
						c := newTestCluster(b, Options{Durability: d})
						defer c.close()
						stores = []*JetStream{c.node(0), c.node(1), c.node(2)}
					}
					benchmark(b, window, func(i int, done func(error)) {
						stores[i%nodes].Records(Sessions).Put(fmt.Sprint("key-", i%10_000), payload, Any, func(_ Revision, err error) { done(err) })
					})
				})
			}
		}
	}
}
