package broker

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

func TestLagCountsWhatIsStoredAndNotDealt(t *testing.T) {
	stored := func(s *shard, seqs ...uint64) {
		for _, seq := range seqs {
			s.whenDealt(seq, time.Time{}, func() {})
		}
	}
	for _, row := range []struct {
		name string
		do   func(*shard)
		want int
	}{
		{"nothing", func(*shard) {}, 0},
		{"stored", func(s *shard) { stored(s, 1, 1024, 1025) }, 3},
		{"dealt", func(s *shard) { stored(s, 1, 1024); s.deal(1); s.deal(1024) }, 0},
		{"in part", func(s *shard) { stored(s, 1, 1024); s.deal(1) }, 1},
		{"dealt before the answer", func(s *shard) { s.deal(5); stored(s, 5) }, 0},
		{"of another node", func(s *shard) { stored(s, 1); s.deal(7) }, 0},
		{"stored once more, under the same name", func(s *shard) { stored(s, 1, 2, 1) }, 2},
		{"expired unseen", func(s *shard) {
			s.whenDealt(1, time.Now().Add(time.Hour), func() {})
			s.waiting[0].expires = time.Now().Add(-time.Hour) // an hour later
			s.sweep()
		}, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			var s shard
			row.do(&s)
			if got := s.lag(); got != row.want {
				t.Errorf("%d behind, want %d", got, row.want)
			}
		})
	}
}

// slowTail is a store whose log comes back when it is let.
type slowTail struct {
	cluster.Store
	let chan struct{}
}

func (s *slowTail) Tail(ctx context.Context, shard int, seq uint64, f func(cluster.Pos, *cluster.Message), ready func()) error {
	return s.Store.Tail(ctx, shard, seq, func(p cluster.Pos, m *cluster.Message) {
		<-s.let
		f(p, m)
	}, ready)
}

func TestStatsTellHowFarTheTailIsBehind(t *testing.T) {
	s := &slowTail{let: make(chan struct{})}
	n := newNode(t, func(o *Options) { s.Store, o.Store = o.Store, s })
	d, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "d", CleanStart: true})
	for i := range 3 {
		d.sendPublish(1, uint16(i+1), "t", "")
	}
	lag := func(want int) func() bool {
		return func() bool { return slices.Equal(n.b.Stats().TailLag, []int{want}) }
	}
	eventually(t, "three are behind", lag(3))
	s.let <- struct{}{}
	d.ack(mqtt.TypePuback)
	eventually(t, "two are behind", lag(2))
	close(s.let)
	d.ack(mqtt.TypePuback)
	d.ack(mqtt.TypePuback)
	eventually(t, "none is", lag(0))
}
