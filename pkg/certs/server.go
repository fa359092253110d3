package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
)

// Verify says what a listener asks of a client's certificate.
type Verify string

const (
	VerifyNone     Verify = "none"     // does not ask for one
	VerifyOptional Verify = "optional" // asks; one that is sent must be good
	VerifyRequired Verify = "required" // asks, and refuses clients without a good one
)

// ServerOptions is what a listener that terminates TLS needs.
type ServerOptions struct {
	// Certificates in the order of preference; at least one. See [Chooser].
	Certificates []tls.Certificate
	// MinVersion is tls.VersionTLS12 (which zero stands for) or
	// tls.VersionTLS13.
	MinVersion uint16
	// ALPN lists the application protocols in the order of preference. With a
	// list here, a client that offers only others is refused (RFC 7301 §3.2,
	// alert no_application_protocol); one that offers none is served.
	ALPN []string
	// Verify is what is asked of client certificates; empty stands for
	// VerifyNone.
	Verify Verify
	// ClientCAs are who may have issued them; needed unless Verify is
	// VerifyNone.
	ClientCAs *x509.CertPool
}

// ServerConfig gives the TLS configuration of a listener. The error joins all
// problems of o.
//
// Sessions are resumed by tickets, with keys that crypto/tls makes and renews
// by itself, so tickets do not outlive the Config. A resumed session is held
// to Verify and ClientCAs as they are now, and to the validity of the
// certificates it was made with. A check that goes further belongs in
// VerifyConnection: VerifyPeerCertificate is not called on resumption.
func ServerConfig(o ServerOptions) (*tls.Config, error) {
	var problems []error
	if len(o.Certificates) == 0 {
		problems = append(problems, errors.New("terminating TLS needs a certificate; add one to tls.certificates"))
	}
	switch o.MinVersion {
	case 0:
		o.MinVersion = tls.VersionTLS12
	case tls.VersionTLS12, tls.VersionTLS13:
	default:
		problems = append(problems, fmt.Errorf("tls.min_version %s is not served; use 1.2 or 1.3", tls.VersionName(o.MinVersion)))
	}
	for i, p := range o.ALPN {
		// RFC 7301 §3.1
		if len(p) == 0 || len(p) > 255 {
			problems = append(problems, fmt.Errorf("tls.alpn[%d] has %d bytes; a protocol name has 1 to 255", i, len(p)))
		}
	}
	auth, ok := o.Verify.clientAuth()
	switch {
	case !ok:
		problems = append(problems, fmt.Errorf("tls.verify %q is unknown; use none, optional or required", o.Verify))
	case auth != tls.NoClientCert && o.ClientCAs == nil:
		// crypto/tls would take the system's roots: any public CA could admit
		// its customers.
		problems = append(problems, fmt.Errorf("tls.verify %s needs tls.client_ca, the issuers of the clients' certificates", o.Verify))
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return &tls.Config{
		// Certificates stays empty: GetCertificate would not be asked about
		// clients without SNI.
		GetCertificate: Chooser(o.Certificates),
		MinVersion:     o.MinVersion,
		NextProtos:     slices.Clone(o.ALPN),
		ClientAuth:     auth,
		ClientCAs:      o.ClientCAs,
	}, nil
}

func (v Verify) clientAuth() (auth tls.ClientAuthType, ok bool) {
	switch v {
	case "", VerifyNone:
		return tls.NoClientCert, true
	case VerifyOptional:
		return tls.VerifyClientCertIfGiven, true
	case VerifyRequired:
		return tls.RequireAndVerifyClientCert, true
	default:
		return 0, false
	}
}
