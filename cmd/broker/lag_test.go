package main

import (
	"context"
	"slices"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
)

func TestLagCountsWhatIsStoredAndNotHandedOn(t *testing.T) {
	for _, row := range []struct {
		name string
		do   func(*shardLag)
		want int
	}{
		{"nothing", func(*shardLag) {}, 0},
		{"stored", func(l *shardLag) { l.stored(1); l.stored(1024); l.stored(1025) }, 3},
		{"handed on", func(l *shardLag) { l.stored(1); l.stored(1024); l.handed(1); l.handed(1024) }, 0},
		{"in part", func(l *shardLag) { l.stored(1); l.stored(1024); l.handed(1) }, 1},
		{"handed on before the answer", func(l *shardLag) { l.handed(5); l.stored(5) }, 0},
		{"of another node", func(l *shardLag) { l.stored(1); l.handed(7) }, 0},
		{"stored once more, under the same name", func(l *shardLag) { l.stored(1); l.stored(2); l.stored(1) }, 2},
		{"without end", func(l *shardLag) {
			for seq := range uint64(mostBehind + 10) {
				l.stored(seq + 1)
			}
		}, mostBehind},
	} {
		t.Run(row.name, func(t *testing.T) {
			var l shardLag
			row.do(&l)
			if got := l.len(); got != row.want {
				t.Errorf("%d behind, want %d", got, row.want)
			}
		})
	}
}

func TestLagStoreFollowsAppendAndTail(t *testing.T) {
	store := newLagStore(cluster.NewMemory(cluster.MemoryOptions{}))
	defer store.Close()
	for range 3 {
		stored := make(chan error, 1)
		store.Append(&cluster.Message{Topic: "a", QoS: 1}, func(_ cluster.Pos, err error) { stored <- err })
		if err := <-stored; err != nil {
			t.Fatal(err)
		}
	}
	if got := store.Lag(); !slices.Equal(got, []int{3}) {
		t.Errorf("lag %v before the tail, want 3", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var during []int
	_ = store.Tail(ctx, 0, 0, func(cluster.Pos, *cluster.Message) { during = append(during, store.Lag()...) }, cancel)
	if !slices.Equal(during, []int{3, 2, 1}) || store.Lag()[0] != 0 {
		t.Errorf("lag %v during the tail and %v after it", during, store.Lag())
	}
}
