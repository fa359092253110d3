package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// ClientOptions is what TLS to backends needs.
type ClientOptions struct {
	// RootCAs are who may have issued the backends' certificates; nil stands
	// for the system's roots.
	RootCAs *x509.CertPool
	// ServerName is the name or IP address that a backend's certificate must
	// bear, and the SNI when it is a name. When it is empty, whoever dials must
	// set it to the host of the backend's address in a clone of the Config;
	// crypto/tls refuses a handshake without it.
	ServerName string
	// Certificate is shown to backends that ask for one; nil shows none.
	Certificate *tls.Certificate
}

// ClientConfig gives the TLS configuration of connections to backends: TLS 1.2
// or later, the backend's certificate always verified. Sessions are not
// resumed: each would have to go back to the broker it came from.
func ClientConfig(o ClientOptions) (*tls.Config, error) {
	if err := checkServerName(o.ServerName); err != nil {
		return nil, err
	}
	cfg := &tls.Config{
		RootCAs:    o.RootCAs,
		ServerName: o.ServerName,
		MinVersion: tls.VersionTLS12,
	}
	if o.Certificate != nil {
		if len(o.Certificate.Certificate) == 0 {
			return nil, errors.New("the client certificate is empty; load it from its files")
		}
		// Certificates would keep it back from a backend whose list of CAs does
		// not name its issuer, and all that both sides then log is that none
		// was sent. A backend that sees it says what is wrong with it.
		shown := *o.Certificate
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &shown, nil
		}
	}
	return cfg, nil
}

// checkServerName catches an address written for a name; crypto/tls would wait
// for a certificate that bears it.
func checkServerName(name string) error {
	if name == "" {
		return nil
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return nil
	}
	if strings.ContainsAny(name, ":/[] \t") {
		return fmt.Errorf("tls.server_name %q is neither a host name nor an IP address; write the name on the backends' certificates, without a port", name)
	}
	return nil
}
