package rig

import (
	"context"
	"errors"
	"fmt"
)

// Star is a set of mosquitto brokers whose clients all hear each other. The
// first is the hub; each other one, a spoke, keeps one bridge to it that
// carries every topic both ways. No message goes round: a broker never sends
// to a bridge what came in by it, and there is only one way between any two.
//
// What a loss does:
//   - A spoke that ends is missed by nobody but its own clients. Started
//     again, it is back in the star as soon as its bridge is.
//   - While the hub is gone, clients of one spoke hear each other, those of
//     different spokes do not. Each spoke looks for it every five seconds
//     (mosquitto's own pace) and then delivers what was published at QoS 1
//     and 2 in the meantime.
//
// Sessions and retained messages stay where they are made; a bridge carries a
// retained message over once, when it comes up or the message is published.
type Star struct {
	Brokers []*Mosquitto // Brokers[0] is the hub
}

// StartStar starts one broker for each of the options, which need Dir and
// different names, and returns when any two clients hear each other.
func StartStar(ctx context.Context, brokers ...MosquittoOptions) (*Star, error) {
	s := &Star{}
	for i, o := range brokers {
		if i > 0 {
			o.Extra = append(bridge(o.Name, s.Brokers[0].Addr()), o.Extra...)
		}
		m, err := StartMosquitto(ctx, o)
		if err != nil {
			return nil, errors.Join(err, s.Stop())
		}
		s.Brokers = append(s.Brokers, m)
	}
	for i := 1; i < len(s.Brokers); i++ {
		if err := s.bridged(ctx, i, 0); err != nil {
			return nil, errors.Join(err, s.Stop())
		}
	}
	return s, nil
}

// bridge is what a spoke's configuration says of its bridge to the hub.
func bridge(spoke, hub string) []string {
	return []string{
		"connection hub",
		"address " + hub,
		"remote_clientid " + bridgeID(spoke),
		"topic # both 2", // QoS up to 2
		"try_private true",
		"notifications false",
		"cleansession false", // keeps QoS 1 and 2 over a pause
		"start_type automatic",
		"restart_timeout 1",
		"keepalive_interval 5",
	}
}

func bridgeID(spoke string) string { return "bridge-of-" + spoke }

// bridged waits until the hub has taken the subscription of a spoke's bridge:
// from then on both ways are open. Lines of the hub's log before from are of
// an older bridge.
func (s *Star) bridged(ctx context.Context, spoke, from int) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	id := bridgeID(s.Brokers[spoke].Name)
	if _, err := s.Brokers[0].Log().WaitFor(ctx, from, "Sending SUBACK to "+id); err != nil {
		return fmt.Errorf("bridge of %s to %s: %w", s.Brokers[spoke].Name, s.Brokers[0].Name, err)
	}
	return nil
}

// Restart starts broker i again after Stop or Kill, and returns when it is
// back in the star.
func (s *Star) Restart(ctx context.Context, i int) error {
	if i > 0 {
		from := s.Brokers[0].Log().Len()
		if err := s.Brokers[i].Start(ctx); err != nil {
			return err
		}
		return s.bridged(ctx, i, from)
	}
	if err := s.Brokers[0].Start(ctx); err != nil {
		return err
	}
	for spoke := 1; spoke < len(s.Brokers); spoke++ {
		if s.Brokers[spoke].Running() {
			if err := s.bridged(ctx, spoke, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// Stop stops the brokers, the spokes first.
func (s *Star) Stop() error {
	var errs []error
	for i := len(s.Brokers) - 1; i >= 0; i-- {
		errs = append(errs, s.Brokers[i].Stop())
	}
	return errors.Join(errs...)
}
