package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// restart has a broker keep n sessions, with a subscription each, and n
// retained messages, kills it, and gives the seconds from its next start until
// it is ready, all of them loaded.
func restart(ctx context.Context, t target, n int) (float64, error) {
	if err := errors.Join(keepSessions(ctx, t.addr, n), retain(ctx, t.addr, n)); err != nil {
		return 0, err
	}
	t.broker.Kill()
	if err := t.broker.Start(ctx); err != nil {
		return 0, err
	}
	for _, metric := range []string{"broker_sessions", "broker_retained"} {
		have, err := gauge(ctx, t.broker.Admin(), metric)
		if err != nil {
			return 0, err
		}
		if have != n {
			return 0, fmt.Errorf("%s is %d after a restart, want %d", metric, have, n)
		}
	}
	return t.broker.StartTook().Seconds(), nil
}

// hands is how many clients work at once.
const hands = 64

// keepSessions makes n sessions that outlive their connections.
func keepSessions(ctx context.Context, addr string, n int) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range hands {
		g.Go(func() error {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if err := keepSession(ctx, addr, fmt.Sprintf("kept-%d", i)); err != nil {
					return fmt.Errorf("session %d: %w", i, err)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func keepSession(ctx context.Context, addr, id string) error {
	c, err := connectWith(ctx, addr, mqtt.ConnectOptions{Version: mqtt.V311, ClientID: id, KeepAlive: 600})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.subscribe("kept/"+id, 1); err != nil {
		return err
	}
	_, err = c.Write(mqtt.AppendDisconnect(nil, mqtt.V311, mqtt.Success))
	return err
}

// retain publishes n retained messages.
func retain(ctx context.Context, addr string, n int) error {
	const batch = 100
	g, ctx := errgroup.WithContext(ctx)
	for hand := range hands {
		g.Go(func() error {
			c, err := connect(ctx, addr, fmt.Sprintf("retains-%d", hand))
			if err != nil {
				return err
			}
			defer c.Close()
			for i := hand; i < n; {
				out, sent := []byte(nil), 0
				for ; i < n && sent < batch; i += hands {
					sent++
					out = mqtt.AppendPublish(out, mqtt.V311, mqtt.Publish{
						QoS: 1, PacketID: uint16(sent), Retain: true, Topic: fmt.Appendf(nil, "kept/%d/state", i), Payload: make([]byte, payload),
					})
				}
				if _, err := c.Write(out); err != nil {
					return err
				}
				for range sent {
					if t, _, err := c.packet(nil); err != nil || t != mqtt.TypePuback {
						return fmt.Errorf("%s in place of PUBACK: %w", t, err)
					}
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// gauge reads a metric without labels.
func gauge(ctx context.Context, admin, name string) (value int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			var f float64
			_, err := fmt.Sscan(rest, &f)
			return int(f), err
		}
	}
	return 0, errors.Join(fmt.Errorf("no metric %s", name), lines.Err())
}
