package proxy

import "github.com/mqttlb/mqttlb/pkg/mqtt"

// admit applies the limits whose refusal a client should be able to read.
func (s *session) admit() *failure {
	if s.over {
		return s.sayNo(StageAdmit, Limit, mqtt.QuotaExceeded, "the listener's connection limit is reached")
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
