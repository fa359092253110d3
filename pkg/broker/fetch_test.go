package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// unreadable is a store whose messages can't be fetched while get says so.
type unreadable struct {
	cluster.Store
	get   atomic.Pointer[func(context.Context) error] // nil: they can
	ended atomic.Int64                                // fetches that have failed
}

func (u *unreadable) Get(ctx context.Context, p cluster.Pos) (*cluster.Message, error) {
	if get := u.get.Load(); get != nil {
		err := (*get)(ctx)
		u.ended.Add(1)
		return nil, err
	}
	return u.Store.Get(ctx, p)
}

// waiting gives a node with messages for a session that is away.
func (u *unreadable) waiting(t *testing.T, count int) (n *node, o mqtt.ConnectOptions) {
	n = newNode(t, func(o *Options) { u.Store, o.Store = o.Store, u })
	o = mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "d", Properties: expiring(60)}
	d, _ := n.connect(o)
	d.subscribe(1, "t")
	d.disconnect()
	p, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "p", CleanStart: true})
	for i := range count {
		p.sendPublish(1, uint16(i+1), "t", fmt.Sprint(i))
		p.ack(mqtt.TypePuback)
	}
	return n, o
}

// A store that does not answer holds up what has to be fetched from it, and
// nothing else of the connection; the fetch ends with that.
func TestAFetchHoldsUpNothingElse(t *testing.T) {
	var u unreadable
	n, o := u.waiting(t, 3)
	begun, cut := make(chan struct{}, 100), make(chan error, 100)
	hang := func(ctx context.Context) error {
		begun <- struct{}{}
		<-ctx.Done()
		cut <- ctx.Err()
		return ctx.Err()
	}
	u.get.Store(&hang)
	d, _ := n.connect(o)
	<-begun
	d.quiet()
	d.subscribe(0, "live")
	p, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V311, ClientID: "q", CleanStart: true})
	p.sendPublish(0, 0, "live", "now")
	if m := d.publish(); string(m.Payload) != "now" {
		t.Errorf("got %s", m.Payload)
	}
	if ended := u.ended.Load(); ended != 0 {
		t.Errorf("all of that came after %d fetches had ended", ended)
	}
	d.Close()
	if err := <-cut; !errors.Is(err, context.Canceled) {
		t.Errorf("the fetch of a connection that is over ended with %v", err)
	}
	u.get.Store(nil)
	d, _ = n.connect(o)
	for i := range 3 {
		if m := d.publish(); string(m.Payload) != fmt.Sprint(i) {
			t.Errorf("message %d is %s", i, m.Payload)
		}
	}
}

func TestAFetchThatFailedIsTriedAgain(t *testing.T) {
	var u unreadable
	n, o := u.waiting(t, 3)
	fail := func(context.Context) error { return cluster.ErrUnavailable }
	u.get.Store(&fail)
	d, _ := n.connect(o)
	eventually(t, "it has failed twice", func() bool { return u.ended.Load() == 2 })
	u.get.Store(nil)
	for i := range 3 {
		if m := d.publish(); string(m.Payload) != fmt.Sprint(i) {
			t.Errorf("message %d is %s", i, m.Payload)
		}
	}
}

func TestFetchesAreTriedAgainLessAndLessOften(t *testing.T) {
	var got []time.Duration
	for pause := time.Duration(0); len(got) < 8; {
		pause = nextFetchPause(pause)
		got = append(got, pause)
	}
	want := []time.Duration{
		200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond,
		3200 * time.Millisecond, 6400 * time.Millisecond, 10 * time.Second, 10 * time.Second,
	}
	if !slices.Equal(got, want) {
		t.Errorf("pauses %v, want %v", got, want)
	}
}
