package topics

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
)

const million = 1_000_000

// BenchmarkMatch is a million subscriptions, of which one matches: the same
// few again and again, or any of them; and few with several matches.
func BenchmarkMatch(b *testing.B) {
	tree := fleet(make([]subscriber, million))
	for _, hot := range []bool{true, false} {
		names := make([][]byte, 1<<20)
		if hot {
			names = names[:1<<6]
		}
		for i := range names {
			names[i] = fleetName(rand.IntN(million))
		}
		b.Run(fmt.Sprintf("of a million/hot %v", hot), func(b *testing.B) {
			b.ReportAllocs()
			seen, i := 0, 0
			for b.Loop() {
				tree.Match(names[i&(len(names)-1)], func(*subscriber, options) { seen++ })
				i++
			}
			if seen != b.N {
				b.Errorf("%d matches in %d runs", seen, b.N)
			}
		})
	}
	b.Run("of a million/none", func(b *testing.B) {
		name := []byte("nobody/listens/to/this")
		for b.Loop() {
			tree.Match(name, func(*subscriber, options) { b.Error("matched") })
		}
	})
	for _, n := range []int{1, 20, 1000} {
		tree, name := fan(n)
		b.Run(fmt.Sprintf("all of/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			seen := 0
			for b.Loop() {
				tree.Match(name, func(*subscriber, options) { seen++ })
			}
		})
	}
}

// BenchmarkSubscribe makes a million subscriptions, and ends and makes them
// again, in no order.
func BenchmarkSubscribe(b *testing.B) {
	filters, order := make([]string, million), rand.Perm(million)
	for i := range filters {
		filters[i] = fleetFilter(i)
	}
	each := make([]subscriber, million)
	for b.Loop() {
		var tree *Tree[*subscriber, options]
		_, bytes := heapBytes(func() *Tree[*subscriber, options] {
			tree = new(Tree[*subscriber, options])
			for _, i := range order {
				tree.Subscribe(filters[i], &each[i], options{})
			}
			return tree
		})
		for _, i := range order {
			tree.Unsubscribe(filters[i], &each[i])
			tree.Subscribe(filters[i], &each[i], options{})
		}
		b.ReportMetric(float64(bytes)/million, "B/sub")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/million/3, "ns/change")
}

// BenchmarkMatchWhileSubscriptionsChange has a reader on each core, and a
// writer that ends subscriptions and makes them again.
func BenchmarkMatchWhileSubscriptionsChange(b *testing.B) {
	tree := fleet(make([]subscriber, million))
	who := &subscriber{}
	names := make([][]byte, 1<<16)
	for i := range names {
		names[i] = fleetName(rand.IntN(million))
	}
	done := make(chan struct{})
	var writer sync.WaitGroup
	changes := 0
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			filter := fleetFilter(i % million)
			tree.Subscribe(filter, who, options{})
			tree.Unsubscribe(filter, who)
			changes += 2
		}
	})
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		seen := 0
		for i := rand.IntN(len(names)); pb.Next(); i++ {
			tree.Match(names[i&(len(names)-1)], func(*subscriber, options) { seen++ })
		}
	})
	close(done)
	writer.Wait()
	b.ReportMetric(float64(changes)/b.Elapsed().Seconds(), "changes/s")
}

// BenchmarkFleetOnOneFilter is what a subscriber costs that comes and goes
// where so many share its filter.
func BenchmarkFleetOnOneFilter(b *testing.B) {
	for _, n := range []int{many, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var tree Tree[*subscriber, options]
			each := make([]subscriber, n)
			for i := range each {
				tree.Subscribe("fleet/all", &each[i], options{})
			}
			for i := 0; b.Loop(); i++ {
				tree.Unsubscribe("fleet/all", &each[i%n])
				tree.Subscribe("fleet/all", &each[i%n], options{})
			}
		})
	}
}

// BenchmarkIndex finds names among a million retained ones.
func BenchmarkIndex(b *testing.B) {
	names := retainedNames(million)
	index := retained(names)
	for _, filter := range []string{"#", "site/+/lamp/00042/state", "site/007/#", names[5]} {
		b.Run(filter, func(b *testing.B) {
			b.ReportAllocs()
			seen := 0
			for b.Loop() {
				index.Match(filter, func(string) bool { seen++; return true })
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(seen), "ns/name")
		})
	}
}
