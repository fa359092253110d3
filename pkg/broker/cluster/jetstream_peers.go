package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// peers are the [Peers] of a JetStream store: plain messages of the engine, none
// of which is stored.
//
// A node counts as heard from by the time at which this one has sent what it
// echoes. So what lay in a buffer while the process was stopped proves nothing,
// nor does a network that carries one way only.
type peers struct {
	node  string
	start uint64
	size  int
	log   interface{ Warn(string, ...any) }

	talk  *nats.Conn // heartbeats, questions and answers
	cast  *nats.Conn
	began time.Time // times in heartbeats are since then

	mu       sync.Mutex
	others   map[string]*sighting
	last     View          // as those who watch know it
	changed  chan struct{} // closed when last has
	handlers map[string]*nats.Subscription
	closed   bool
	calls    sync.WaitGroup // functions that were handed in

	asked   chan struct{} // bounds the calls of answering functions
	stop    chan struct{}
	stopped chan struct{}
}

// sighting is what is known of another node.
type sighting struct {
	start uint64
	stamp int64     // of its last heartbeat, to be echoed
	at    time.Time // when this node has sent what it has echoed; zero if nothing yet
	bye   bool      // it has left
}

const (
	heartbeats = 250 * time.Millisecond
	// maxAnswering bounds the questions that are being answered at a time.
	maxAnswering = 256
)

// beat is a heartbeat. Stamps are nanoseconds on the sender's clock.
type beat struct {
	Node  string          `json:"node"`
	Start uint64          `json:"start"`
	Stamp int64           `json:"stamp"`
	Echo  map[string]echo `json:"echo"` // of others, by name
	Bye   bool            `json:"bye"`  // it is the last one
}

type echo struct {
	Start uint64 `json:"start"`
	Stamp int64  `json:"stamp"`
}

const (
	beatSubject = "beat"
	askPrefix   = "ask."
	castPrefix  = "cast."
)

// nodeToken is a node's name as a part of a subject.
func nodeToken(node string) string { return subject("", node) }

func newPeers(o *Options, e *engine) (*peers, error) {
	p := &peers{
		node: o.Node, size: o.Cluster.Size, log: o.Log,
		talk: e.talk, cast: e.cast, began: time.Now(),
		others: make(map[string]*sighting), changed: make(chan struct{}),
		handlers: make(map[string]*nats.Subscription),
		asked:    make(chan struct{}, maxAnswering),
		stop:     make(chan struct{}), stopped: make(chan struct{}),
	}
	p.start = uint64(p.began.UnixNano())
	p.last = p.view(p.began)
	if _, err := p.talk.Subscribe(beatSubject, p.hear); err != nil {
		return nil, fmt.Errorf("hear other nodes: %w", err)
	}
	go p.run()
	return p, nil
}

// run sends heartbeats and notices who is silent.
func (p *peers) run() {
	defer close(p.stopped)
	tick := time.NewTicker(heartbeats)
	defer tick.Stop()
	for {
		p.beat(false)
		select {
		case <-tick.C:
		case <-p.stop:
			p.beat(true)
			_ = p.talk.FlushTimeout(heartbeats) // others miss this node anyway
			return
		}
	}
}

func (p *peers) beat(bye bool) {
	p.mu.Lock()
	b := beat{p.node, p.start, int64(time.Since(p.began)), make(map[string]echo, len(p.others)), bye}
	for name, o := range p.others {
		b.Echo[name] = echo{o.start, o.stamp}
	}
	p.update()
	p.mu.Unlock()
	if body, err := json.Marshal(b); err == nil {
		_ = p.talk.Publish(beatSubject, body) // the next one may come through
	}
}

