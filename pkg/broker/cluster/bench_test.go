package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// The figures of docs/adr/0008-store.md:
//
//	go test ./pkg/broker/cluster -run '^$' -bench . -benchtime 2s

// BenchmarkAppend keeps as many messages under way as its name says, from ten
// publishers, as many clients with a Receive Maximum would.
func BenchmarkAppend(b *testing.B) {
	for _, d := range []Durability{Always, EachSecond} {
		for _, window := range []int{1, 10, 100, 1000, 10_000} {
			b.Run(fmt.Sprintf("durability=%s/window=%d", d, window), func(b *testing.B) {
				s := openJetStream(b, Options{Dir: b.TempDir(), Durability: d})
				defer s.Close()
				benchmark(b, window, func(i int, done func(error)) {
					s.Append(&Message{Topic: topics[i%len(topics)], Payload: payload, QoS: 1, Publisher: "publisher-1"}, func(_ Pos, err error) { done(err) })
				})
			})
		}
	}
}

// BenchmarkAppendDedup is the same for messages with a DedupID: QoS 2.
func BenchmarkAppendDedup(b *testing.B) {
	for _, d := range []Durability{Always, EachSecond} {
		for _, window := range []int{1, 100, 1000} {
			b.Run(fmt.Sprintf("durability=%s/window=%d", d, window), func(b *testing.B) {
				s := openJetStream(b, Options{Dir: b.TempDir(), Durability: d})
				defer s.Close()
				benchmark(b, window, func(i int, done func(error)) {
					s.Append(&Message{Topic: topics[i%len(topics)], Payload: payload, QoS: 2, DedupID: fmt.Sprint(i)}, func(_ Pos, err error) { done(err) })
				})
			})
		}
	}
}

func BenchmarkPut(b *testing.B) {
	for _, d := range []Durability{Always, EachSecond} {
		for _, keys := range []int{100, 10_000} {
			for _, window := range []int{1, 10, 100, 1000} {
				b.Run(fmt.Sprintf("durability=%s/keys=%d/window=%d", d, keys, window), func(b *testing.B) {
					s := openJetStream(b, Options{Dir: b.TempDir(), Durability: d})
					defer s.Close()
					r := s.Records(Sessions)
					benchmark(b, window, func(i int, done func(error)) {
						r.Put(fmt.Sprint("key-", i%keys), payload, Any, func(_ Revision, err error) { done(err) })
					})
				})
			}
		}
	}
}

// BenchmarkRead reads back what came at once, in packs, and what came one by
// one.
func BenchmarkRead(b *testing.B) {
	for _, together := range []bool{true, false} {
		s := openJetStream(b, Options{Dir: b.TempDir(), Durability: EachSecond})
		const n = 20_000
		var ps []Pos
		var group sync.WaitGroup
		for i := range n {
			group.Add(1)
			s.Append(&Message{Topic: topics[i%len(topics)], Payload: payload, QoS: 1}, func(p Pos, err error) {
				if err != nil {
					b.Error(err)
				}
				ps = append(ps, p)
				group.Done()
			})
			if !together {
				group.Wait()
			}
		}
		group.Wait()
		b.Run(fmt.Sprintf("together=%v/tail", together), func(b *testing.B) {
			for b.Loop() {
				ctx, cancel := context.WithCancel(b.Context())
				if err := s.Tail(ctx, 0, 0, func(Pos, *Message) {}, cancel); !errors.Is(err, context.Canceled) {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "messages/s")
		})
		b.Run(fmt.Sprintf("together=%v/get", together), func(b *testing.B) {
			for i := range b.N {
				if _, err := s.Get(b.Context(), ps[i%n]); err != nil {
					b.Fatal(err)
				}
			}
		})
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

var (
	payload = make([]byte, 100)
	topics  = func() (t [1000]string) {
		for i := range t {
			t[i] = fmt.Sprintf("site/%d/sensor/%d", i%10, i)
		}
		return t
	}()
)

func benchmark(b *testing.B, window int, write func(i int, done func(error))) {
	room := make(chan struct{}, window)
	var group sync.WaitGroup
	b.ResetTimer()
	begun := time.Now()
	for i := range b.N {
		room <- struct{}{}
		group.Add(1)
		write(i, func(err error) {
			if err != nil {
				b.Error(err)
			}
			<-room
			group.Done()
		})
	}
	group.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/time.Since(begun).Seconds(), "writes/s")
}
