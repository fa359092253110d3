package proxy

import (
	"errors"

	"github.com/mqttlb/mqttlb/pkg/listen"
)

// readHeader reads the PROXY header that stands first, where this listener takes
// them.
func (s *session) readHeader() *failure {
	if s.server.opts.Accept == nil {
		return nil
	}
	err := s.client.ReadHeader(s.server.opts.Accept)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, listen.ErrUntrusted):
		return &failure{stage: StageHeader, by: ByMqttlb, why: UntrustedPeer, err: err}
	}
	f := s.broken(StageHeader, err)
	if f.why == Failed || f.why == TooLarge {
		f.by, f.why = ByMqttlb, BadHeader
	}
	return f
}
