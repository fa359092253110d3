package proxy

import (
	"testing"

	"github.com/mqttlb/mqttlb/pkg/listen"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

func TestAddressOverItsBoundsIsToldSo(t *testing.T) {
	for _, c := range []struct {
		what   string
		limit  listen.Limit
		answer mqtt.Reason
		why    Why
	}{
		{"connections held", listen.Limit{Connections: 1}, mqtt.QuotaExceeded, AddressLimit},
		{"connections opened", listen.Limit{Rate: 0.001}, mqtt.ConnectionRateExceeded, AddressRate},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := newRig(t, []string{echo(t)}, func(o *Options, _ *PoolOptions) { o.PerAddress = c.limit })
			first := r.dial()
			first.send(connect311("dev-1"))
			first.expect(connack311)

			second := r.dial()
			second.send(connect5("dev-2"))
			answer, _ := second.rest()
			ack, _, err := mqtt.ParseConnack(answer, mqtt.V5)
			if err != nil || ack.Reason() != c.answer || len(ack.ReasonString) == 0 {
				t.Errorf("the second connection was told %v %q (%v), want %v", ack.Reason(), ack.ReasonString, err, c.answer)
			}
			if e := r.end(); e.Stage != StageAdmit || e.Why != c.why {
				t.Errorf("end at %s, %s", e.Stage, e.Why)
			}
		})
	}
}

// Which of the two bounds it was is said even where the client is told nothing.
func TestAddressFarOverItsBoundsIsNotEvenListenedTo(t *testing.T) {
	for _, tt := range []struct {
		what  string
		limit listen.Limit
		why   Why
	}{
		{"connections held", listen.Limit{Connections: 1}, AddressLimit},
		{"connections opened", listen.Limit{Rate: 0.001}, AddressRate},
	} {
		t.Run(tt.what, func(t *testing.T) {
			r := newRig(t, []string{echo(t)}, func(o *Options, _ *PoolOptions) { o.PerAddress = tt.limit })
			welcome := r.dial()
			welcome.send(connect311("dev"))
			welcome.expect(connack311)
			told, away := r.dial(), r.dial()
			e := r.ended(StageAdmit, ByMqttlb, tt.why)
			if e.Answer != mqtt.Success {
				t.Errorf("told %s", e.Answer)
			}
			if e.Source.String() == told.LocalAddr().String() { // whoever was the second
				told, away = away, told
			}
			if b, _ := away.rest(); len(b) > 0 {
				t.Errorf("got % x", b)
			}
			told.send(connect5("dev"))
			told.expect([]byte{0x20})
		})
	}
}
