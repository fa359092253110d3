package proxy

import (
	"time"

	"github.com/mqttlb/mqttlb/pkg/listen"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// excess is a bound that a connection is over. Just over it, a client is let in
// as far as CONNECT, to be told in its own protocol; what comes further over
// is closed at once, before TLS has cost anything. The zero excess is none.
type excess struct {
	why    Why
	answer mqtt.Reason
	say    string
}

var (
	overListener = excess{Limit, mqtt.QuotaExceeded, "the listener's connection limit is reached"}
	overAddress  = excess{AddressLimit, mqtt.QuotaExceeded, "too many connections from this address"}
	overRate     = excess{AddressRate, mqtt.ConnectionRateExceeded, "too many new connections from this address"}
)

// limit applies the bounds of the client's address, as soon as that is known.
func (s *session) limit() *failure {
	entry := s.server.addresses.Enter(s.client.Source.Addr(), time.Now())
	s.counted = !entry.Away()
	switch entry {
	case listen.TooMany:
		s.over = overAddress
	case listen.TooFast:
		s.over = overRate
	case listen.FarTooMany:
		return &failure{stage: StageAdmit, by: ByMqttlb, why: overAddress.why}
	case listen.FarTooFast:
		return &failure{stage: StageAdmit, by: ByMqttlb, why: overRate.why}
	}
	return nil
}

// admit refuses what is over a bound, now that the client can read why.
func (s *session) admit() *failure {
	if s.over.why != "" {
		return s.sayNo(StageAdmit, s.over.why, s.over.answer, s.over.say)
	}
	return nil
}

// sayNo is a refusal of ours, in the client's own words where it has said
// CONNECT.
func (s *session) sayNo(stage Stage, why Why, answer mqtt.Reason, say string) *failure {
	f := &failure{stage: stage, by: ByMqttlb, why: why}
	if s.connect != nil {
		f.answer, f.in, f.say, f.most = answer, s.connect.Version, say, s.connect.MaximumPacketSize
	}
	return f
}
