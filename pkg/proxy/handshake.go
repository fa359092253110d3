package proxy

import (
	"crypto/tls"
	"errors"
	"time"

	"github.com/mqttlb/mqttlb/pkg/listen"
)

// handshake terminates TLS, or looks at the ClientHello of what stays
// encrypted.
func (s *session) handshake() *failure {
	switch s.server.opts.Mode {
	case Terminate:
		return s.terminate()
	case Passthrough:
		return s.peekHello()
	default:
		return nil
	}
}

func (s *session) terminate() *failure {
	begun := time.Now()
	err := s.client.Handshake(s.server.opts.TLS)
	if err != nil {
		f := s.broken(StageHandshake, err)
		if f.why == Failed {
			f.by, f.why = whyTLS(err)
		}
		if f.why != NoBytes {
			s.server.opts.Observer.Handshaken(Handshake{Listener: s.server.opts.Name, Took: time.Since(begun), Failure: f.why})
		}
		return f
	}
	state := s.client.TLS
	s.start.TLSVersion = state.Version
	s.start.Resumed = state.DidResume
	s.start.SNI = state.ServerName
	if len(state.PeerCertificates) > 0 {
		s.start.CertCN = state.PeerCertificates[0].Subject.CommonName
	}
	s.server.opts.Observer.Handshaken(Handshake{Listener: s.server.opts.Name, Resumed: state.DidResume, Took: time.Since(begun)})
	return nil
}

// whyTLS tells the failures apart that have different remedies.
func whyTLS(err error) (Side, Why) {
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return ByMqttlb, NotTLS
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return ByMqttlb, BadCertificate
	}
	if errors.Is(err, listen.ErrNoCertificate) {
		return ByMqttlb, NoCertificate
	}
	return ByClient, TLSFailed
}

func (s *session) peekHello() *failure {
	if err := s.client.ReadHello(); err != nil {
		f := s.broken(StageConnect, err)
		if f.why == Failed {
			f.by, f.why = ByMqttlb, NotTLS
		}
		return f
	}
	s.start.SNI = s.client.ClientHello.ServerName
	return nil
}
