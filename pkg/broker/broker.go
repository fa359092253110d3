package broker

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
	"github.com/mqttlb/mqttlb/pkg/broker/topics"
)

// Broker is one node. Build it with New, load it with Start, let it Serve any
// number of listeners, end it with Shutdown. The store is closed by whoever
// opened it, after that.
type Broker struct {
	o     Options
	log   *slog.Logger
	store cluster.Store

	tree     tree
	retained retained
	shards   []shard // of the log
	stats    counters

	mu       sync.Mutex
	clients  map[string]*client // by Client Identifier
	links    map[*link]struct{}
	sockets  map[net.Listener]struct{}
	draining bool
	number   uint64 // of the client that was made last

	dirtyMu sync.Mutex
	dirty   map[*client]struct{} // records to be written soon

	hands     hands                      // this node's members of shared subscriptions
	reportNow chan struct{}              // what they have to tell is to be told now
	dealer    dealer                     // if this node deals
	saveNow   chan struct{}              // the dealer's record is to be written now
	dealt     atomic.Pointer[dealRecord] // as it was seen last

	drain    drain
	trains   trains // sessions that catch up with the log
	released released
	trimmed  []uint64 // the tail when the log was trimmed last, in a cluster; the checkpoint loop's
	doubt    doubt
	view     atomic.Pointer[cluster.View] // of the cluster; nil for a node that is alone

	ready   atomic.Bool
	work    context.Context // of what Start begins
	stop    context.CancelFunc
	working sync.WaitGroup // tails, watches, the checkpoint loop
	serving sync.WaitGroup // connections, and timers at work
	writes  sync.WaitGroup // of records and wills
}

// tree finds who subscribes to a topic.
type tree = topics.Tree[target, *session.Subscription]

// target is who a subscription in the tree leads to: a *client, or the *group
// of a shared one.
type target interface{ isTarget() }

// New gives a broker that has loaded nothing yet.
func New(o Options) *Broker {
	o = o.withDefaults()
	b := &Broker{
		o: o, log: o.Log, store: o.Store,
		clients: make(map[string]*client),
		links:   make(map[*link]struct{}),
		sockets: make(map[net.Listener]struct{}),
		dirty:   make(map[*client]struct{}),
		shards:  make([]shard, o.Store.Shards()),

		reportNow: make(chan struct{}, 1),
		saveNow:   make(chan struct{}, 1),
	}
	b.retained.init()
	b.hands.init()
	b.dealer.init(b)
	return b
}

// Start loads sessions and retained messages and reads the log from where the
// oldest session stands; it returns when all of that is done. What it begins
// runs until Shutdown.
func (b *Broker) Start(ctx context.Context) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.work, b.stop = work, stop
	var views <-chan cluster.View
	if b.clustered() {
		views = b.joinCluster(work)
	}
	if err := b.load(ctx, work); err != nil {
		stop()
		b.working.Wait()
		return fmt.Errorf("load the broker's state: %w", err)
	}
	b.working.Go(func() { b.checkpoints(work) })
	b.working.Go(func() { b.deals(work) })
	b.working.Go(func() { b.reports(work) })
	b.working.Go(func() { b.tendDeals(work) })
	b.dealer.stir()
	if b.clustered() {
		b.meet()
		b.working.Go(func() { b.followNodes(work, views) })
	}
	b.ready.Store(true)
	return nil
}

// Ready says whether clients should be sent here, and why not.
func (b *Broker) Ready() (ready bool, reasons []string) {
	b.mu.Lock()
	draining := b.draining
	b.mu.Unlock()
	if !b.ready.Load() {
		reasons = append(reasons, "state is being loaded")
	}
	if v := b.view.Load(); v != nil && !v.Quorum {
		reasons = append(reasons, fmt.Sprintf("no quorum: %d of %d nodes can be reached", len(v.Nodes), v.Size))
	}
	if draining {
		reasons = append(reasons, "shutting down")
	}
	if b.drains() {
		reasons = append(reasons, "draining")
	}
	return len(reasons) == 0, reasons
}

// clustered says that there are other nodes.
func (b *Broker) clustered() bool { return b.o.Peers != nil }

// tail is the last message of each shard that has been fanned out.
func (b *Broker) tail() []uint64 {
	seqs := make([]uint64, len(b.shards))
	for i := range b.shards {
		seqs[i] = b.shards[i].dealt.Load()
	}
	return seqs
}

func (b *Broker) lookup(id string) *client {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.clients[id]
}

// client gives the client of an identifier, making it if there is none.
func (b *Broker) client(id string) *client {
	b.mu.Lock()
	defer b.mu.Unlock()
	cl := b.clients[id]
	if cl == nil {
		b.number++
		cl = &client{b: b, id: id, key: recordKey(id), number: b.number}
		cl.quiet.L = &cl.mu
		b.clients[id] = cl
	}
	return cl
}
