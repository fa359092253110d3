package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// takeover gives a percentile of the milliseconds from CONNECT to CONNACK of a
// client that connects anew, count times, while it is connected: in a cluster
// each time to the next node. Its session has a subscription, and a message that
// it has not acknowledged.
func takeover(ctx context.Context, t target, count, percentile int) (float64, error) {
	const id, of = "moving", "bench/takeover"
	session := mqtt.ConnectOptions{Version: mqtt.V311, ClientID: id, KeepAlive: 600}
	c, err := connectWith(ctx, t.addr, session)
	if err != nil {
		return 0, err
	}
	defer func() { c.Close() }()
	if err := c.subscribe(of, 1); err != nil {
		return 0, err
	}
	p, err := connect(ctx, t.addr, "publisher")
	if err != nil {
		return 0, err
	}
	defer p.Close()
	if _, err := p.Write(mqtt.AppendPublish(nil, mqtt.V311, mqtt.Publish{QoS: 1, PacketID: 1, Topic: []byte(of), Payload: make([]byte, payload)})); err != nil {
		return 0, err
	}
	if err := c.expect(mqtt.TypePublish); err != nil {
		return 0, err
	}
	took := make([]time.Duration, 0, count)
	for i := range count {
		begun := time.Now()
		next, err := connectWith(ctx, t.at(i+1), session)
		if err != nil {
			return 0, fmt.Errorf("takeover %d: %w", i, err)
		}
		took = append(took, time.Since(begun))
		c.Close()
		c = next
		if err := c.expect(mqtt.TypePublish); err != nil { // the session came along
			return 0, fmt.Errorf("takeover %d: %w", i, err)
		}
	}
	slices.Sort(took)
	return float64(took[(count-1)*percentile/100].Microseconds()) / 1000, nil
}

// expect reads one packet, of this type.
func (c *client) expect(want mqtt.PacketType) error {
	t, _, err := c.packet(nil)
	if err == nil && t != want {
		err = fmt.Errorf("%s in place of %s", t, want)
	}
	return err
}
