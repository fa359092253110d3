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

func TestAddressFarOverItsRateIsNotEvenListenedTo(t *testing.T) {
	r := newRig(t, []string{echo(t)}, func(o *Options, _ *PoolOptions) { o.PerAddress = listen.Limit{Rate: 0.001} })
	for range 2 { // one is welcome, one is told
		p := r.dial()
		p.send(connect311("dev"))
		p.expect([]byte{0x20})
	}
	p := r.dial()
	if b, _ := p.rest(); len(b) > 0 {
		t.Errorf("got % x", b)
	}
	for e := r.end(); e.Why != AddressLimit; e = r.end() {
		if e.Why != AddressRate {
			t.Errorf("end %s at %s", e.Why, e.Stage)
		}
	}
}