// hear takes a heartbeat.
func (p *peers) hear(m *nats.Msg) {
	var b beat
	if err := json.Unmarshal(m.Data, &b); err != nil || b.Node == p.node {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.others[b.Node]
	if o == nil || o.start < b.Start {
		o = &sighting{start: b.Start}
		p.others[b.Node] = o
	}
	if o.start > b.Start { // of an earlier life
		return
	}
	o.stamp, o.bye = b.Stamp, o.bye || b.Bye
	if e, ok := b.Echo[p.node]; ok && e.Start == p.start {
		if at := p.began.Add(time.Duration(e.Stamp)); at.After(o.at) {
			o.at = at
		}
	}
	p.update()
}

// update tells those who watch when the view has changed; p.mu is held.
func (p *peers) update() {
	now := time.Now()
	for name, o := range p.others {
		if !o.at.IsZero() && now.Sub(o.at) > 2*PresumedLost {
			delete(p.others, name)
		}
	}
	if v := p.view(now); !v.equal(p.last) {
		p.last = v
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

// view is View; p.mu is held.
func (p *peers) view(now time.Time) View {
	v := View{Size: p.size, Nodes: []Node{{Name: p.node, Start: p.start, Heard: true}}}
	heard := 1
	for name, o := range p.others {
		silent := now.Sub(o.at)
		if o.at.IsZero() || o.bye || silent > PresumedLost {
			continue
		}
		n := Node{Name: name, Start: o.start, Heard: silent <= QuorumPatience}
		if n.Heard {
			heard++
		}
		v.Nodes = append(v.Nodes, n)
	}
	slices.SortFunc(v.Nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	v.Quorum = heard > p.size/2
	return v
}

func (v View) equal(w View) bool {
	return v.Size == w.Size && v.Quorum == w.Quorum && slices.Equal(v.Nodes, w.Nodes)
}

func (p *peers) Node() string { return p.node }

func (p *peers) View() View {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.view(time.Now())
}

func (p *peers) Quorum() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, heard := time.Now(), 1
	for _, o := range p.others {
		if !o.at.IsZero() && now.Sub(o.at) <= QuorumPatience {
			heard++
		}
	}
	return heard > p.size/2
}

func (p *peers) Watch(ctx context.Context, f func(View)) {
	if !p.enter() {
		return
	}
	defer p.calls.Done()
	told := false
	var last View
	for {
		p.mu.Lock()
		v, changed := p.last, p.changed
		p.mu.Unlock()
		if !told || !v.equal(last) {
			told, last = true, v
			f(v)
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		case <-p.stop:
			return
		}
	}
}

// enter counts a call of a function that was handed in, unless the store is
// closed.
func (p *peers) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.calls.Add(1)
	}
	return !p.closed
}

func (p *peers) Ask(ctx context.Context, node, kind string, body []byte) ([]byte, error) {
	m := &nats.Msg{Subject: askPrefix + nodeToken(node) + "." + kind, Header: nats.Header{headerFrom: {p.node}}, Data: body}
	answer, err := p.talk.RequestMsgWithContext(ctx, m)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, ErrNoNode
	case errors.Is(err, nats.ErrConnectionClosed):
		return nil, ErrClosed
	case err != nil:
		return nil, unavailable(ctx, err)
	}
	return answer.Data, nil
}

// headerFrom is the node that asks or casts.
const headerFrom = "Mq-From"

func (p *peers) Answer(kind string, f func(from string, body []byte) []byte) {
	p.handle(p.talk, askPrefix+nodeToken(p.node)+"."+kind, func(m *nats.Msg) {
		select {
		case p.asked <- struct{}{}:
		case <-p.stop:
			return
		}
		if !p.enter() {
			<-p.asked
			return
		}
		go func() {
			defer p.calls.Done()
			defer func() { <-p.asked }()
			_ = m.Respond(f(m.Header.Get(headerFrom), m.Data)) // who asks asks again
		}()
	})
}

func (p *peers) Cast(kind string, body []byte) {
	m := &nats.Msg{Subject: castPrefix + kind, Header: nats.Header{headerFrom: {p.node}}, Data: body}
	if err := p.cast.PublishMsg(m); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		p.log.Warn("a message to other nodes was not sent", "kind", kind, "bytes", len(body), "err", err)
	}
}

func (p *peers) Hear(kind string, f func(from string, body []byte)) {
	p.handle(p.cast, castPrefix+kind, func(m *nats.Msg) {
		if p.enter() {
			defer p.calls.Done()
			f(m.Header.Get(headerFrom), m.Data)
		}
	})
}

// handle sets the function for a subject. One at a time handles it: in order,
// and the one before is gone then.
func (p *peers) handle(c *nats.Conn, subject string, f nats.MsgHandler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	if s := p.handlers[subject]; s != nil {
		_ = s.Unsubscribe()
	}
	s, err := c.Subscribe(subject, f)
	if err == nil {
		err = c.FlushTimeout(DefaultDeadline)
	}
	if err != nil {
		p.log.Warn("other nodes are not heard", "subject", subject, "err", err)
		return
	}
	p.handlers[subject] = s
}

// close ends the heartbeats and waits for all calls.
func (p *peers) close() {
	p.mu.Lock()
	was := p.closed
	p.closed = true
	for _, s := range p.handlers {
		_ = s.Unsubscribe()
	}
	p.mu.Unlock()
	if !was {
		close(p.stop)
	}
	<-p.stopped
	p.calls.Wait()
}

var _ Peers = (*peers)(nil)
