package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// What a broker reads at its start: sessions and retained messages, in so many
// seconds after the end of the last process. The time is reported, and only
// far too much of it is a failure.
func TestSessionsAndRetainedMessagesLoadSoonAfterReopening(t *testing.T) {
	n := 100_000
	if raceEnabled || testing.Short() {
		n = 10_000
	}
	o := Options{Dir: t.TempDir(), Durability: EachSecond}
	s := openJetStream(t, o)
	record := make([]byte, 300)
	var group sync.WaitGroup
	written := func(_ Revision, err error) {
		if err != nil {
			t.Error(err)
		}
		group.Done()
	}
	begun := time.Now()
	for i := range n {
		group.Add(2)
		s.Records(Sessions).Put(fmt.Sprintf("%052d", i), record, None, written)
		s.SetRetained(&Message{Topic: fmt.Sprintf("site/%d/sensor/%d", i%100, i), Payload: payload, Retain: true, QoS: 1}, written)
	}
	group.Wait()
	t.Logf("%d session records and as many retained messages written in %v", n, time.Since(begun))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	begun = time.Now()
	s = openJetStream(t, o)
	defer s.Close()
	opened := time.Now()
	read := func(f func(context.Context, *int, func()) error) (count int, at time.Time) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if err := f(ctx, &count, cancel); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		return count, time.Now()
	}
	sessions, sessionsAt := read(func(ctx context.Context, n *int, ready func()) error {
		return s.Records(Sessions).Watch(ctx, func(Record) { *n++ }, ready)
	})
	retained, retainedAt := read(func(ctx context.Context, n *int, ready func()) error {
		return s.Retained(ctx, func(*Message, Revision) { *n++ }, ready)
	})
	if sessions != n || retained != n {
		t.Errorf("%d sessions and %d retained messages are back, of %d each", sessions, retained, n)
	}
	t.Logf("opened after %v, sessions read %v later, retained messages %v later: %v in all", opened.Sub(begun),
		sessionsAt.Sub(opened), retainedAt.Sub(sessionsAt), retainedAt.Sub(begun))
	if took := retainedAt.Sub(begun); took > 30*time.Second {
		t.Errorf("that took %v", took)
	}
}
