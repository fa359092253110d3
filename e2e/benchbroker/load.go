package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// load is publishers and subscribers on one topic. Publishers go as fast as the
// subscribers follow: no more than window messages are on their way, so that
// nothing has a reason to be dropped, and each one lost fails the measurement.
type load struct {
	publishers, subscribers, messages int
	qos                               byte
}

const (
	window  = 2000
	payload = 64
	topic   = "bench/t"
)

// throughput gives received messages per second, for QoS 1 acknowledged ones.
func throughput(ctx context.Context, t target, l load) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var received, acknowledged atomic.Int64
	total := int64(l.messages * l.subscribers)
	tokens := make(chan struct{}, window)
	for range window {
		tokens <- struct{}{}
	}
	failed := make(chan error, l.publishers+l.subscribers)
	over := make(chan struct{})
	var once sync.Once
	check := func() {
		if received.Load() >= total && (l.qos == 0 || acknowledged.Load() >= int64(l.messages)) {
			once.Do(func() { close(over) })
		}
	}
	for i := range l.subscribers {
		c, err := connect(ctx, t.at(i), fmt.Sprintf("sub-%d", i))
		if err != nil {
			return 0, err
		}
		defer c.Close()
		if err := c.subscribe(topic, l.qos); err != nil {
			return 0, err
		}
		first := i == 0
		go func() {
			failed <- c.receive(func(n int) {
				received.Add(int64(n))
				if first { // the first subscriber gives the pace
					for range n {
						tokens <- struct{}{}
					}
				}
				check()
			}, func(int) {})
		}()
	}
	begun := time.Now()
	for i := range l.publishers {
		c, err := connect(ctx, t.at(i), fmt.Sprintf("pub-%d", i))
		if err != nil {
			return 0, err
		}
		defer c.Close()
		count := l.messages / l.publishers
		go func() { failed <- c.send(ctx, l.qos, count, tokens) }()
		go func() {
			failed <- c.receive(func(int) {}, func(n int) { acknowledged.Add(int64(n)); check() })
		}()
	}
	for {
		select {
		case <-over:
			return float64(total) / time.Since(begun).Seconds() / per(l), nil
		case err := <-failed:
			if err != nil {
				return 0, err
			}
		case <-ctx.Done():
			return 0, fmt.Errorf("%d of %d received, %d acknowledged: %w", received.Load(), total, acknowledged.Load(), ctx.Err())
		}
	}
}

// per makes QoS 1 count by acknowledged publications, not by copies.
func per(l load) float64 {
	if l.qos == 0 {
		return 1
	}
	return float64(l.subscribers)
}

type client struct {
	net.Conn
	r *bufio.Reader
}

func connect(ctx context.Context, addr, id string) (*client, error) {
	return connectWith(ctx, addr, mqtt.ConnectOptions{Version: mqtt.V311, ClientID: id, CleanStart: true, KeepAlive: 600})
}

func connectWith(ctx context.Context, addr string, o mqtt.ConnectOptions) (*client, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &client{Conn: conn, r: bufio.NewReaderSize(conn, 64<<10)}
	if _, err := conn.Write(mqtt.AppendConnect(nil, o)); err != nil {
		return nil, err
	}
	t, _, err := c.packet(nil)
	if err == nil && t != mqtt.TypeConnack {
		err = fmt.Errorf("%s in place of CONNACK", t)
	}
	return c, err
}

func (c *client) subscribe(filter string, qos byte) error {
	s := mqtt.Subscribe{PacketID: 1}
	s.Subscriptions = s.Subscriptions.Append(mqtt.Subscription{Filter: []byte(filter), QoS: qos})
	if _, err := c.Write(mqtt.AppendSubscribe(nil, mqtt.V311, s)); err != nil {
		return err
	}
	t, _, err := c.packet(nil)
	if err == nil && t != mqtt.TypeSuback {
		err = fmt.Errorf("%s in place of SUBACK", t)
	}
	return err
}

// packet reads one packet into buf.
func (c *client) packet(buf []byte) (mqtt.PacketType, []byte, error) {
	buf = buf[:0]
	for {
		b, err := c.r.ReadByte()
		if err != nil {
			return 0, nil, err
		}
		buf = append(buf, b)
		t, _, remaining, n, err := mqtt.ParseFixedHeader(buf)
		if errors.Is(err, mqtt.ErrShort) {
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		whole := append(buf, make([]byte, n+remaining-len(buf))...)
		_, err = io.ReadFull(c.r, whole[len(buf):])
		return t, whole, err
	}
}

// receive counts messages and acknowledgements, and acknowledges, many with one
// write, until the connection ends.
func (c *client) receive(messages, acks func(int)) error {
	buf, out := make([]byte, 0, 512), make([]byte, 0, 4096)
	got, acked := 0, 0
	for {
		t, p, err := c.packet(buf)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		switch t {
		case mqtt.TypePublish:
			got++
			if p[0]>>1&3 == 1 {
				id := len(p) - payload - 2
				out = append(out, byte(mqtt.TypePuback)<<4, 2, p[id], p[id+1])
			}
		case mqtt.TypePuback:
			acked++
		}
		if c.r.Buffered() > 0 && len(out) < 4000 && got+acked < 256 {
			continue
		}
		if len(out) > 0 {
			if _, err := c.Write(out); err != nil {
				return err
			}
			out = out[:0]
		}
		messages(got)
		acks(acked)
		got, acked = 0, 0
	}
}

// send publishes count messages, as tokens allow.
func (c *client) send(ctx context.Context, qos byte, count int, tokens <-chan struct{}) error {
	body := make([]byte, payload)
	out := make([]byte, 0, 32<<10)
	flush := func() error {
		_, err := c.Write(out)
		out = out[:0]
		return err
	}
	for i := range count {
		select {
		case <-tokens:
		default:
			if len(out) > 0 {
				if err := flush(); err != nil {
					return err
				}
			}
			select {
			case <-tokens:
			case <-ctx.Done():
				return nil
			}
		}
		out = mqtt.AppendPublish(out, mqtt.V311, mqtt.Publish{QoS: qos, PacketID: uint16(i%65535 + 1), Topic: []byte(topic), Payload: body})
		if len(out) > 4000 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if len(out) > 0 {
		return flush()
	}
	return nil
}

// idleMemory gives the growth of the peer's resident memory for each of n idle
// connections with one subscription of its own.
func idleMemory(ctx context.Context, t target, n int) (float64, error) {
	before, err := resident(t.pid)
	if err != nil {
		return 0, err
	}
	for i := range n {
		c, err := connect(ctx, t.addr, fmt.Sprintf("idle-%d", i))
		if err != nil {
			return 0, fmt.Errorf("connection %d: %w", i, err)
		}
		defer c.Close()
		if err := c.subscribe(topic, 1); err != nil {
			return 0, err
		}
		c.r = nil
	}
	select {
	case <-time.After(5 * time.Second): // what was allocated on the way may be collected
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	after, err := resident(t.pid)
	if err != nil {
		return 0, err
	}
	return float64(after-before) / float64(n), nil
}

// resident is the resident memory of a process in bytes.
func resident(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no VmRSS of process %d", pid)
}
