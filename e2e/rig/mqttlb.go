package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// MqttlbOptions says which mqttlb is started, and how. All but LogFile are needed.
type MqttlbOptions struct {
	Binary  string
	Config  string // file
	Admin   string // the admin address in Config
	LogFile string
}

// StartMqttlb starts `mqttlb run` and returns when its /readyz says ready.
func StartMqttlb(ctx context.Context, o MqttlbOptions) (*Process, error) {
	p, err := Start(Command{
		Name:    "mqttlb",
		Path:    o.Binary,
		Args:    []string{"run", "-c", o.Config},
		LogFile: o.LogFile,
	})
	if err != nil {
		return nil, err
	}
	if err := waitReady(ctx, p, o.Admin); err != nil {
		p.Kill()
		return nil, fmt.Errorf("mqttlb does not get ready: %w; the last lines of its log are\n%s", err, p.Log().Tail(20))
	}
	return p, nil
}

// waitReady asks /readyz until it answers 200, the process ends, or ctx does.
// Readiness has no event to wait for from outside.
func waitReady(ctx context.Context, p *Process, admin string) error {
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	last := errors.New("not asked yet")
	for {
		select {
		case <-tick.C:
		case <-p.Done():
			return errEnded
		case <-ctx.Done():
			return fmt.Errorf("%w; /readyz: %w", context.Cause(ctx), last)
		}
		if last = ask(ctx, client, "http://"+admin+"/readyz"); last == nil {
			return nil
		}
	}
}

func ask(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1024))
		return fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(b)))
	}
	return nil
}
