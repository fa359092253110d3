package broker

import (
	"testing"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// Whoever connects and says nothing takes a slot like anybody else, so half-open
// set-ups are bounded. A reserve beyond the bound is let in as far as CONNECT, to
// be told; the rest is closed at once.
func TestTheConnectionLimitCountsFromAcceptOn(t *testing.T) {
	const limit, reserve = 2, 16
	for _, row := range []struct {
		v    mqtt.Version
		code byte
	}{{mqtt.V311, 3}, {mqtt.V5, byte(mqtt.QuotaExceeded)}} {
		t.Run(row.v.String(), func(t *testing.T) {
			n := newNode(t)
			n.stop()
			n.listen.MaxConnections = limit
			n.start()
			var mute []*device
			for range limit {
				mute = append(mute, n.dial(row.v))
			}
			eventually(t, "they are accepted", func() bool { return n.b.connections() == limit })
			d, ack := n.connect(mqtt.ConnectOptions{Version: row.v, ClientID: "one-more", CleanStart: true})
			if ack.Code != row.code {
				t.Errorf("told 0x%02x beside %d that say nothing, want 0x%02x", ack.Code, limit, row.code)
			}
			d.gone()
			if e := <-n.ends; e.Stage != StageAdmit || e.Why != Refused || e.By != ByBroker {
				t.Errorf("end %+v", e)
			}

			for range reserve {
				mute = append(mute, n.dial(row.v))
			}
			eventually(t, "the reserve is taken", func() bool { return n.b.connections() == limit+reserve })
			if typ, p := n.dial(row.v).any(); typ != 0 {
				t.Errorf("% x beyond the reserve, want the end", p)
			}
			if e := <-n.ends; e.Stage != StageAdmit || e.Why != Refused || e.By != ByBroker {
				t.Errorf("end %+v", e)
			}

			for _, m := range mute {
				m.Close()
			}
			eventually(t, "they are gone", func() bool { return n.b.connections() == 0 })
			if _, ack := n.connect(mqtt.ConnectOptions{Version: row.v, ClientID: "d", CleanStart: true}); !ack.Accepted() {
				t.Errorf("told 0x%02x after all have left", ack.Code)
			}
		})
	}
}

// connections are those that were accepted and are not over.
func (b *Broker) connections() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.links)
}
