package certs

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"time"
)

func TestServerConfigRefuses(t *testing.T) {
	one := []tls.Certificate{testCA().issue("a.example", ecdsaKey(), nil)}
	for _, tt := range []struct {
		name string
		o    ServerOptions
		want []string
	}{
		{"no certificate", ServerOptions{}, []string{"tls.certificates"}},
		{"TLS 1.1", ServerOptions{Certificates: one, MinVersion: tls.VersionTLS11}, []string{"TLS 1.1", "1.2 or 1.3"}},
		{"unknown verify", ServerOptions{Certificates: one, Verify: "yes"}, []string{`"yes"`, "none, optional or required"}},
		{"required without CA", ServerOptions{Certificates: one, Verify: VerifyRequired}, []string{"tls.client_ca"}},
		{"optional without CA", ServerOptions{Certificates: one, Verify: VerifyOptional}, []string{"tls.client_ca"}},
		{"empty ALPN name", ServerOptions{Certificates: one, ALPN: []string{"mqtt", ""}}, []string{"tls.alpn[1]"}},
		{"long ALPN name", ServerOptions{Certificates: one, ALPN: []string{strings.Repeat("x", 256)}}, []string{"tls.alpn[0]", "256"}},
		{"all at once", ServerOptions{MinVersion: 1, Verify: "yes"}, []string{"tls.certificates", "tls.min_version", "tls.verify"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, err := ServerConfig(tt.o)
			if err == nil || cfg != nil {
				t.Fatal("accepted")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q\ndoes not name %q", err, want)
				}
			}
		})
	}
}

func TestServerConfigServes(t *testing.T) {
	ca, stranger := testCA(), newAuthority("Stranger CA")
	one := []tls.Certificate{ca.issue("a.example", ecdsaKey(), nil)}
	good := ca.issue("dev-1", ecdsaKey(), nil)
	foreign := stranger.issue("dev-1", ecdsaKey(), nil)
	expired := ca.issue("dev-1", ecdsaKey(), func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	serverUse := ca.issue("dev-1", ecdsaKey(), func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	})
	required := ServerOptions{Certificates: one, Verify: VerifyRequired, ClientCAs: ca.pool()}
	optional := ServerOptions{Certificates: one, Verify: VerifyOptional, ClientCAs: ca.pool()}
	alpn := ServerOptions{Certificates: one, ALPN: []string{"mqtt", "x-amzn-mqtt-ca"}}

	for _, tt := range []struct {
		name   string
		o      ServerOptions
		show   *tls.Certificate
		alpn   []string
		max    uint16
		want   string // in the server's error; empty: served
		chains bool   // a client certificate has been verified
		proto  string
	}{
		{name: "none, no certificate", o: ServerOptions{Certificates: one}},
		{name: "none does not ask", o: ServerOptions{Certificates: one}, show: &foreign},
		{name: "optional, no certificate", o: optional},
		{name: "optional, good", o: optional, show: &good, chains: true},
		{name: "optional, of a stranger", o: optional, show: &foreign, want: "unknown authority"},
		{name: "required, good", o: required, show: &good, chains: true},
		{name: "required, no certificate", o: required, want: "didn't provide a certificate"},
		{name: "required, of a stranger", o: required, show: &foreign, want: "unknown authority"},
		{name: "required, expired", o: required, show: &expired, want: "expired"},
		{name: "required, issued for servers", o: required, show: &serverUse, want: "incompatible key usage"},
		{name: "TLS 1.2 by default", o: ServerOptions{Certificates: one}, max: tls.VersionTLS12},
		{name: "no TLS 1.1 by default", o: ServerOptions{Certificates: one}, max: tls.VersionTLS11, want: "unsupported versions"},
		{name: "TLS 1.3 at least", o: ServerOptions{Certificates: one, MinVersion: tls.VersionTLS13}, max: tls.VersionTLS12, want: "unsupported versions"},
		{name: "ALPN in the server's order", o: alpn, alpn: []string{"x-amzn-mqtt-ca", "mqtt"}, proto: "mqtt"},
		{name: "ALPN, client has none", o: alpn},
		{name: "ALPN, nothing in common", o: alpn, alpn: []string{"h2"}, want: "unsupported application protocols"},
		{name: "ALPN, server has none", o: ServerOptions{Certificates: one}, alpn: []string{"h2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := &tls.Config{
				RootCAs: ca.pool(), ServerName: "a.example", NextProtos: tt.alpn,
				MinVersion: tls.VersionTLS10, MaxVersion: tt.max,
			}
			if tt.show != nil {
				client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return tt.show, nil }
			}
			o := connect(t, serverConfig(t, tt.o), client)
			if tt.want != "" {
				if o.serverErr == nil || !strings.Contains(o.serverErr.Error(), tt.want) {
					t.Fatalf("server: %v, want %q", o.serverErr, tt.want)
				}
				return
			}
			if o.clientErr != nil || o.serverErr != nil {
				t.Fatalf("client: %v; server: %v", o.clientErr, o.serverErr)
			}
			if got := len(o.server.VerifiedChains) > 0; got != tt.chains {
				t.Errorf("client certificate verified: %v, want %v", got, tt.chains)
			}
			if o.server.NegotiatedProtocol != tt.proto {
				t.Errorf("ALPN %q, want %q", o.server.NegotiatedProtocol, tt.proto)
			}
		})
	}
}

