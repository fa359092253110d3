package proxy

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/mqttlb/mqttlb/pkg/pp"
)

// appendHeader writes what the backend is told of the client, in the version
// that its pool asks for.
func (s *session) appendHeader(dst []byte) ([]byte, error) {
	switch s.options.Header {
	case HeaderV1:
		return pp.AppendV1(dst, s.client.Source, s.client.Destination), nil
	case HeaderV2:
		h := pp.Header{Version: 2, Command: pp.Proxy, Source: s.client.Source, Destination: s.client.Destination, TLVs: s.tlvs()}
		return pp.AppendV2(dst, h, s.options.TLVs.CRC32C)
	default:
		return dst, nil
	}
}

// tlvs are ours first, then those that came with the client's own header and
// that ours do not replace.
func (s *session) tlvs() []pp.TLV {
	var out []pp.TLV
	add := func(t pp.TLVType, value []byte) {
		if len(value) > 0 {
			out = append(out, pp.TLV{Type: t, Value: value})
		}
	}
	want := s.options.TLVs
	if want.ALPN && s.client.TLS != nil {
		add(pp.ALPN, []byte(s.client.TLS.NegotiatedProtocol))
	}
	if want.Authority {
		add(pp.Authority, []byte(s.start.SNI))
	}
	if want.UniqueID && s.upstream(pp.UniqueID) == nil {
		add(pp.UniqueID, hex.AppendEncode(nil, binary.BigEndian.AppendUint64(nil, s.start.ID)))
	}
	if want.SSL && s.client.TLS != nil {
		out = append(out, pp.SSLFromState(s.client.TLS, s.client.Shown).TLV())
	}
	if s.client.Header == nil {
		return out
	}
	ours := len(out)
	for _, t := range s.client.Header.TLVs {
		if s.passes(t.Type) && find(out[:ours], t.Type) == nil {
			out = append(out, t)
		}
	}
	return out
}

// passes says whether a TLV of the client's header goes on to the backend. What
// says who the client is counts only if it comes from a sender whom the
// configuration trusts for that, and never if TLS ends here: then the identity
// is ours to tell.
func (s *session) passes(t pp.TLVType) bool {
	switch t {
	case pp.CRC32C, pp.NoOp: // belong to the header that they came in
		return false
	default:
		return !t.Identity() || s.server.opts.Accept.TrustIdentity && s.server.opts.Mode != Terminate
	}
}

// upstream is a TLV of the header that the client's connection began with.
func (s *session) upstream(t pp.TLVType) *pp.TLV {
	if s.client.Header == nil {
		return nil
	}
	return find(s.client.Header.TLVs, t)
}

func find(tlvs []pp.TLV, t pp.TLVType) *pp.TLV {
	for i := range tlvs {
		if tlvs[i].Type == t {
			return &tlvs[i]
		}
	}
	return nil
}
