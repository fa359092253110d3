package proxy

import (
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// How long, and for how many bytes, a refused client is listened to, so that
// what it sent behind its CONNECT does not turn our close into a reset that
// takes the answer away.
const (
	refusalPatience = time.Second
	refusalLimit    = 64 << 10
)

// unrecognizedName is the TLS alert record for a server name that nobody
// serves (fatal, 112; RFC 6066 §3), for passthrough, where no TLS is ours.
var unrecognizedName = []byte{0x15, 0x03, 0x01, 0x00, 0x02, 0x02, 0x70}

// refuse ends a connection that was not set up: with CONNACK in the client's
// version after a whole CONNECT, with an alert after a ClientHello that leads
// nowhere, else by just closing.
func (s *session) refuse(f *failure) {
	defer s.client.Release()
	answer := s.refusal(f)
	if len(answer) == 0 {
		f.answer = mqtt.Success
		if f.why == TLSFailed || f.why == BadCertificate || f.why == NoCertificate {
			// crypto/tls has said why in an alert, which is an answer, too.
			s.client.CloseLingering(refusalPatience, refusalLimit)
			return
		}
		s.client.Close()
		return
	}
	_ = s.client.Conn.SetDeadline(time.Now().Add(refusalPatience))
	if _, err := s.client.Conn.Write(answer); err != nil {
		s.client.Close()
		return
	}
	s.client.CloseLingering(refusalPatience, refusalLimit)
}

// refusal is what to write; empty for nothing.
func (s *session) refusal(f *failure) []byte {
	switch {
	case f.pass != nil:
		return f.pass
	case f.why == NoRoute && s.client.ClientHello != nil:
		return unrecognizedName
	case f.answer == mqtt.Success:
		return nil
	}
	answer := mqtt.AppendConnackReason(nil, f.in, f.answer, f.say)
	if f.fits(answer) {
		return answer
	}
	answer = mqtt.AppendConnack(nil, f.in, f.answer) // [MQTT-3.2.2-19]
	if f.fits(answer) {
		return answer
	}
	return nil
}

// fits says whether the client's Maximum Packet Size allows b [MQTT-3.1.2-24].
func (f *failure) fits(b []byte) bool { return f.most == 0 || len(b) <= int(f.most) }
