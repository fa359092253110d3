package proxy

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/listen"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
	"github.com/mqttlb/mqttlb/pkg/pp"
)

const (
	trusted   = "192.0.2.50:5000"
	untrusted = "203.0.113.50:5000"
)

// acceptProxy makes a listener demand PROXY headers from trusted peers and from
// this machine.
func acceptProxy(trustIdentity bool) setup {
	return func(o *Options, _ *PoolOptions) {
		o.Accept = &listen.ProxyPolicy{
			From:          []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("127.0.0.0/8")},
			TrustIdentity: trustIdentity,
		}
	}
}

// splitHeader takes the PROXY header off a stream of a case file.
func splitHeader(tb testing.TB, b []byte) (header, rest []byte) {
	tb.Helper()
	_, n, err := pp.Parse(b, 0)
	if err != nil {
		tb.Fatal(err)
	}
	return b[:n], b[n:]
}

func TestHeaderCutAtEveryByteGivesTheClientsAddress_C011(t *testing.T) {
	onBothFronts(t, func(t *testing.T, front setup, wrap func(*peer) *peer) {
		address, connects := recorder(t)
		r := build(t, []string{address}, front, acceptProxy(false))
		defer r.close()
		streams := readCase(t, "C011")
		big, err := pp.AppendV2(nil, pp.Header{Command: pp.Proxy,
			Source: netip.MustParseAddrPort("192.0.2.10:40001"), Destination: netip.MustParseAddrPort("198.51.100.5:8883"),
			TLVs: []pp.TLV{{Type: pp.SubjectDN, Value: make([]byte, 2000)}}}, false)
		if err != nil {
			t.Fatal(err)
		}
		_, connect := splitHeader(t, streams[0].bytes)
		streams = append(streams, stream{"v2-2-kilobytes", nil, append(big, connect...)})
		for _, s := range streams {
			t.Run(s.label, func(t *testing.T) {
				header, connect := splitHeader(t, s.bytes)
				want, _, _ := pp.Parse(header, 0)
				for k := 1; k < len(header); k += 1 + len(header)/100 {
					c := r.pipe(trusted)
					c.send(header[:k])
					c.send(header[k:])
					c = wrap(c)
					how, got := outcome(r, c, connects, connect)
					c.Close()
					e := r.end()
					if how != "accept" || !bytes.Equal(got, connect) || e.Source != want.Source || e.Peer.String() != trusted {
						t.Fatalf("cut at %d: %s from %s by way of %s: %v", k, how, e.Source, e.Peer, e.Err)
					}
				}
			})
		}
	})
}

// The header and what follows it may come in one read: whoever reads next gets
// the rest.
func TestHeaderAndTheRestInOneWrite_C011(t *testing.T) {
	address, connects := recorder(t)
	r := build(t, []string{address}, acceptProxy(false))
	defer r.close()
	for _, s := range readCase(t, "C011") {
		c := r.pipe(trusted)
		_, connect := splitHeader(t, s.bytes)
		if how, got := outcome(r, c, connects, s.bytes); how != "accept" || !bytes.Equal(got, connect) {
			t.Errorf("%s: %s", s.label, how)
		}
		c.Close()
		r.end()
	}
}

func TestLocalHeaderLeavesTheSocketsAddress_C012(t *testing.T) {
	onBothFronts(t, func(t *testing.T, front setup, wrap func(*peer) *peer) {
		address, connects := recorder(t)
		r := build(t, []string{address}, front, acceptProxy(false))
		defer r.close()
		for _, s := range readCase(t, "C012") {
			header, connect := splitHeader(t, s.bytes)
			c := r.pipe(trusted)
			c.send(header)
			c = wrap(c)
			how, got := outcome(r, c, connects, connect)
			c.Close()
			if e := r.end(); how != "accept" || !bytes.Equal(got, connect) || e.Source.String() != trusted {
				t.Errorf("%s: %s, source %s, %v", s.label, how, e.Source, e.Err)
			}
		}
	})
}

