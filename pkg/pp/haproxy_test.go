package pp

import (
	"net/netip"
	"testing"
)

// The header that this package must understand before all others, and what it
// says: names, their order, the checksum and verify 0 without a certificate.
func TestParse_WhatHAProxySends(t *testing.T) {
	type want struct {
		version             int
		command             Command
		source, destination string
		alpn, sni, uniqueID string
		ssl                 SSL
		verified            bool
	}
	rsa := SSL{Client: true, Version: "TLSv1.2", Cipher: "ECDHE-RSA-AES256-GCM-SHA384", SigAlg: "RSA-SHA256", KeyAlg: "RSA2048"}
	mutual := func(s SSL) SSL {
		s.CertConn, s.CertSess, s.CN = true, true, "dev-000001"
		return s
	}
	ec := SSL{Client: true, Version: "TLSv1.3", Cipher: "TLS_AES_256_GCM_SHA384", SigAlg: "ecdsa-with-SHA256", KeyAlg: "EC256"}
	wants := map[string]want{
		"tls12-rsa-client-certificate": {2, Proxy, "127.0.0.1:33082", "127.0.0.1:24001",
			"mqtt", "broker.example", "127.0.0.1-33082", mutual(rsa), true},
		"tls12-rsa-no-client-certificate": {2, Proxy, "127.0.0.1:33094", "127.0.0.1:24001",
			"", "broker.example", "127.0.0.1-33094", rsa, false},
		"tls13-ec-client-certificate": {2, Proxy, "127.0.0.1:42186", "127.0.0.1:24002",
			"", "broker.example", "127.0.0.1-42186", mutual(ec), true},
		"plain":           {2, Proxy, "127.0.0.1:33172", "127.0.0.1:24003", "", "", "127.0.0.1-33172", SSL{}, false},
		"v1":              {1, Proxy, "127.0.0.1:54548", "127.0.0.1:24004", "", "", "", SSL{}, false},
		"health-check":    {version: 2, command: Local},
		"health-check-v1": {1, Proxy, "127.0.0.1:42694", "127.0.0.1:24012", "", "", "", SSL{}, false},
	}
	for _, s := range streams(t, "testdata/haproxy.hex") {
		t.Run(s.label, func(t *testing.T) {
			w, ok := wants[s.label]
			if !ok {
				t.Fatal("no expectation for this stream")
			}
			h, n, err := Parse(s.bytes, 0)
			if err != nil {
				t.Fatal(err)
			}
			if rest := string(s.bytes[n:]); rest != "" && rest != "x" {
				t.Errorf("left behind the header: %q", rest)
			}
			var source, destination netip.AddrPort
			if w.source != "" {
				source, destination = netip.MustParseAddrPort(w.source), netip.MustParseAddrPort(w.destination)
			}
			if h.Version != w.version || h.Command != w.command || h.Source != source || h.Destination != destination {
				t.Errorf("header %+v, want %+v", h, w)
			}
			for tlv, value := range map[TLVType]string{ALPN: w.alpn, Authority: w.sni, UniqueID: w.uniqueID} {
				if got, _ := h.TLV(tlv); string(got) != value {
					t.Errorf("%v: %q, want %q", tlv, got, value)
				}
			}
			value, ok := h.TLV(SSLInfo)
			if !ok {
				if w.ssl != (SSL{}) {
					t.Error("no SSL TLV")
				}
				return
			}
			ssl, err := ParseSSL(value)
			if err != nil || ssl != w.ssl || ssl.Verified() != w.verified {
				t.Errorf("SSL %+v, %v\nwant %+v", ssl, err, w.ssl)
			}
			if again := ssl.TLV(); string(again.Value) != string(value) {
				t.Errorf("SSL TLV\nthis package writes %x\nHAProxy             %x", again.Value, value)
			}
		})
	}
}
