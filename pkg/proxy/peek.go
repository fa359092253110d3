package proxy

import (
	"errors"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// readsConnect says whether this listener sees the CONNECT of its clients.
func (o *Options) readsConnect() bool {
	return o.Protocol == MQTT && o.Mode != Passthrough
}

// peek reads until CONNECT is whole. It is forwarded as it came, bridge bit and
// all; what stands behind it is held back. Other protocols are not looked at:
// whatever has come by now opens the connection to the backend.
func (s *session) peek() *failure {
	if !s.server.opts.readsConnect() {
		s.opening = s.client.Pending()
		return nil
	}
	var connect mqtt.Connect
	var size int
	err := s.client.ReadWhole(s.server.opts.MaxConnectSize, mqtt.ErrShort, func(b []byte) (int, error) {
		var err error
		connect, size, err = mqtt.ParseConnect(b, s.server.opts.MaxConnectSize)
		return size, err
	})
	s.start.ClientID, s.start.Version = string(connect.ClientID), connect.Version // as far as they are known
	if err != nil {
		return s.badConnect(err, connect.MaximumPacketSize)
	}
	s.connect = &connect
	pending := s.client.Pending()
	s.opening, s.held = pending[:size:size], pending[size:]
	return nil
}

// badConnect turns a parser's verdict into an end, with an answer where the
// client's version is known. most is the Maximum Packet Size, if the parser came
// that far.
func (s *session) badConnect(err error, most uint32) *failure {
	bad, ok := errors.AsType[*mqtt.ConnectError](err)
	if !ok {
		return s.broken(StageConnect, err)
	}
	f := &failure{stage: StageConnect, by: ByMqttlb, why: whyConnect(bad), err: err}
	if bad.Version != 0 {
		f.answer, f.in, f.say, f.most = bad.Reason, bad.Version, bad.Detail, most
	}
	return f
}

func whyConnect(bad *mqtt.ConnectError) Why {
	if bad.Version == 0 {
		return NotMQTT
	}
	switch bad.Reason {
	case mqtt.ProtocolError:
		return ProtocolError
	case mqtt.UnsupportedProtocolVersion:
		return UnsupportedVersion
	case mqtt.ClientIdentifierNotValid:
		return IdentifierRejected
	case mqtt.PacketTooLarge:
		return TooLarge
	default:
		return Malformed
	}
}