func TestWhoMaySendAHeader_C014(t *testing.T) {
	header := []byte("PROXY TCP4 198.51.100.77 198.51.100.5 40001 1883\r\n")
	connect := connect311("pp1")
	for _, tt := range []struct {
		name, peer string
		off        bool // the listener takes no header
		send       []byte
		stage      Stage
		by         Side
		why        Why
		source     string
	}{
		{"a: trusted peer, valid header", trusted, false, slices.Concat(header, connect), StageRelay, ByClient, Closed, "198.51.100.77:40001"},
		{"b: trusted peer, no header", trusted, false, connect, StageHeader, ByMqttlb, BadHeader, trusted},
		{"c: untrusted peer with header", untrusted, false, slices.Concat(header, connect), StageHeader, ByMqttlb, UntrustedPeer, untrusted},
		{"d: untrusted peer, plain MQTT", untrusted, false, connect, StageHeader, ByMqttlb, UntrustedPeer, untrusted},
		{"e: listener without, header sent", trusted, true, slices.Concat(header, connect), StageConnect, ByMqttlb, NotMQTT, trusted},
		{"f: header twice", trusted, false, slices.Concat(header, header, connect), StageConnect, ByMqttlb, NotMQTT, "198.51.100.77:40001"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			address, connects := recorder(t)
			setups := []setup{acceptProxy(false)}
			if tt.off {
				setups = nil
			}
			r := build(t, []string{address}, setups...)
			defer r.close()
			c := r.pipe(tt.peer)
			go func() { _, _ = c.Write(tt.send) }() // may be cut off
			if tt.stage == StageRelay {
				c.expect(connack311)
				c.Close()
			} else if b, _ := c.rest(); len(b) > 0 {
				t.Errorf("answered % x", b)
			}
			e := r.ended(tt.stage, tt.by, tt.why)
			if e.Source.String() != tt.source || e.Peer.String() != tt.peer {
				t.Errorf("source %s, peer %s", e.Source, e.Peer)
			}
			if tt.stage != StageRelay {
				if len(connects) > 0 || e.Backend != "" {
					t.Error("a backend was dialled")
				}
				if log := r.log.String(); !strings.Contains(log, "client="+tt.source) {
					t.Errorf("the log does not name the address %s: %s", tt.source, log)
				}
			}
		})
	}
}

// A balancer in front checks us by sending a header and leaving.
func TestHeaderWithoutAClientsByteIsAHealthCheck_C018(t *testing.T) {
	r := build(t, []string{closedPort(t)}, acceptProxy(false))
	defer r.close()
	for _, s := range append(readCase(t, "C012"), readCase(t, "C011")...) {
		header, _ := splitHeader(t, s.bytes)
		c := r.pipe(trusted)
		c.send(header)
		c.Close()
		r.ended(StageConnect, ByClient, NoBytes)
	}
	if lines := r.log.above("DEBUG"); len(lines) > 0 {
		t.Errorf("logged %q", lines)
	}
}

