package pp

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// SSL is what an SSLInfo TLV says of the client's TLS (PP 2.2.6). Strings are
// empty where nothing is said.
type SSL struct {
	Client   bool // the client came over TLS
	CertConn bool // it gave a certificate on this connection
	CertSess bool // it gave one at least once in this TLS session

	// Verify is 0 if the client gave a certificate and that was verified; use
	// Verified, since some senders write 0 without any certificate.
	Verify uint32

	Version string // as OpenSSL names it: "TLSv1.3"
	CN      string // Common Name of the client's certificate, UTF-8
	Cipher  string // as OpenSSL names it: "ECDHE-RSA-AES128-GCM-SHA256"
	SigAlg  string // what the server's certificate is signed with: "RSA-SHA256"
	KeyAlg  string // kind and size of the server certificate's key: "RSA2048"
}

// NotVerified stands in SSL.Verify where there is no verified certificate;
// OpenSSL calls it X509_V_ERR_UNSPECIFIED.
const NotVerified = 1

// Verified says whether the client gave a certificate and it was verified.
func (s SSL) Verified() bool {
	return s.Client && (s.CertConn || s.CertSess) && s.Verify == 0
}

const (
	clientSSL      = 0x01
	clientCertConn = 0x02
	clientCertSess = 0x04

	sslHead = 5 // client flags and verify
)

// TLV writes s as an SSLInfo TLV, its strings in the order that HAProxy uses.
func (s SSL) TLV() TLV {
	var flags byte
	for _, f := range []struct {
		is  bool
		bit byte
	}{{s.Client, clientSSL}, {s.CertConn, clientCertConn}, {s.CertSess, clientCertSess}} {
		if f.is {
			flags |= f.bit
		}
	}
	v := binary.BigEndian.AppendUint32([]byte{flags}, s.Verify)
	for _, sub := range []struct {
		t     TLVType
		value string
	}{
		{SSLVersion, s.Version}, {SSLCN, s.CN}, {SSLKeyAlg, s.KeyAlg}, {SSLSigAlg, s.SigAlg}, {SSLCipher, s.Cipher},
	} {
		if sub.value != "" {
			v = appendTLV(v, sub.t, sub.value)
		}
	}
	return TLV{SSLInfo, v}
}

// ParseSSL reads the value of an SSLInfo TLV. A part that overruns the value, a
// registered sub-TLV given twice, a CN that is not UTF-8 and a name that is not
// ASCII are ErrMalformed; sub-TLVs without a field in SSL are passed over.
func ParseSSL(v []byte) (SSL, error) {
	if len(v) < sslHead {
		return SSL{}, fmt.Errorf("%w: TLV %v of %d bytes, at least %d are due", ErrMalformed, SSLInfo, len(v), sslHead)
	}
	s := SSL{
		Client:   v[0]&clientSSL != 0,
		CertConn: v[0]&clientCertConn != 0,
		CertSess: v[0]&clientCertSess != 0,
		Verify:   binary.BigEndian.Uint32(v[1:]),
	}
	fields := map[TLVType]*string{
		SSLVersion: &s.Version, SSLCN: &s.CN, SSLCipher: &s.Cipher, SSLSigAlg: &s.SigAlg, SSLKeyAlg: &s.KeyAlg,
	}
	seen := map[TLVType]bool{}
	err := eachTLV(v[sslHead:], func(t TLVType, value []byte, _ int) error {
		if t < SSLVersion || t > SSLClientCert {
			return nil
		}
		if seen[t] {
			return repeated(t)
		}
		seen[t] = true
		field, ok := fields[t]
		if !ok {
			return nil
		}
		if !utf8.Valid(value) || t != SSLCN && !ascii(value) {
			return fmt.Errorf("%w: TLV %v is not in the character set that is due", ErrMalformed, t)
		}
		*field = string(value)
		return nil
	})
	if err != nil {
		return SSL{}, err
	}
	return s, nil
}

func ascii(v []byte) bool {
	for _, c := range v {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// SSLFromState describes a client connection whose TLS was terminated here.
// presented is the leaf of the certificate that this side showed, which
// tls.ConnectionState does not keep; nil leaves SigAlg and KeyAlg empty.
//
// A resumed session carries the client's certificate from its first handshake:
// CertSess is then set without CertConn.
func SSLFromState(cs *tls.ConnectionState, presented *x509.Certificate) SSL {
	s := SSL{
		Client:  true,
		Verify:  NotVerified,
		Version: versionName(cs.Version),
		Cipher:  cipherName(cs.CipherSuite),
	}
	if len(cs.PeerCertificates) > 0 {
		s.CertSess = true
		s.CertConn = !cs.DidResume
		s.CN = cs.PeerCertificates[0].Subject.CommonName
	}
	if len(cs.VerifiedChains) > 0 {
		s.Verify = 0
	}
	if presented != nil {
		s.SigAlg = sigAlgName(presented.SignatureAlgorithm)
		s.KeyAlg = keyAlgName(presented.PublicKey)
	}
	return s
}
