package proxy

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// maxAnswer bounds what a backend may take to say yes or no.
const maxAnswer = 128 << 10

// await waits for the backend's answer to CONNECT. Where no CONNECT is read
// there is none to wait for.
func (s *session) await() *failure {
	if s.connect == nil {
		return nil
	}
	s.setBackendDeadline(time.Now().Add(s.options.ConnackTimeout))
	defer s.setBackendDeadline(time.Time{})
	answer := make([]byte, 0, 64)
	for {
		if len(answer) == cap(answer) {
			answer = append(answer, 0)[:len(answer)]
		}
		n, err := s.backendConn.Conn.Read(answer[len(answer):cap(answer)])
		answer = answer[:len(answer)+n]
		if n > 0 {
			whole, f := s.judge(answer)
			if whole || f != nil {
				return f
			}
		}
		if err != nil {
			return s.noAnswer(err, len(answer))
		}
	}
}

// judge looks at what the backend has said so far; whole says that it was
// enough to know.
func (s *session) judge(answer []byte) (whole bool, f *failure) {
	ack, _, err := mqtt.ParseConnack(answer, s.connect.Version)
	switch {
	case errors.Is(err, mqtt.ErrShort) && len(answer) < maxAnswer:
		return false, nil
	case s.connect.Version == mqtt.V5 && isAuth(answer):
		// Enhanced authentication (5.0 §4.12) comes before CONNACK: let both
		// talk, and look out for CONNACK meanwhile.
		s.answer, s.watch = answer, &connackWatch{}
		return true, nil
	case err != nil:
		return true, s.badAnswer(err)
	}
	s.options.Reports.Answered(s.backend)
	s.answer = answer
	if !ack.Accepted() {
		// Nothing behind a refused CONNECT takes effect [MQTT-3.1.4-5]: what is
		// held goes nowhere, and the client reads the backend's own words.
		return true, &failure{stage: StageConnack, by: ByBackend, why: Refused, pass: answer}
	}
	if ack.HasServerKeepAlive {
		s.connect.KeepAlive = ack.ServerKeepAlive // [MQTT-3.1.2-21]
	}
	return true, nil
}

func isAuth(b []byte) bool { return len(b) > 0 && mqtt.PacketType(b[0]>>4) == mqtt.TypeAuth }

// noAnswer is an end of the backend's bytes before its answer was whole.
func (s *session) noAnswer(err error, got int) *failure {
	why := whyOf(err)
	switch {
	case why == Timeout:
		why = NoConnack
	case got == 0:
		why = ClosedEarly
	}
	f := s.sayNo(StageConnack, why, mqtt.ServerUnavailable, "the backend did not answer")
	f.by = ByBackend
	f.err = fmt.Errorf("await CONNACK of %s after %d bytes: %w", s.backend.Name, got, err)
	if err == io.EOF {
		f.err = fmt.Errorf("await CONNACK of %s: closed after %d bytes", s.backend.Name, got)
	}
	return f
}

func (s *session) badAnswer(err error) *failure {
	f := s.sayNo(StageConnack, BadConnack, mqtt.ServerUnavailable, "the backend's answer was no CONNACK")
	f.by, f.err = ByBackend, fmt.Errorf("answer of %s to CONNECT: %w", s.backend.Name, err)
	return f
}

func (s *session) setBackendDeadline(t time.Time) {
	_ = s.backendConn.Conn.SetReadDeadline(t)
	s.wakeIfKicked(s.backendConn)
}
