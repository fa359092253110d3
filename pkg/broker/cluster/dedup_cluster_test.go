package cluster

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A client that changes nodes sends its QoS 2 messages again, maybe while the
// first node is still writing them: they come out of every Tail once.
func TestTheSameDedupIDByTwoNodesIsDeliveredOnce(t *testing.T) {
	c := newTestCluster(t, Options{Durability: EachSecond, Deadline: patience})
	const n, batch = 300, 30
	type reader struct {
		got  <-chan tailed
		from uint64
	}
	var readers []reader
	for i := range 3 {
		got, _ := tail(t, c.node(i), 0, 0)
		readers = append(readers, reader{got, 0})
	}
	var last Pos
	for begin := 0; begin < n; begin += batch {
		var group sync.WaitGroup
		var mu sync.Mutex
		for node := range 3 {
			for i := range batch {
				group.Add(1)
				m := message("t", begin+i)
				if i%3 > 0 { // and in between some that anybody may repeat
					m.DedupID = fmt.Sprint("id-", begin+i)
				}
				c.node(node).Append(m, func(p Pos, err error) {
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					last = Pos{0, max(last.Seq, p.Seq)}
					mu.Unlock()
					group.Done()
				})
			}
		}
		group.Wait()
		if begin == n/2 { // one that begins in the middle, among twins
			at := last.Seq - seqOf(1, 0)
			got, _ := tail(t, c.node(2), 0, at)
			readers = append(readers, reader{got, at})
		}
	}
	got, _ := tail(t, c.node(1), 0, 0)
	readers = append(readers, reader{got, 0})
	var want []tailed
	twins := 0
	for _, r := range readers {
		var all []tailed
		for len(all) == 0 || all[len(all)-1].pos.Seq < last.Seq {
			all = append(all, wait(t, r.got, "message"))
		}
		if want == nil {
			want = all
			count := map[string]int{}
			for _, m := range all {
				if m.m == nil {
					twins++
				} else {
					count[string(m.m.Payload)]++
				}
			}
			for i := range n {
				times := 1
				if i%batch%3 == 0 {
					times = 3
				}
				if count[fmt.Sprint(i)] != times {
					t.Errorf("message %d came %d times", i, count[fmt.Sprint(i)])
				}
			}
		}
		rest := want
		for len(rest) > 0 && rest[0].pos.Seq < r.from {
			rest = rest[1:]
		}
		if len(rest) != len(all) {
			t.Errorf("from %d: %d places, want %d", r.from, len(all), len(rest))
			continue
		}
		for i := range rest {
			if rest[i].pos != all[i].pos || (rest[i].m == nil) != (all[i].m == nil) {
				t.Errorf("from %d: at %v %v, for the first reader at %v %v", r.from, all[i].pos, all[i].m, rest[i].pos, rest[i].m)
				break
			}
		}
	}
	t.Logf("%d of %d places were twins", twins, len(want))
	// Who has read of it does not write it again.
	p := appendOne(t, c.node(0), &Message{Topic: "t", QoS: 2, DedupID: "id-1"})
	if p.Seq > last.Seq {
		t.Errorf("a DedupID that is known is stored at %v", p)
	}
}

func TestTwinsEndWithTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := newTwins(nil)
		tw.loaded = true
		at := time.Now()
		for _, tc := range []struct {
			after time.Duration // the one before
			id    string
			twin  bool
		}{
			{0, "a", false},
			{time.Second, "b", false},
			{0, "a", true},
			{-5 * time.Second, "b", true}, // another node's clock
			{dedupWindow, "a", true},      // of the second one
			{dedupWindow + time.Minute, "a", false},
			{0, "b", false},
			{dedupWindow - 1, "b", true},
			{dedupWindow, "b", false},
		} {
			at = at.Add(tc.after)
			if got := tw.note(tc.id, at); got != tc.twin {
				t.Errorf("%s after %v: twin %v", tc.id, tc.after, got)
			}
		}
		if len(tw.last) > 2 || len(tw.order) > 3 {
			t.Errorf("%d ids are kept, in %d entries", len(tw.last), len(tw.order))
		}
	})
}
