package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// crowd connects as many clients whose sessions last.
func (n *node) crowd(size int, v mqtt.Version) []*device {
	n.t.Helper()
	var all []*device
	for i := range size {
		o := mqtt.ConnectOptions{Version: v, ClientID: fmt.Sprintf("c%d", i)}
		if v == mqtt.V5 {
			o.Properties = expiring(3600)
		}
		d, _ := n.connect(o)
		all = append(all, d)
	}
	return all
}

func TestDrainLetsClientsGoAtItsPace(t *testing.T) {
	n := newNode(t)
	const clients, rate = 40, 100.0
	all := n.crowd(clients, mqtt.V5)
	begun := time.Now()
	if err := n.b.Drain(rate, 0); err != nil {
		t.Fatal(err)
	}
	left := make(chan time.Duration, clients)
	for _, d := range all {
		go func() {
			if told := d.gone(); told != mqtt.AdministrativeAction {
				t.Errorf("told %s, want 0x98", told)
			}
			left <- time.Since(begun)
		}()
	}
	var at []time.Duration
	for range clients {
		at = append(at, <-left)
	}
	slices.Sort(at)
	if whole := at[clients-1]; whole < clients*time.Second/rate*8/10 {
		t.Errorf("all were gone after %s, faster than %g a second", whole, rate)
	}
	// Evenly: the first half does not go in the first moment.
	if half := at[clients/2]; half < clients*time.Second/rate*3/10 {
		t.Errorf("half were gone after %s", half)
	}
	d := n.b.Draining()
	if !d.Active || d.Clients != clients || d.Remaining != 0 || d.Rate != rate {
		t.Errorf("progress %+v", d)
	}
	if s := n.b.Stats(); s.Sessions != clients {
		t.Errorf("%d sessions are left of %d", s.Sessions, clients)
	}
}

func TestDrainRefusesNewClientsAndMakesTheNodeNotReady(t *testing.T) {
	n := newNode(t)
	if err := n.b.Drain(1, 0); err != nil {
		t.Fatal(err)
	}
	if ready, why := n.b.Ready(); ready || !slices.Equal(why, []string{"draining"}) {
		t.Errorf("ready %t, %v", ready, why)
	}
	for v, want := range map[mqtt.Version]byte{mqtt.V5: 0x88, mqtt.V311: 3} {
		d, ack := n.connect(mqtt.ConnectOptions{Version: v, ClientID: "late", CleanStart: true})
		if ack.Code != want {
			t.Errorf("version %v: CONNACK 0x%02x, want 0x%02x", v, ack.Code, want)
		}
		d.gone()
	}
	if !n.b.CancelDrain() || n.b.CancelDrain() {
		t.Error("a drain can be cancelled once")
	}
	if ready, why := n.b.Ready(); !ready {
		t.Errorf("not ready after the drain was cancelled: %v", why)
	}
	if _, ack := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "late", CleanStart: true}); ack.Code != 0 {
		t.Errorf("CONNACK 0x%02x after the drain was cancelled", ack.Code)
	}
}

func TestDrainWithinATimeIsAsFastAsItTakes(t *testing.T) {
	n := newNode(t)
	all := n.crowd(20, mqtt.V311)
	if err := n.b.Drain(0.1, 200*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if d := n.b.Draining(); d.Rate != 100 {
		t.Errorf("rate %g, want 20 clients in 200 ms", d.Rate)
	}
	for _, d := range all {
		d.gone()
	}
}

func TestAnotherDrainChangesThePace(t *testing.T) {
	n := newNode(t)
	all := n.crowd(5, mqtt.V5)
	if err := n.b.Drain(0.001, 0); err != nil { // one in a quarter of an hour
		t.Fatal(err)
	}
	if err := n.b.Drain(1000, 0); err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		d.gone()
	}
	if d := n.b.Draining(); d.Clients != 5 || d.Rate != 1000 {
		t.Errorf("progress %+v", d)
	}
}

// What a slow drain has waited is not made up for at the new pace.
func TestAFasterPaceBeginsWhenItIsAskedFor(t *testing.T) {
	n := newNode(t)
	all := n.crowd(10, mqtt.V5)
	if err := n.b.Drain(0.001, 0); err != nil {
		t.Fatal(err)
	}
	begun := n.b.Draining().Since
	eventually(t, "300 ms go by", func() bool { return time.Since(begun) > 300*time.Millisecond })
	asked := time.Now()
	if err := n.b.Drain(50, 0); err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		d.gone()
	}
	if took := time.Since(asked); took < 150*time.Millisecond {
		t.Errorf("10 clients at 50 a second were gone after %s", took)
	}
}

func TestDrainNamesAnotherServerIfThereIsOne(t *testing.T) {
	n := newNode(t, func(o *Options) { o.Redirect = "mqtt.example.com:1883" })
	d, _ := n.connect(mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "c", CleanStart: true})
	if err := n.b.Drain(1000, 0); err != nil {
		t.Fatal(err)
	}
	bye, _, err := mqtt.ParseDisconnect(d.next(mqtt.TypeDisconnect), mqtt.V5, mqtt.FromServer)
	if err != nil {
		t.Fatal(err)
	}
	if bye.Reason != mqtt.UseAnotherServer || string(bye.ServerReference) != "mqtt.example.com:1883" {
		t.Errorf("DISCONNECT %+v", bye)
	}
}

func TestDrainWithoutAPaceIsRefused(t *testing.T) {
	n := newNode(t)
	for _, row := range []struct {
		rate   float64
		within time.Duration
	}{{0, 0}, {-1, 0}, {0, -time.Second}} {
		if err := n.b.Drain(row.rate, row.within); err == nil || !strings.Contains(err.Error(), "it takes one of the two") {
			t.Errorf("%+v: %v", row, err)
		}
	}
	if n.b.Draining().Active {
		t.Error("it drains")
	}
}

func TestShutdownEndsADrain(t *testing.T) {
	n := newNode(t)
	n.crowd(3, mqtt.V5)
	if err := n.b.Drain(0.001, 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := n.b.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	if n.b.Draining().Active {
		t.Error("it drains still")
	}
	if err := n.b.Drain(1, 0); err == nil {
		t.Error("a drain after the end")
	}
}
