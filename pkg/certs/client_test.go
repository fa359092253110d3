package certs

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"testing"
)

func TestClientConfigVerifiesBackends(t *testing.T) {
	ca, stranger := testCA(), newAuthority("Stranger CA")
	named := ca.issue("broker.example", ecdsaKey(), nil)
	byIP := ca.issue("broker", ecdsaKey(), func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} })
	foreign := stranger.issue("broker.example", ecdsaKey(), nil)

	for _, tt := range []struct {
		name    string
		backend tls.Certificate
		server  string
		max     uint16
		want    string // in the client's error; empty: connected
	}{
		{"right name", named, "broker.example", 0, ""},
		{"right IP address", byIP, "127.0.0.1", 0, ""},
		{"TLS 1.2 backend", named, "broker.example", tls.VersionTLS12, ""},
		{"other name", named, "other.example", 0, "not other.example"},
		{"name left empty by whoever dials", named, "", 0, "ServerName"},
		{"certificate of a stranger", foreign, "broker.example", 0, "unknown authority"},
		{"TLS 1.1 backend", named, "broker.example", tls.VersionTLS11, "protocol version"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, err := ClientConfig(ClientOptions{RootCAs: ca.pool(), ServerName: tt.server})
			if err != nil {
				t.Fatal(err)
			}
			backend := &tls.Config{Certificates: []tls.Certificate{tt.backend}, MinVersion: tls.VersionTLS10, MaxVersion: tt.max}
			o := connect(t, backend, cfg)
			if tt.want == "" {
				if o.clientErr != nil || o.serverErr != nil {
					t.Fatalf("client: %v; backend: %v", o.clientErr, o.serverErr)
				}
				return
			}
			if o.clientErr == nil || !strings.Contains(o.clientErr.Error(), tt.want) {
				t.Fatalf("client: %v, want %q", o.clientErr, tt.want)
			}
		})
	}
}

func TestClientConfigShowsItsCertificate(t *testing.T) {
	ca, other := testCA(), newAuthority("Other CA")
	shown := ca.issue("mqttlb", ecdsaKey(), nil)
	cfg, err := ClientConfig(ClientOptions{RootCAs: ca.pool(), ServerName: "broker.example", Certificate: &shown})
	if err != nil {
		t.Fatal(err)
	}
	backend := &tls.Config{
		Certificates: []tls.Certificate{ca.issue("broker.example", ecdsaKey(), nil)},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    ca.pool(),
	}
	o := connect(t, backend, cfg)
	if o.clientErr != nil || o.serverErr != nil {
		t.Fatalf("client: %v; backend: %v", o.clientErr, o.serverErr)
	}
	if got := o.server.PeerCertificates[0]; !got.Equal(shown.Leaf) {
		t.Errorf("backend saw %s", got.Subject)
	}

	// A backend that does not know the issuer says that, not "no certificate".
	backend.ClientCAs = other.pool()
	o = connect(t, backend, cfg)
	if o.serverErr == nil || !strings.Contains(o.serverErr.Error(), "unknown authority") {
		t.Errorf("backend: %v, want an unknown authority", o.serverErr)
	}
}

func TestClientConfigRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    ClientOptions
		want string
	}{
		{"host and port", ClientOptions{ServerName: "broker.example:8883"}, "without a port"},
		{"IPv6 address in brackets", ClientOptions{ServerName: "[::1]"}, "tls.server_name"},
		{"URL", ClientOptions{ServerName: "mqtts://broker.example"}, "tls.server_name"},
		{"empty certificate", ClientOptions{Certificate: &tls.Certificate{}}, "client certificate is empty"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := ClientConfig(tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := ClientConfig(ClientOptions{ServerName: "fe80::1"}); err != nil {
		t.Errorf("an IPv6 address as name: %v", err)
	}
}