// What a backend is told of upstream's TLVs.
func TestTLVsOfTheClientsHeaderPassOn(t *testing.T) {
	identity := []pp.TLV{
		{Type: pp.SSLInfo, Value: pp.SSL{Client: true, CertConn: true, CN: "mallory"}.TLV().Value},
		{Type: pp.SubjectDN, Value: []byte("CN=mallory")}, {Type: pp.SAN, Value: []byte("DNS:m")},
		{Type: pp.Serial, Value: []byte("1")}, {Type: pp.Fingerprint, Value: make([]byte, 32)},
	}
	plain := []pp.TLV{{Type: pp.UniqueID, Value: []byte("upstream-7")}, {Type: 0xE0, Value: []byte("own")}, {Type: pp.Authority, Value: []byte("up.example")}}
	for _, tt := range []struct {
		name  string
		trust bool
		mode  Mode
		pass  bool
	}{
		{"off, not trusted", false, Plain, false},
		{"off, trusted", true, Plain, true},
		{"terminate, trusted", true, Terminate, false},
		{"passthrough, not trusted", false, Passthrough, false},
		{"passthrough, trusted", true, Passthrough, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			headers := make(chan pp.Header, 1)
			address := serve(t, func(p *peer) {
				headers <- p.readHeader()
				if tt.mode == Passthrough {
					_ = p.overTLSServer().Close()
					return
				}
				p.readConnect()
				p.send(connack311)
				_, _ = p.rest()
			})
			all := TLVs{SSL: true, ALPN: true, Authority: true, UniqueID: true, CRC32C: true}
			r := build(t, []string{address}, acceptProxy(tt.trust), sendHeader(HeaderV2, all), func(o *Options, _ *PoolOptions) {
				o.Mode = tt.mode
				if tt.mode == Terminate {
					o.TLS = serverTLS()
				}
			})
			defer r.close()
			header, err := pp.AppendV2(nil, pp.Header{Command: pp.Proxy,
				Source: netip.MustParseAddrPort("198.51.100.77:40001"), Destination: netip.MustParseAddrPort("198.51.100.5:1883"),
				TLVs: slices.Concat(identity, plain)}, true)
			if err != nil {
				t.Fatal(err)
			}
			c := r.pipe(trusted)
			c.send(header)
			if tt.mode != Plain {
				c = c.overTLS(clientTLS())
			}
			if tt.mode != Passthrough {
				c.send(connect311("dev-1"))
				c.expect(connack311)
			}
			got := <-headers
			if got.Source.String() != "198.51.100.77:40001" || got.Destination.String() != "198.51.100.5:1883" {
				t.Errorf("addresses %s, %s", got.Source, got.Destination)
			}
			for _, id := range identity {
				v, ok := got.TLV(id.Type)
				passed := ok && bytes.Equal(v, id.Value)
				if passed != tt.pass {
					t.Errorf("%s passed on: %v, want %v", id.Type, passed, tt.pass)
				}
			}
			if ssl, ok := got.TLV(pp.SSLInfo); tt.mode == Terminate {
				if s, err := pp.ParseSSL(ssl); err != nil || s.CN != "" || !s.Client || s.Version == "" {
					t.Errorf("SSL says %+v, %v", s, err)
				}
			} else if ok && !tt.pass {
				t.Error("an SSL TLV where no TLS is ours")
			}
			authority := "up.example"
			if tt.mode != Plain {
				authority = serverName // ours replaces it
			}
			for _, want := range []pp.TLV{{Type: pp.UniqueID, Value: []byte("upstream-7")}, {Type: 0xE0, Value: []byte("own")}, {Type: pp.Authority, Value: []byte(authority)}} {
				if n := countTLV(got, want.Type); n != 1 {
					t.Errorf("%s stands there %d times", want.Type, n)
				}
				if v, _ := got.TLV(want.Type); !bytes.Equal(v, want.Value) {
					t.Errorf("%s is %q, want %q", want.Type, v, want.Value)
				}
			}
			c.Close()
			r.end()
		})
	}
}

func countTLV(h pp.Header, t pp.TLVType) (n int) {
	for _, tlv := range h.TLVs {
		if tlv.Type == t {
			n++
		}
	}
	return n
}

// What upstream says may leave no room for what we add. That is one client's
// matter: no backend must be marked down for it.
func TestHeaderThatOutgrowsItsLimitIsNoBackendsFault(t *testing.T) {
	address, connects := recorder(t)
	r := newRig(t, []string{address}, acceptProxy(false), sendHeader(HeaderV2, TLVs{UniqueID: true, CRC32C: true}))
	header, err := pp.AppendV2(nil, pp.Header{Command: pp.Proxy,
		Source: netip.MustParseAddrPort("198.51.100.77:40001"), Destination: netip.MustParseAddrPort("198.51.100.5:1883"),
		TLVs: []pp.TLV{{Type: 0xE0, Value: make([]byte, pp.MaxHeader-16-12-3)}}}, false)
	if err != nil {
		t.Fatal(err)
	}
	c := r.dial()
	c.send(header)
	if how, _ := outcome(r, c, connects, connect311("dev-1")); how != "connack=03,close" {
		t.Error(how)
	}
	c.Close()
	if e := r.ended(StageDial, ByMqttlb, BadHeader); e.Answer != mqtt.ServerUnavailable || e.Attempt != 0 {
		t.Errorf("answer %s, attempt %d", e.Answer, e.Attempt)
	}
	r.reported(nil, nil, nil)
}