// A resumed session carries the client's certificate over from the ticket.
// What holds for new sessions must hold for it as well, or a device whose CA
// was taken out would keep its way in for the days that a ticket lives.
func TestResumptionHoldsClientsToTheRules(t *testing.T) {
	ca, next := testCA(), newAuthority("Next CA")
	one := []tls.Certificate{ca.issue("a.example", ecdsaKey(), nil)}
	device := ca.issue("dev-1", ecdsaKey(), func(c *x509.Certificate) { c.NotAfter = time.Now().Add(time.Hour) })
	required := ServerOptions{Certificates: one, Verify: VerifyRequired, ClientCAs: ca.pool()}
	newCA := required
	newCA.ClientCAs = next.pool()
	inTwoHours := func(cfg *tls.Config) { cfg.Time = func() time.Time { return time.Now().Add(2 * time.Hour) } }

	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, tt := range []struct {
			name          string
			first, second ServerOptions
			change        func(*tls.Config) // of the second
			hasCert       bool
			resumed       bool
			want          string // in the server's error on the second connection
		}{
			{"same rules", required, required, nil, true, true, ""},
			{"CA taken out", required, newCA, nil, true, false, "unknown authority"},
			{"certificate expired since", required, required, inTwoHours, true, false, "expired"},
			{"certificate asked for since", ServerOptions{Certificates: one}, required, nil, false, false, "didn't provide a certificate"},
		} {
			t.Run(tls.VersionName(version)+", "+tt.name, func(t *testing.T) {
				keys := [][32]byte{{1}}
				first, second := serverConfig(t, tt.first), serverConfig(t, tt.second)
				first.SetSessionTicketKeys(keys)
				second.SetSessionTicketKeys(keys)
				if tt.change != nil {
					tt.change(second)
				}
				client := &tls.Config{
					RootCAs: ca.pool(), ServerName: "a.example",
					MaxVersion: version, ClientSessionCache: tls.NewLRUClientSessionCache(1),
				}
				if tt.hasCert {
					client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &device, nil }
				}
				if o := connect(t, first, client); o.clientErr != nil || o.serverErr != nil {
					t.Fatalf("first connection: client %v, server %v", o.clientErr, o.serverErr)
				}
				o := connect(t, second, client)
				if tt.want != "" {
					if o.serverErr == nil || !strings.Contains(o.serverErr.Error(), tt.want) {
						t.Fatalf("server: %v, want %q", o.serverErr, tt.want)
					}
					return
				}
				if o.serverErr != nil || o.server.DidResume != tt.resumed || len(o.server.VerifiedChains) == 0 {
					t.Fatalf("resumed %v with %d chains, error %v", o.server.DidResume, len(o.server.VerifiedChains), o.serverErr)
				}
			})
		}
	}
}
